"""What passes between the engine, the stores and the faces: changes of state, index rows, counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dagkit.model.states import RunStatus, TaskState

__all__ = ["Counts", "RunRow", "StateChanges"]


@dataclass(slots=True)
class Counts:
    """How many tasks of a run are in each state."""

    completed: int = 0
    failed: int = 0
    upstream_failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    running: int = 0
    ready: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        return self.ended + self.running + self.ready + self.pending

    @property
    def ended(self) -> int:
        """Tasks in a terminal state."""
        return self.completed + self.failed + self.upstream_failed + self.skipped + self.cancelled

    def of(self, state: TaskState) -> int:
        return int(getattr(self, state.value))

    def grouped(self) -> dict[str, int]:
        """The numbers of the index row: failed = failed + upstream_failed + cancelled, pending = pending + ready."""
        return {
            "total": self.total,
            "completed": self.completed,
            "running": self.running,
            "failed": self.failed + self.upstream_failed + self.cancelled,
            "pending": self.pending + self.ready,
            "skipped": self.skipped,
        }


@dataclass(slots=True)
class StateChanges:
    """What changed in a run since the last save.

    Attributes:
        head: The top-level keys of the state document other than `tasks` (facts: jobq 7.3), all of them.
        tasks: (index, name, entry) of every task that changed; the entry is the task's whole compact document,
            `{}` if everything is at its default. It replaces what was stored.
        counts: The run's counts after the change.
        groups: For those who look at the run, as in `RunRow.extra`; a store need not keep it.
        document: Builds the whole state document as of the moment the changes were taken, for stores that write all.
    """

    head: dict[str, Any]
    tasks: list[tuple[int, str, dict[str, Any]]]
    counts: Counts
    document: Callable[[], dict[str, Any]]
    groups: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class RunRow:
    """One line of the index: a run at a glance. Derived, never authoritative, but for `cancel_requested`.

    Times are seconds since the epoch by the store's clock.
    """

    workflow_id: str
    name: str
    status: RunStatus | str
    counts: Counts
    created_at: float
    updated_at: float
    default_queue: str = "default"
    queues_used: tuple[str, ...] = ()
    cancel_requested: bool = False
    error: str = ""
    driven_by: str | None = None
    """Who holds the run's lease, in words (`notebook (host-a)`); None if nobody does."""
    extra: dict[str, Any] = field(default_factory=dict)
    """`groups`: tasks of each template by state (pending, ready, running, completed, failed, upstream failed, skipped,
    cancelled), where the store keeps that; in the row of one run, not in listings."""
