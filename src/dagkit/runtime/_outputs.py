"""Outputs of tasks as bytes: JSON where JSON returns them unchanged, payloads otherwise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from enum import Enum
from json.encoder import encode_basestring as _quote
from math import isfinite
from typing import Any, NamedTuple

from dagkit.runtime import payload
from dagkit.runtime.files import attach_files, mentions_files

__all__ = ["INLINE_LIMIT", "MAX_DEPTH", "MAX_INT_BITS", "Encoded", "condition_view", "dump_output", "load_output"]

INLINE_LIMIT = 32768
"""Bytes of UTF-8 JSON that travel inside a message or an output ref (facts: jobq 7.6)."""

MAX_DEPTH = 64
"""Levels of nesting that are written as JSON; what is deeper is a payload."""

MAX_INT_BITS = 4096
"""Larger integers are payloads: Python refuses to read decimal numbers of more than 4,300 digits."""

_MAX_ARRAY = 16_384


class Encoded(NamedTuple):
    """An output as bytes, and the suffix of its blob: `json` or `pkl`."""

    suffix: str
    data: bytes


def dump_output(value: Any, task: str = "the task") -> Encoded:
    """An output as bytes: JSON if JSON returns it unchanged with exact types, else a payload. Raises `NotPicklable`."""
    text = _exact_json(value, 0)
    if text is None:
        return Encoded("pkl", payload.dumps(value, f"{task}: {payload.OUTPUT}"))
    try:
        return Encoded("json", text.encode())
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, but an escape
        return Encoded("json", json.dumps(value).encode())


def _exact_json(value: Any, depth: int) -> str | None:
    """JSON text that loads as an equal value of the same types throughout; None if there is none."""
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is float:
        return repr(value) if isfinite(value) else None
    if kind is int:
        return repr(value) if value.bit_length() <= MAX_INT_BITS else None
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if depth > MAX_DEPTH:
        return None
    if kind is dict:
        return _exact_object(value, depth + 1)
    return _exact_array(value, depth + 1) if kind is list else None


def _exact_object(value: dict[Any, Any], depth: int) -> str | None:
    parts = []
    for key, item in value.items():
        text = _exact_json(item, depth)
        if text is None or type(key) is not str:
            return None
        parts.append(_quote(key) + ":" + text)
    return "{" + ",".join(parts) + "}"


def _exact_array(value: list[Any], depth: int) -> str | None:
    parts = []
    for item in value:
        text = _exact_json(item, depth)
        if text is None:
            return None
        parts.append(text)
    return "[" + ",".join(parts) + "]"


def load_output(ref: str | None, get_output: Callable[[str], bytes], *, files: bool = True) -> Any:
    """The value behind an output ref: inline JSON, `blob:...json`, `blob:...pkl`; text that is no JSON is the text.

    Stored files in it are handles that read through `get_output`; with `files=False` the markers stay as they are, for
    `condition_view`. Raises `CorruptState` for a bad file marker.
    """
    if ref is None:
        return None
    data = get_output(ref) if ref.startswith("blob:") else ref
    if isinstance(data, bytes) and ref.endswith(".pkl"):
        value = payload.loads(data)
    else:
        value = _from_json(data if isinstance(data, str) else data.decode("utf-8", "replace"))
    return attach_files(value, get_output) if files and mentions_files(data) else value


def condition_view(value: Any) -> Any:
    """An output as conditions look at it, as JSON would show it: numpy scalars and enums as plain values, tuples and
    small arrays as lists, dataclasses and named tuples as objects. What has no such form stays as it is.
    """
    return _view(value, {})


def _view(value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    """`known` has what was seen, by identity: a part that occurs often is viewed once, one in itself stays as it is."""
    kind = type(value)
    if kind is str or kind is float or kind is int or value is None or kind is bool:
        return value
    if id(value) not in known:
        known[id(value)] = (value, value)
        known[id(value)] = (value, _view_parts(value, kind, known))
    return known[id(value)][1]


def _view_parts(value: Any, kind: type, known: dict[int, tuple[Any, Any]]) -> Any:
    if kind is dict:
        return {key: _view(item, known) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_view(item, known) for item in value]
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _view(value._asdict(), known)
    if isinstance(value, Enum):
        return _view(value.value, known)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _view(getattr(value, field.name, None), known) for field in dataclasses.fields(value)}
    is_numpy = kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")
    return value.tolist() if is_numpy and value.size <= _MAX_ARRAY else value


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
