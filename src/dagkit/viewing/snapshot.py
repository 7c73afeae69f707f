"""A run at one moment: bounded, whatever the number of tasks."""

from __future__ import annotations

from dataclasses import dataclass

from dagkit.model.records import Counts, RunRow
from dagkit.model.states import RunStatus
from dagkit.rows import TaskRow

__all__ = ["GroupView", "Snapshot"]


@dataclass(frozen=True, slots=True)
class GroupView:
    """Tasks that are shown as one box or line.

    Attributes:
        key: Stable between snapshots; what a `Filter` selects by.
        size: How many tasks there are; `counts` may sum to less while the run is read for the first time.
        waits: What it needs before it begins, in words (`needs any 100 of 128`); empty once it has begun.
        median_s, peak_bytes: Of the tasks that completed, of some of them where there are many; None if none has.
    """

    key: str
    title: str
    size: int
    queue: str
    counts: Counts
    waits: str = ""
    median_s: float | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to see.

    Attributes:
        groups: In definition order; at most about 300.
        failures: Tasks whose attempts are used up, newest first; at most 20.
        rate: Tasks that ended a second, lately; None when nothing did, or the run is over.
        driven_by: Who drives the run, in words; None if nobody does.
        now: By the store's clock.
        mark: Grows whenever something that is shown has changed.
    """

    row: RunRow
    groups: tuple[GroupView, ...]
    failures: tuple[TaskRow, ...]
    rate: float | None
    driven_by: str | None
    now: float
    mark: int

    @property
    def is_over(self) -> bool:
        return is_over(self.row)

    @property
    def elapsed_s(self) -> float:
        return max(0.0, (self.row.updated_at if self.is_over else self.now) - self.row.created_at)

    @property
    def left_s(self) -> float | None:
        """Seconds until the rest has ended at this rate; None if nobody can tell."""
        return (self.row.counts.total - self.row.counts.ended) / self.rate if self.rate else None

    @property
    def age_s(self) -> float:
        """How long ago the run's state was last written."""
        return max(0.0, self.now - self.row.updated_at)


def is_over(row: RunRow) -> bool:
    """Whether the run of a row has ended; a status that dagkit does not know has not."""
    return isinstance(row.status, RunStatus) and row.status.is_over
