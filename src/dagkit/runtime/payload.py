"""Payloads: functions and values as bytes, with a header that says which Python and cloudpickle made them.

A payload is one line of text, `dagkit-payload 1 python=3.11 cloudpickle=3.1.3 dagkit=0.1.0 code`, and a pickle. The
last word is `code` if functions or classes travel by value: only those depend on the versions; else it is `data`.

A function that a worker can import travels as `module:qualname`. Any other travels by value, with what it captures and
with the local modules it uses, transitively. A class of a notebook or of a local module also travels by value, and
becomes this process's own class of that name wherever there is one: `isinstance` holds for results in the notebook,
also after the cell that defines the class has run again.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakSet

import cloudpickle

import dagkit
from dagkit.errors import CorruptState, DagkitError, NewerFormat, NotPicklable, PayloadMismatch
from dagkit.runtime._captures import captures_of, find_culprit
from dagkit.runtime._pickler import Pickled, pickle_object, reference_of
from dagkit.runtime._rebuild import function_at, main_namespace, plain

__all__ = ["LargeCapture", "dump_function", "dumps", "load_function", "loads", "main_namespace"]

LARGE_CAPTURE = 10_000_000
"""Bytes above which a captured variable is worth a warning."""

OUTPUT = "its output"
"""What `where` says after the task's name when a result is pickled."""

_MAGIC = b"dagkit-payload "
_MAX_HEADER = 500
_warned: WeakSet[FunctionType] = WeakSet()


class LargeCapture(UserWarning):
    """A function captured a big value, which travels with the function to every worker."""


def dump_function(function: Callable[..., Any], where: str = "") -> tuple[str | None, bytes | None]:
    """`("module:qualname", None)` for what a worker can import, else `(None, payload)`.

    Takes a plain callable or a dagkit task. `where` is the task's name for messages. Raises `NotPicklable` naming the
    captured variable; warns once per function with `LargeCapture` about each variable of over 10 MB.
    """
    function = plain(function)
    where = where or getattr(function, "__qualname__", type(function).__name__)
    reference = reference_of(function)
    if reference is not None:
        return reference, None
    data = dumps(function, where)
    if len(data) > LARGE_CAPTURE:
        _warn_large(function, where, set())
    return None, data


def load_function(reference: str | None = None, data: bytes | None = None) -> Callable[..., Any]:
    """The function that `dump_function` described; exactly one of the two arguments is given.

    Raises ImportError or AttributeError for a reference that does not resolve here, `PayloadMismatch` as `loads` does.
    """
    if reference is not None:
        return _callable(function_at(reference), reference)
    if data is None:
        raise ValueError("load_function needs a reference or a payload")
    return _callable(plain(loads(data)), "the payload")


def _callable(found: Any, source: str) -> Callable[..., Any]:
    if not callable(found):
        raise CorruptState(f"{source} is of type {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def dumps(obj: Any, where: str, persistent_id: Callable[[Any], str | None] | None = None) -> bytes:
    """`obj` as a payload. `where` starts the message of `NotPicklable`: `train`, or `train: argument 'x'`.

    Objects for which `persistent_id` gives a text are left out; `loads` asks its `persistent_load` for them.
    """
    try:
        pickled = pickle_object(obj, persistent_id)
    except (DagkitError, MemoryError):
        raise
    except Exception as error:  # any object's own pickling code runs here and may raise anything
        raise _not_picklable(obj, where, error, persistent_id) from error
    return _header(pickled) + pickled.data


def loads(data: bytes, persistent_load: Callable[[str], Any] | None = None) -> Any:
    """The object in a payload.

    Raises `PayloadMismatch` for code from another Python minor or cloudpickle major version, `NewerFormat` and
    `CorruptState` for bytes that are no payload of this format; and whatever the objects' own loading code raises.
    """
    body = _checked(data)
    if persistent_load is None:
        return pickle.loads(body)
    unpickler = _Unpickler(io.BytesIO(body))
    unpickler.load_id = persistent_load
    return unpickler.load()


class _Unpickler(pickle.Unpickler):
    load_id: Callable[[str], Any]

    def persistent_load(self, pid: Any) -> Any:
        return self.load_id(pid)


def _not_picklable(
    obj: Any, where: str, error: Exception, persistent_id: Callable[[Any], str | None] | None
) -> NotPicklable:
    def failure(part: Any) -> Exception | None:
        try:
            pickle_object(part, persistent_id)
        except Exception as raised:  # as in dumps
            return raised
        return None

    task, _, subject = where.partition(": ")
    subject = subject or "it"
    if "recursion" in str(error).lower():
        return NotPicklable(task, subject, "it is nested too deeply", "Flatten it, or pass it as a file.")
    culprit = find_culprit(obj, error, failure)
    is_part = culprit.what[:1] in ("", ".", "[")
    what = subject + culprit.what if is_part else culprit.what + ("" if subject == "it" else f", in {subject},")
    reason = str(culprit.error).partition("\n")[0] or type(culprit.error).__name__
    hint = (
        "Return data or a dagkit.File."
        if subject == OUTPUT
        else "Create it inside the task, or pass what it is made from."
    )
    return NotPicklable(task, what, reason, hint)


# --- the header


def _line(word: str) -> bytes:
    made_with = f"python={_python()} cloudpickle={cloudpickle.__version__} dagkit={dagkit.__version__}"
    return _MAGIC + f"1 {made_with} {word}\n".encode()


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


_CODE, _DATA = _line("code"), _line("data")


def _header(pickled: Pickled) -> bytes:
    return _CODE if pickled.has_code else _DATA


def _checked(data: bytes) -> memoryview:
    """The pickle behind the header."""
    for own in (_DATA, _CODE):
        if data.startswith(own):
            return memoryview(data)[len(own) :]
    line, newline, _ = data[:_MAX_HEADER].partition(b"\n")
    words = line.decode("utf-8", "replace").split(" ")
    if not line.startswith(_MAGIC) or not newline or len(words) < 3:
        raise CorruptState("this is not a dagkit payload: its header is missing or damaged")
    if words[1] != "1":
        raise NewerFormat(f"this payload has format {words[1]}; this dagkit reads format 1. Install a later dagkit.")
    fields = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    if words[-1] != "data":
        _check_versions(fields.get("python", "?"), fields.get("cloudpickle", "?"))
    return memoryview(data)[len(line) + 1 :]


def _check_versions(python: str, pickler: str) -> None:
    same = python == _python() and pickler.partition(".")[0] == cloudpickle.__version__.partition(".")[0]
    if not same:
        here = f"Python {_python()} and cloudpickle {cloudpickle.__version__}"
        raise PayloadMismatch(f"Python {python} and cloudpickle {pickler}", here)


# --- big captures


def _warn_large(function: Any, where: str, seen: set[int]) -> None:
    """Warn about each big variable that the function, or a local function it uses, has captured; once per function."""
    seen.add(id(function))
    if not isinstance(function, FunctionType) or function in _warned:
        return
    _warned.add(function)
    for capture in captures_of(function):
        value = plain(capture.value)
        if isinstance(value, FunctionType):
            if id(value) not in seen and reference_of(value) is None:
                _warn_large(value, where, seen)
            continue
        size = _size(value)
        if size > LARGE_CAPTURE:
            warnings.warn(
                f"{where}: {capture.label} is {size / 1e6:.1f} MB and travels with the function to every worker. "
                f"Pass it as an argument from the task that makes it, or as a dagkit.File.",
                LargeCapture,
                stacklevel=3,
            )


def _size(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else len(pickle_object(value).data)
