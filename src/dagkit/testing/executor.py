"""An executor whose tasks end when the test says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind

__all__ = ["FakeExecutor"]


class FakeExecutor:
    """Takes messages and keeps them until `succeed`, `fail` or `cancel`.

    Attributes:
        submitted: Every message ever taken, in order.
        running: Those that have not been reported, by key.
        acknowledged: Completions that the coordinator has saved.
        room: How many may run at once; None for no limit.
    """

    def __init__(self, *, room: int | None = None, reports_start: bool = False, name: str = "fake") -> None:
        self.name, self.reports_start, self.room = name, reports_start, room
        self.submitted: list[TaskMessage] = []
        self.running: dict[AttemptKey, TaskMessage] = {}
        self.acknowledged: list[Completion] = []
        self.recovered: list[TaskMessage] = []
        self.survivors: set[AttemptKey] = set()
        self.is_closed = False
        self._reports: list[Completion | Started] = []

    # --- the test's side

    def succeed(self, task: str, output_ref: str | None = None) -> Completion:
        """Report the running attempt of a task as a success."""
        return self._report(task, success=True, output_ref=output_ref)

    def fail(self, task: str, error: str = "ValueError: no", kind: FailureKind = FailureKind.USER) -> Completion:
        """Report the running attempt of a task as a failure."""
        return self._report(task, success=False, error=error, kind=kind)

    def begin(self, task: str, at: float) -> None:
        """Report that the running attempt of a task has begun."""
        message = next(message for message in self.running.values() if message.task == task)
        self._reports.append(Started(message.workflow_id, task, message.generation, message.attempt, at))

    def repeat(self, completions: Iterable[Completion]) -> None:
        """Report the same completions again, as an at-least-once service does."""
        self._reports += completions

    def tasks_running(self) -> list[str]:
        return sorted(message.task for message in self.running.values())

    def _report(self, task: str, **outcome: Any) -> Completion:
        message = next(message for message in self.running.values() if message.task == task)
        del self.running[message.key]
        completion = Completion(
            message.workflow_id, task, attempt=message.attempt, generation=message.generation, **outcome
        )
        self._reports.append(completion)
        return completion

    # --- the port

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        taken = 0
        for message in messages:
            if message.key not in self.running:
                if self.room is not None and len(self.running) >= self.room:
                    break
                self.running[message.key] = message
                self.submitted.append(message)
            taken += 1
        return taken

    def poll(self, wait_s: float) -> list[Completion | Started]:
        reports, self._reports = self._reports, []
        return reports

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        self.acknowledged += completions

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        for key in keys:
            if key in self.running:
                self.fail(key.task, f"stopped: {kind}", kind)

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        self.recovered += running
        lost = []
        for message in running:
            if message.key in self.survivors:
                self.running[message.key] = message
            else:
                key = message.key
                lost.append(
                    Completion(
                        key.workflow_id,
                        key.task,
                        False,
                        error="the worker is gone",
                        attempt=key.attempt,
                        generation=key.generation,
                        kind=FailureKind.LOST,
                    )
                )
        return lost

    def capacity(self) -> int | None:
        return None if self.room is None else max(0, self.room - len(self.running))

    def interrupt(self) -> None:
        return None

    def close(self, grace_s: float = 5.0) -> None:
        self.is_closed = True
