"""What tasks will need, from what tasks like them have used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagkit.model.resources import format_memory, format_runtime
from dagkit.model.states import TaskState

if TYPE_CHECKING:
    from dagkit.rows import TaskRow

__all__ = ["percentile_of", "suggestions"]

_MIB: Final = 1 << 20
_LEAST_BYTES: Final = 64 * _MIB
_LEAST_S: Final = 60


def suggestions(rows: Iterable[TaskRow], *, margin: float, percentile: float) -> dict[str, dict[str, Any]]:
    """Resources by template; see `Run.resources`. ValueError for what is no percentile or no margin."""
    if not 0 <= percentile <= 100 or not 0 <= margin < 100:
        raise ValueError(f"percentile {percentile}, margin {margin}: allowed are 0 to 100, and 0 or more")
    groups: dict[str, list[TaskRow]] = {}
    for row in rows:
        if row.state is TaskState.COMPLETED:
            groups.setdefault(row.template, []).append(row)
    found = {name: _suggestion(members, 1 + margin, percentile) for name, members in groups.items()}
    return {name: suggestion for name, suggestion in found.items() if suggestion}


def _suggestion(members: Sequence[TaskRow], factor: float, percentile: float) -> dict[str, Any]:
    peaks = [float(m.usage["peak_rss_bytes"]) for m in members if "peak_rss_bytes" in m.usage]
    times = [m.duration_s for m in members if m.duration_s is not None]
    suggestion: dict[str, Any] = {}
    if peaks:
        suggestion["memory"] = format_memory(_round_bytes(percentile_of(peaks, percentile) * factor))
    if times:
        suggestion["runtime"] = format_runtime(_round_seconds(percentile_of(times, percentile) * factor))
    cores = max((m.resources["cores"] for m in members if type(m.resources.get("cores")) is int), default=None)
    if suggestion and cores is not None:
        suggestion["cores"] = cores
    if suggestion:
        suggestion["queue"] = members[-1].queue
    return suggestion


def percentile_of(values: Sequence[float], percentile: float) -> float:
    """The smallest value that at least this percentage of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * percentile / 100)) - 1]


def _round_bytes(size: float) -> int:
    """Up, to a whole binary unit, or a quarter of one below ten of them; to no less than 64 MiB."""
    size = max(size, _LEAST_BYTES)
    unit = next(unit for unit in (1 << 40, 1 << 30, _MIB) if size >= unit)
    step = unit // 4 if size < 10 * unit else unit
    return math.ceil(size / step) * step


def _round_seconds(seconds: float) -> int:
    """Up, to a whole minute below an hour and to a quarter of an hour above."""
    step = 60 if seconds <= 3600 else 900
    return max(_LEAST_S, math.ceil(seconds / step) * step)
