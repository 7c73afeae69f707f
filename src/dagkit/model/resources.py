"""What a task asks of a machine: memory, time, cores (facts: resources, "Units")."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from dagkit.errors import UsageError

__all__ = [
    "RESOURCES",
    "ResourceRequest",
    "format_memory",
    "format_runtime",
    "has_refs",
    "parse_memory",
    "parse_runtime",
    "resource_faults",
    "scale_faults",
]

#: The keys of a task's `resources`; `queue` only as a value that an upstream task decides.
RESOURCES: Final = ("cores", "memory", "runtime", "gpus", "nodes", "queue", "extra")

MEMORY_FORMS: Final = "512M, 40G, 40GiB, 1.5G, 2T, or a whole number of bytes"
RUNTIME_FORMS: Final = "90s, 30m, 2h, 1.5h, 2d, 10h30m, 24:30:10, 1-00:00:00, or a number of seconds"

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MEMORY: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s?(?:([KMGT])(?:I?B)?|B)?", re.IGNORECASE | re.ASCII)
_CLOCK: Final = re.compile(r"(?:(\d{1,5})-)?(\d{1,7}):([0-5]?\d):([0-5]?\d)", re.ASCII)
_NUMBER: Final = r"(\d{1,12}(?:\.\d{1,9})?)"
_SPAN: Final = re.compile(
    rf"(?:{_NUMBER}d)?\s?(?:{_NUMBER}h)?\s?(?:{_NUMBER}m(?:in)?)?\s?(?:{_NUMBER}s)?", re.IGNORECASE | re.ASCII
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


class _Unreadable(UsageError, ValueError):
    """A quantity that is in none of the accepted forms."""


def parse_memory(text: str | int) -> int:
    """Bytes. K, M, G and T are binary, in any case; `iB` or `B` may follow.

    Raises a `UsageError` that is also a `ValueError` and names the accepted forms.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        value = Decimal(text)
    elif isinstance(text, str) and (match := _MEMORY.fullmatch(text.strip())):
        value = Decimal(match[1]) * _UNITS[(match[2] or "").upper()]
    else:
        raise _Unreadable(f"{text!r:.60} is no amount of memory. Accepted: {MEMORY_FORMS}.")
    if value < 1:
        raise _Unreadable(f"{text!r:.60}: memory must be more than 0. Accepted: {MEMORY_FORMS}.")
    return math.ceil(value)


def parse_runtime(text: str | float) -> float:
    """Seconds, whole ones as an int. `UsageError` (also a ValueError) names the accepted forms."""
    seconds = _seconds(text)
    if seconds is None:
        raise _Unreadable(f"{text!r:.60} is no length of time. Accepted: {RUNTIME_FORMS}.{_ambiguity(text)}")
    if seconds <= 0:
        raise _Unreadable(f"{text!r:.60}: a runtime must be more than 0. Accepted: {RUNTIME_FORMS}.")
    return int(seconds) if seconds == seconds.to_integral_value() else float(seconds)


def _seconds(text: object) -> Decimal | None:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return Decimal(repr(text)) if math.isfinite(text) else None
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    if re.fullmatch(_NUMBER, text, re.ASCII):
        return Decimal(text)
    if clock := _CLOCK.fullmatch(text):
        return Decimal(sum(int(part or 0) * unit for part, unit in zip(clock.groups(), _SECONDS, strict=True)))
    if span := _SPAN.fullmatch(text):
        return sum((Decimal(part or 0) * unit for part, unit in zip(span.groups(), _SECONDS, strict=True)), Decimal(0))
    return None


def _ambiguity(text: object) -> str:
    if isinstance(text, str) and re.fullmatch(r"\d+:\d\d?", text.strip(), re.ASCII):
        return f" {text.strip()} could be minutes or hours: write {text.strip()}:00 or a number with a unit (90s)."
    return ""


def format_memory(size: int) -> str:
    """The shortest exact form in a binary unit (`40G`, `1536M`), or a rounded one (`3.7G`) where that is long."""
    for unit in ("T", "G", "M", "K"):
        if size % _UNITS[unit] == 0 and size >= _UNITS[unit]:
            return f"{size // _UNITS[unit]}{unit}" if size // _UNITS[unit] < 10_000 else _rounded(size)
    return f"{size}B" if size < 10_000 else _rounded(size)


def _rounded(size: int) -> str:
    unit = next(unit for unit in ("T", "G", "M", "K") if size >= _UNITS[unit])
    return f"{size / _UNITS[unit]:.1f}{unit}".replace(".0", "")


def format_runtime(seconds: float) -> str:
    """`2h`, `10h30m`, `1d2h`, `90s` below two minutes, `1.5s` for fractions."""
    if seconds < 120 or seconds != int(seconds):
        return f"{seconds:g}s" if seconds < 1e6 else f"{seconds:.0f}s"
    rest, text = int(seconds), ""
    for unit, name in zip(_SECONDS, "dhms", strict=True):
        amount, rest = divmod(rest, unit)
        text += f"{amount}{name}" if amount else ""
    return text


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A task's resources with every unit resolved; None where nothing was asked for."""

    cores: int | None = None
    memory_bytes: int | None = None
    runtime_s: float | None = None
    gpus: int | None = None
    nodes: int | None = None
    queue: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, resources: Mapping[str, Any] | None) -> ResourceRequest:
        """From a task's `resources` after refs have been resolved. `UsageError` naming every wrong key."""
        resources = resources or {}
        faults = resource_faults(resources, refs_allowed=False)
        if faults:
            raise _Unreadable("; ".join(f"resources: {fault}" if not key else fault for key, fault in faults))
        memory, runtime = resources.get("memory"), resources.get("runtime")
        return cls(
            resources.get("cores"),
            None if memory is None else parse_memory(memory),
            None if runtime is None else parse_runtime(runtime),
            resources.get("gpus"),
            resources.get("nodes"),
            resources.get("queue"),
            resources.get("extra") or {},
        )


def is_ref(value: object) -> bool:
    """Whether a value is decided by an upstream task: `{$ref: probe, path: [mem]}`."""
    return isinstance(value, Mapping) and "$ref" in value


def has_refs(resources: Mapping[str, Any] | None) -> bool:
    """Whether an upstream task decides some of it, or all."""
    return bool(resources) and (is_ref(resources) or any(map(is_ref, (resources or {}).values())))


def resource_faults(resources: Mapping[str, Any], *, refs_allowed: bool = True) -> list[tuple[str, str]]:
    """(key, what is wrong with it) for every key of a task's `resources` that is."""
    if refs_allowed and is_ref(resources):
        return []
    faults = [(key, _resource_fault(key, value, refs_allowed)) for key, value in resources.items()]
    return [(key, fault) for key, fault in faults if fault]


def _resource_fault(key: str, value: Any, refs_allowed: bool) -> str | None:
    if key not in RESOURCES:
        return f"resources: {key!r} is not one of {', '.join(RESOURCES)}"
    if value is None or (refs_allowed and is_ref(value)):
        return None
    if key in ("memory", "runtime"):
        try:
            parse_memory(value) if key == "memory" else parse_runtime(value)
        except ValueError as error:
            return f"resources.{key}: {error}"
        return None
    if key == "extra":
        return None if isinstance(value, Mapping) else "resources.extra: must be a mapping"
    if key == "queue":
        return None if isinstance(value, str) and value.strip() else "resources.queue: must be the name of a queue"
    least = 0 if key == "gpus" else 1
    if type(value) is not int or value < least:
        return f"resources.{key}: found {value!r:.40}; allowed: a whole number from {least}"
    return None


def scale_faults(scales: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, what is wrong) for a task's `resource_scales`: a factor above 0, or a list of growing values."""
    faults = [(key, _scale_fault(key, value)) for key, value in scales.items()]
    return [(key, fault) for key, fault in faults if fault]


def _scale_fault(key: str, value: Any) -> str | None:
    scalable = ("cores", "memory", "runtime", "gpus", "nodes")
    if key not in scalable:
        return f"resource_scales: {key!r} is not one of {', '.join(scalable)}"
    if isinstance(value, list):
        return _list_fault(key, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        return f"resource_scales.{key}: found {value!r:.40}; allowed: a factor above 0, or a list of growing values"
    return None


def _list_fault(key: str, values: list[Any]) -> str | None:
    try:
        amounts = [_amount(key, value) for value in values]
    except ValueError as error:
        return f"resource_scales.{key}: {error}"
    if not amounts or any(later <= earlier for earlier, later in itertools.pairwise(amounts)):
        return f"resource_scales.{key}: a list of values must grow"
    return None


def _amount(key: str, value: Any) -> float:
    if key == "memory":
        return parse_memory(value)
    if key == "runtime":
        return parse_runtime(value)
    if type(value) is not int or value < 1:
        raise _Unreadable(f"found {value!r:.40}; allowed: a whole number from 1")
    return value
