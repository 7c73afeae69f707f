"""One task of a run as people and programs read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState

__all__ = ["TaskRow", "seconds_of", "task_row"]


@dataclass(frozen=True)
class TaskRow:
    """One task of a run as it stands. Times are seconds since the epoch, None until they happened.

    Attributes:
        resources: What its last attempt asked for, or the next one will.
        past: The attempts before it, the latest ten: attempt, kind, what each used, and asked for where that differed.
    """

    name: str
    state: TaskState
    attempt: int
    max_attempts: int
    queue: str
    template: str
    depends_on: tuple[str, ...]
    started_at: float | None
    completed_at: float | None
    error: str
    kind: str | None
    output_ref: str | None
    generation: int
    usage: dict[str, Any]
    resources: dict[str, Any] = field(default_factory=dict)
    past: tuple[dict[str, Any], ...] = ()

    @property
    def duration_s(self) -> float | None:
        """Wall time of the last attempt, measured where it ran; None if it has not ended."""
        if "wall_s" in self.usage:
            return float(self.usage["wall_s"])
        if self.started_at is None or self.completed_at is None:
            return None
        return self.completed_at - self.started_at

    @property
    def asks_for(self) -> str:
        """`memory 40G, cores 4`; what an upstream task decides is `?` until it has."""
        return ", ".join(
            f"{key} {'?' if isinstance(value, Mapping) else value}" for key, value in self.resources.items()
        )

    @property
    def wait_s(self) -> float | None:
        """How long the last attempt waited between being handed over and beginning; None if that is not known."""
        return float(self.usage.get("wait_s", 0.0)) if "started_at" in self.usage else None

    @property
    def log_key(self) -> str:
        return f"{self.generation}.{self.attempt}"


def task_row(spec: WorkflowSpec, index: int, entry: dict[str, Any]) -> TaskRow:
    """The row of the task at `index`, from its state entry (empty: everything at its default)."""
    task = spec.tasks[index]
    return TaskRow(
        name=task.name,
        state=TaskState(entry.get("state", "pending")),
        attempt=entry.get("attempt_no", 0),
        max_attempts=task.num_retries + 1 + entry.get("uncharged", 0),
        queue=entry.get("queue") or spec.queue_of(task),
        template=task.template or task.name,
        depends_on=task.depends_on,
        started_at=seconds_of(entry.get("started_at")),
        completed_at=seconds_of(entry.get("completed_at")),
        error=entry.get("error") or "",
        kind=entry.get("kind"),
        output_ref=entry.get("output_ref"),
        generation=entry.get("generation", 0),
        usage=entry.get("usage") or {},
        resources=entry.get("resources") or task.resources or {},
        past=tuple(entry.get("past") or ()),
    )


def seconds_of(stamp: Any) -> float | None:
    """Times are ISO 8601 in documents of ai4s-jobq and seconds in ours."""
    if stamp is None or isinstance(stamp, (int, float)):
        return stamp
    return datetime.fromisoformat(stamp).timestamp()
