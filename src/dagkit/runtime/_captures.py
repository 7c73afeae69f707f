"""What a function captures, under the names its author knows: to say what cannot travel, and what is big."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dagkit.runtime._installed import is_installed
from dagkit.runtime._rebuild import plain

__all__ = ["Capture", "Culprit", "captures_of", "find_culprit"]

_MAX_DEPTH = 24
_MAX_PROBES = 2000


@dataclass(frozen=True)
class Capture:
    """One value that a function or object holds.

    Attributes:
        label: `closure variable 'lock'`, `global 'client'`, `default of 'x'`; for a part of it `.session` or `[0]`.
    """

    label: str
    value: Any


@dataclass(frozen=True)
class Culprit:
    """The innermost thing that could not be pickled: where it is held, the value, and what pickling it raised.

    `what` starts with a dot or a bracket, or is empty, if no variable of a function is on the way.
    """

    what: str
    value: Any
    error: Exception


def captures_of(function: FunctionType) -> Iterator[Capture]:
    """Closure variables, globals, defaults and attributes of a function, in that order."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Capture(f"closure variable {name!r}", cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield from _global(name, function.__globals__[name], function.__code__)
    yield from _defaults(function)
    for name, value in vars(function).items():
        yield Capture(f"function attribute {name!r}", value)


def _global(name: str, value: Any, code: CodeType) -> Iterator[Capture]:
    """The global; of a module that travels by value, what the code may use of it."""
    if not isinstance(value, ModuleType) or is_installed(value.__name__):
        yield Capture(f"global {name!r}", value)
        return
    for attribute in _global_names(code):
        if attribute in vars(value) and not isinstance(vars(value)[attribute], ModuleType):
            yield Capture(f"'{name}.{attribute}'", vars(value)[attribute])


def _defaults(function: FunctionType) -> Iterator[Capture]:
    values = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    for name, value in zip(names[len(names) - len(values) :], values, strict=True):
        yield Capture(f"default of {name!r}", value)
    for name, value in (function.__kwdefaults__ or {}).items():
        yield Capture(f"default of {name!r}", value)


def _global_names(code: CodeType) -> list[str]:
    """Names the code may read as globals, nested functions included, each once."""
    names = dict.fromkeys(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names.update(dict.fromkeys(_global_names(const)))
    return list(names)


def find_culprit(obj: Any, error: Exception, pickles: Callable[[Any], Exception | None]) -> Culprit:
    """Follow what fails to pickle down to the innermost object, asking `pickles` (None: fine) about each part.

    Only for the error path: every part is pickled again. Bounded in depth and in the number of parts it asks about.
    """
    path: list[str] = []
    seen, probes = {id(obj)}, 0
    for _ in range(_MAX_DEPTH):
        for part in _parts(obj):
            probes += 1
            failure = pickles(part.value) if id(part.value) not in seen and probes < _MAX_PROBES else None
            if failure is not None:
                break
        else:
            break
        seen.add(id(part.value))
        path.append(part.label)
        obj, error = part.value, failure
    return Culprit(_describe(path), obj, error)


def _describe(path: list[str]) -> str:
    """The last variable on the path with the attributes that lead on from it, and the function it belongs to.

    Without a variable, the way from the object itself: `['a'].lock`, or nothing.
    """
    variables = [index for index, label in enumerate(path) if label[0] not in ".["]
    if not variables:
        return "".join(path)
    start = variables[-1]
    name = path[start].split("'")[1] if "'" in path[start] else ""
    rest = "".join(path[start + 1 :])
    holder = path[start - 1].split("'")[1] if start and "'" in path[start - 1] else ""
    return path[start] + (f" of {holder}" if holder else "") + (f" ({name}{rest})" if rest else "")


def _parts(obj: Any) -> Iterator[Capture]:
    obj = plain(obj)
    if isinstance(obj, FunctionType):
        yield from captures_of(obj)
    elif isinstance(obj, MethodType):
        yield Capture(".__self__", obj.__self__)
        yield Capture(".__func__", obj.__func__)
    elif isinstance(obj, functools.partial):
        yield Capture("the function of the partial", obj.func)
        yield from (Capture(f"partial argument {index}", value) for index, value in enumerate(obj.args))
        yield from (Capture(f"partial argument {key!r}", value) for key, value in obj.keywords.items())
    elif isinstance(obj, Mapping):
        yield from (Capture(f"[{_short(key)}]", value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from (Capture(f"[{index}]", value) for index, value in enumerate(obj))
    elif isinstance(obj, type) and not is_installed(obj.__module__):
        yield from (Capture(f".{name}", _unwrapped(value)) for name, value in vars(obj).items() if name[:2] != "__")
    elif not isinstance(obj, (type, ModuleType)):
        yield from _attributes(obj)


def _unwrapped(value: Any) -> Any:
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def _attributes(obj: Any) -> Iterator[Capture]:
    for name, value in (getattr(obj, "__dict__", None) or {}).items():
        yield Capture(f".{name}", value)
    for cls in type(obj).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(obj, name):
                yield Capture(f".{name}", getattr(obj, name))


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 40 else text[:37] + "..."
