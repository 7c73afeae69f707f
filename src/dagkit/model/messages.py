"""Task messages and completions: what travels between the coordinator, the executors and the workers.

The text forms are those of ai4s-jobq (facts: jobq, section 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dagkit.model.states import FailureKind

__all__ = ["AttemptKey", "Completion", "Started", "TaskMessage"]


class AttemptKey(NamedTuple):
    """Identifies one attempt of one task, for ever."""

    workflow_id: str
    task: str
    generation: int
    attempt: int


@dataclass(slots=True)
class TaskMessage:
    """One attempt of one task, ready to be run.

    Attributes:
        kwargs: The task's own kwargs (`cmd`, `env`, `cwd` or `call`), without any `__` key.
        upstream: Output ref of every direct parent in order; None for a parent without an output.
        timeout_s: Limit for the execution; enforced by the coordinator, carried for executors that can pass it on.
    """

    workflow_id: str
    task: str
    attempt: int
    generation: int
    queue: str
    kwargs: dict[str, Any]
    upstream: dict[str, str | None] = field(default_factory=dict)
    timeout_s: int | None = None
    template: str = ""
    resources: dict[str, Any] | None = None
    priority: int = 0

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.workflow_id, self.task, self.generation, self.attempt)

    @property
    def id(self) -> str:
        """`W/<task>/<attempt>`, with `<generation>.` before the attempt after a user retry (facts: jobq 8.2)."""
        attempt = f"{self.generation}.{self.attempt}" if self.generation else str(self.attempt)
        return f"{self.workflow_id}/{self.task}/{attempt}"


@dataclass(slots=True)
class Completion:
    """A worker's report of one attempt.

    Attributes:
        attempt: From 1; None from workers that do not know it. Likewise generation.
        output_ref: Inline JSON text, or `blob:<path>`; None for no output.
        error: First line what went wrong (`ValueError: no such file`), then the traceback if there is one.
        kind: Why it failed; None if the worker does not say.
        usage: Measured by whoever ran it: wall_s, cpu_s, peak_rss_bytes, started_at, host, pid, exit_code, signal; any may be missing.
    """

    workflow_id: str
    task: str
    success: bool
    output_ref: str | None = None
    error: str | None = None
    attempt: int | None = None
    generation: int | None = None
    kind: FailureKind | None = None
    usage: dict[str, Any] | None = None
    receipt: Any = None
    """Whatever the executor needs to acknowledge it; never stored."""


@dataclass(slots=True)
class Started:
    """An executor's report that an attempt began executing at `at` (seconds since the epoch)."""

    workflow_id: str
    task: str
    generation: int
    attempt: int
    at: float
