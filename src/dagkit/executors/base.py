"""The executor port: make attempts run, report what became of them, find them again after a restart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind

__all__ = ["Executor"]


class Executor(Protocol):
    """Runs the tasks of one or more queues. Called by one thread (the coordinator's), except `interrupt`.

    Attributes:
        name: For people: `local`, `slurm`.
        reports_start: True if `poll` returns `Started` reports, so that timeouts count from the start of execution.

    An executor with `lives_on = True` is not asked to stop anything when its process ends: a scheduler has its jobs.
    """

    name: str
    reports_start: bool

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        """Take messages from the front of the list; returns how many were taken (the rest is offered again later).
        A message whose key is already in flight is taken and changes nothing. `BackendError` if the service fails."""
        ...

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """What happened since the last poll, in order; waits at most `wait_s` for something to happen."""
        ...

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """These are saved; the executor may forget them (delete messages and files). The coordinator's thread."""
        ...

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        """Stop these attempts: what runs is terminated (SIGTERM, then SIGKILL), what waits is dropped. Each is reported
        by `poll` as a failure of `kind`, unless it ended by itself first. Unknown keys are ignored."""
        ...

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """After a restart: these were running by the saved state. Adopt what can be found; return a failure of kind
        `lost` for each attempt that is certainly gone."""
        ...

    def capacity(self) -> int | None:
        """How many more messages `submit` would take now; None for no limit."""
        ...

    def interrupt(self) -> None:
        """Make a `poll` that waits return at once. Thread-safe."""
        ...

    def close(self, grace_s: float = 5.0) -> None:
        """Stop everything that would be lost anyway and release resources; jobs that live on their own go on."""
        ...
