"""How long the tasks of each group take and how much memory: of some of them, where there are many."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dagkit.model.records import RunRow
from dagkit.rows import task_row
from dagkit.viewing.pace import Allowance
from dagkit.viewing.snapshot import is_over

if TYPE_CHECKING:
    from dagkit.notebook.picture import Box
    from dagkit.run import Run

__all__ = ["Sample"]

_TASKS: Final = 600
_LEAST_EACH: Final = 3

Usage = tuple[float | None, float | None]


class Sample:
    """Median seconds and peak bytes by group, refreshed within an allowance and from about six hundred tasks."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._found: dict[str, Usage] = {}
        self._as_of: object = None
        self.version = 0

    def of(self, group: str) -> Usage:
        return self._found.get(group, (None, None))

    def refresh(self, run: Run, boxes: Sequence[Box], row: RunRow) -> None:
        """Look again at the chosen tasks if more have completed since."""
        as_of = (row.counts.completed, row.status)
        if not row.counts.completed or as_of == self._as_of or not (self._allowance.is_due or is_over(row)):
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


def _usage(run: Run, names: Sequence[str], entries: dict[str, dict[str, Any]]) -> Usage:
    rows = [task_row(run.spec, run.spec.index[name], entries[name]) for name in names if name in entries]
    times = [row.duration_s for row in rows if row.state == "completed" and row.duration_s is not None]
    peaks = [row.usage["peak_rss_bytes"] for row in rows if row.usage.get("peak_rss_bytes")]
    return statistics.median(times) if times else None, max(peaks, default=None)
