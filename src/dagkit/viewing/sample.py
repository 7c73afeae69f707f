"""How long the tasks of each group take and how much they use: of some of them, where there are many."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagkit.model.records import RunRow
from dagkit.model.states import TaskState
from dagkit.rows import TaskRow, task_row
from dagkit.viewing.pace import Allowance
from dagkit.viewing.snapshot import is_over

if TYPE_CHECKING:
    from dagkit.notebook.picture import Box
    from dagkit.run import Run

__all__ = ["GroupUsage", "Sample"]

_TASKS: Final = 600
_LEAST_EACH: Final = 3
_LEAST_WALL_S: Final = 1.0
"""Processor time is counted in ticks of 10 ms: of less than a second together it says nothing."""


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What tasks of a group took; None where nobody measured it.

    Attributes:
        measured: How many completed tasks this is from.
        median_s, longest_s: Wall time of the last attempt.
        peak_bytes: The most memory that any attempt held.
        asked: What most of them asked for (`memory 40G, cores 4`); empty if nothing.
        cores: CPU seconds a second: how many cores were busy.
        wait_s: Median wait between being handed over and beginning.
    """

    measured: int = 0
    median_s: float | None = None
    longest_s: float | None = None
    peak_bytes: float | None = None
    asked: str = ""
    cores: float | None = None
    wait_s: float | None = None


_NOTHING: Final = GroupUsage()


class Sample:
    """Usage by group, refreshed within an allowance and from about six hundred tasks."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._found: dict[str, GroupUsage] = {}
        self._as_of: object = None
        self.version = 0

    def of(self, group: str) -> GroupUsage:
        return self._found.get(group, _NOTHING)

    def refresh(self, run: Run, boxes: Sequence[Box], row: RunRow) -> None:
        """Look again at the chosen tasks if more have ended since."""
        as_of = (row.counts.completed, row.counts.failed, row.status)
        if not any(as_of[:2]) or as_of == self._as_of or not (self._allowance.is_due or is_over(row)):
            return
        with self._allowance.spending():
            each = max(_LEAST_EACH, _TASKS // max(1, len(boxes)))
            chosen = {box.key: _spread(box.members, each) for box in boxes}
            entries = run.store.task_entries(run.id, [name for names in chosen.values() for name in names])
            self._found = {key: _usage(run, names, entries) for key, names in chosen.items()}
            self._as_of, self.version = as_of, self.version + 1


def _spread(names: Sequence[str], most: int) -> Sequence[str]:
    """At most so many names, from all over."""
    return names if len(names) <= most else [names[i * len(names) // most] for i in range(most)]


def _usage(run: Run, names: Sequence[str], entries: dict[str, dict[str, Any]]) -> GroupUsage:
    rows = [task_row(run.spec, run.spec.index[name], entries[name]) for name in names if name in entries]
    done = [row for row in rows if row.state is TaskState.COMPLETED]
    times = [row.duration_s for row in done if row.duration_s is not None]
    waits = [row.wait_s for row in rows if row.wait_s is not None]
    asked = Counter([row.asks_for for row in rows]).most_common(1)
    return GroupUsage(
        measured=len(done),
        median_s=statistics.median(times) if times else None,
        longest_s=max(times, default=None),
        peak_bytes=max((peak for row in rows for peak in _peaks(row)), default=None),
        asked=asked[0][0] if asked else "",
        cores=_cores(done),
        wait_s=statistics.median(waits) if waits else None,
    )


def _peaks(row: TaskRow) -> list[float]:
    """Of the last attempt and of those before it."""
    return [used["peak_rss_bytes"] for used in (row.usage, *row.past) if used.get("peak_rss_bytes")]


def _cores(rows: Sequence[TaskRow]) -> float | None:
    measured = [(row.usage["cpu_s"], row.duration_s) for row in rows if "cpu_s" in row.usage and row.duration_s]
    wall_s = sum(wall for _, wall in measured if wall)
    return sum(cpu for cpu, _ in measured) / wall_s if wall_s >= _LEAST_WALL_S else None
