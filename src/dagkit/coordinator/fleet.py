"""The executors behind the queues, as one thing to poll, cancel and acknowledge."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dagkit.errors import BackendError
from dagkit.executors.base import Executor
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind

if TYPE_CHECKING:
    from dagkit.coordinator.drive import Drive

__all__ = ["Fleet"]

log = logging.getLogger("dagkit.coordinator")

T = TypeVar("T")

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S, _AFTER_FAILURE_S = 0.001, 0.05, 0.5


class Fleet:
    """Executors by queue, made when a queue is first used. One thread's, but for `interrupt`."""

    def __init__(self, route: Callable[[str], Executor]) -> None:
        self._route, self._by_queue = route, dict[str, Executor]()
        self._distinct: list[Executor] = []
        self._interrupted = threading.Event()

    def of(self, queue: str) -> Executor:
        """The executor of a queue."""
        executor = self._by_queue.get(queue)
        if executor is None:
            executor = self._by_queue[queue] = self._route(queue)
            if all(known is not executor for known in self._distinct):
                self._distinct = [*self._distinct, executor]
        return executor

    def reports_start(self, queue: str) -> bool:
        return self.of(queue).reports_start

    def grouped(self, items: Iterable[T], queue_of: Callable[[T], str]) -> list[tuple[Executor, list[T]]]:
        """Items by the executor of their queue, in order."""
        if len(self._distinct) == 1:
            concerned = list(items)
            queues = {queue_of(item) for item in concerned}
            if all(queue in self._by_queue for queue in queues):
                return [(self._distinct[0], concerned)] if concerned else []
            items = concerned
        groups: dict[int, tuple[Executor, list[T]]] = {}
        for item in items:
            executor = self.of(queue_of(item))
            groups.setdefault(id(executor), (executor, []))[1].append(item)
        return list(groups.values())

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """What happened anywhere, waiting at most `wait_s` for something to happen or for `interrupt`."""
        if len(self._distinct) == 1:
            return self._poll_one(self._distinct[0], wait_s)
        deadline, pause = time.monotonic() + wait_s, _SHORTEST_PAUSE_S
        while True:
            reports = [report for executor in self._distinct for report in self._poll_one(executor, 0.0)]
            left = deadline - time.monotonic()
            if reports or left <= 0:
                return reports
            if self._interrupted.wait(min(pause, left)):
                self._interrupted.clear()
                return reports
            pause = min(_LONGEST_PAUSE_S, pause * 1.5)

    def _poll_one(self, executor: Executor, wait_s: float) -> list[Completion | Started]:
        try:
            return executor.poll(wait_s)
        except BackendError as error:
            log.warning("%s: %s", executor.name, error)
            self._interrupted.wait(min(wait_s, _AFTER_FAILURE_S))
            return []

    def interrupt(self) -> None:
        """Make a `poll` that waits return. Any thread."""
        self._interrupted.set()
        for executor in self._distinct:
            executor.interrupt()

    def cancel(self, keys: Sequence[AttemptKey], kind: FailureKind, queue_of: Callable[[str], str]) -> None:
        """Stop these attempts; see `Executor.cancel`."""
        for executor, concerned in self.grouped(keys, lambda key: queue_of(key.task)):
            executor.cancel(concerned, kind)

    def lost_with_us(self, drive: Drive) -> list[AttemptKey]:
        """Attempts in flight that end with this process; jobs of a scheduler go on, and are found again."""
        return [key for key in drive.in_flight() if not getattr(self.of(drive.queue_of(key.task)), "lives_on", False)]

    def acknowledge(self, completions: Sequence[Completion], queue_of: Callable[[str], str]) -> None:
        if len(self._distinct) == 1:  # nobody else can have reported them
            self._distinct[0].acknowledge(completions)
            return
        for executor, concerned in self.grouped(completions, lambda completion: queue_of(completion.task)):
            executor.acknowledge(concerned)

    def acknowledge_orphan(self, completion: Completion) -> None:
        """A completion of a run that nobody drives here: no executor should bring it again."""
        for executor in self._distinct:
            executor.acknowledge([completion])

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """Completions of attempts that are certainly lost; see `Executor.recover`."""
        groups = self.grouped(running, lambda message: message.queue)
        return [lost for executor, messages in groups for lost in executor.recover(messages)]
