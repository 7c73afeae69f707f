"""Tasks as messages on queues, run by `dagkit worker` processes; completions come back on a queue of their own.

Delivery is at least once in both directions. A completion is deleted only when the state that contains it is saved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from dagkit.azure.place import Place
from dagkit.errors import BackendError, ConfigError, PayloadTooLarge, UsageError
from dagkit.model.messages import AttemptKey, Completion, PoisonMessage, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues.base import Delivery, OutMessage, Queue, Transport
from dagkit.stores.base import Store

__all__ = ["QueuedExecutor", "completion_queue_name"]

log = logging.getLogger(__name__)

_SLICE_S = 0.2
_SENT_AT_A_TIME = 256
_OTHERS_DELAY_S = 1.0
_OTHERS_DELIVERIES = 20


def completion_queue_name(store_url: str) -> str:
    """The queue on which the completions of a store's runs are reported (facts: jobq 7.1)."""
    if store_url.startswith("azure:"):
        return Place.parse(store_url).names.completion_queue
    return "workflow-completions"


class QueuedExecutor:
    """Sends attempts to the queues they name and takes completions from the completion queue of the store.

    Workers see a cancel request in the store themselves, so `cancel` has nothing to send. After a restart there is
    nothing to find again either: what was saved as running is on a queue, at a worker, or reported already.

    Attributes:
        counters: `sent`, `orphans`, `poison`, `put_back` (completions of runs that another coordinator drives).
    """

    name = "queued"
    reports_start = False
    lives_on = True

    def __init__(self, store: Store, transport: Transport, *, batch_size: int = 32, lock_s: float = 60.0) -> None:
        self.counters: Counter[str] = Counter()
        self._store, self._transport = store, transport
        self._batch_size, self._lock_s = batch_size, lock_s
        self._queues: dict[str, Queue] = {}
        self._completions = transport.open(completion_queue_name(store.url))
        self._in_flight: set[AttemptKey] = set()
        self._own_runs: set[str] = set()
        self._refused: list[Completion | Started] = []
        self._interrupted = threading.Event()
        self._acknowledger = ThreadPoolExecutor(1, thread_name_prefix="dagkit-acknowledge")

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        """Send to every queue concerned. A queue that fails holds up its own tasks; what stands behind them is sent."""
        by_queue: dict[str, list[tuple[int, TaskMessage]]] = {}
        for place, message in enumerate(messages):
            if message.key not in self._in_flight:
                by_queue.setdefault(message.queue, []).append((place, message))
        taken, failure = len(messages), None
        for queue, group in by_queue.items():
            try:
                self._send(queue, [message for _, message in group])
            except BackendError as error:
                log.warning("queue %s: %s", queue, error)
                taken, failure = min(taken, group[0][0]), error
            except ConfigError as error:  # the service will never take this queue: trying again cannot help
                for _, message in group:
                    self._refuse(message, error)
        if failure is not None and taken == 0:
            raise failure
        return taken

    def _send(self, name: str, messages: Sequence[TaskMessage]) -> None:
        queue = self._open(name)
        fitting = [(message, text) for message in messages if (text := self._fit(message, queue)) is not None]
        queue.send_batch([OutMessage(message.id, text) for message, text in fitting])
        self._in_flight.update(message.key for message in messages)
        self._own_runs.update(message.workflow_id for message in messages)
        self.counters["sent"] += len(fitting)

    def _fit(self, message: TaskMessage, queue: Queue) -> str | None:
        """The text to send; None if no way was found to make it small enough, which fails the attempt instead."""

        def keep(path: str, data: bytes) -> str:
            return self._store.put_output(message.workflow_id, path, data)

        try:
            return message.text_within(queue.max_text_bytes, keep)
        except PayloadTooLarge as error:
            self._refuse(message, error)
            return None

    def _refuse(self, message: TaskMessage, error: UsageError) -> None:
        """Fail the attempt."""
        refused = Completion(message.workflow_id, message.task, False, error=str(error), kind=FailureKind.CONFIG)
        refused.attempt, refused.generation = message.attempt, message.generation
        self._refused.append(refused)

    def _open(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._transport.open(name)
        return self._queues[name]

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """Completions that arrived; unreadable ones are deleted and counted, those of foreign runs are put back."""
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        deadline = time.monotonic() + wait_s
        while True:
            left = deadline - time.monotonic()
            deliveries = self._completions.receive(self._batch_size, max(0.0, min(left, _SLICE_S)), self._lock_s)
            if reports := self._read(deliveries):
                return reports
            if self._interrupted.is_set() or left <= _SLICE_S:
                self._interrupted.clear()
                return []

    def _read(self, deliveries: Sequence[Delivery]) -> list[Completion | Started]:
        reports: list[Completion | Started] = []
        for delivery in deliveries:
            try:
                completion = Completion.from_text(delivery.text)
            except PoisonMessage as error:
                self.counters["poison"] += 1
                log.warning("deleted a completion that cannot be read: %s", error)
                self._completions.complete([delivery])
                continue
            if self._is_foreign(completion, delivery):
                self.counters["put_back"] += 1
                self._completions.abandon([delivery], _OTHERS_DELAY_S)
                continue
            completion.receipt = delivery
            reports.append(completion)
        return reports

    def _is_foreign(self, completion: Completion, delivery: Delivery) -> bool:
        """Whether another coordinator should see it. Bounded, so that a run nobody drives cannot keep it for ever."""
        if completion.workflow_id in self._own_runs or delivery.count > _OTHERS_DELIVERIES:
            return False
        return self._store.lease(f"run/{completion.workflow_id}") is not None

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """Delete the messages of completions that are saved, or that turned out to concern nobody.

        In a thread of its own, as a service takes a request for each; one that fails comes again and is ignored.
        """
        if done := [c.receipt for c in completions if isinstance(c.receipt, Delivery)]:
            self._acknowledger.submit(self._delete, done)
        for completion in completions:
            generation, attempt = completion.generation or 0, completion.attempt or 0
            self._in_flight.discard(AttemptKey(completion.workflow_id, completion.task, generation, attempt))

    def _delete(self, deliveries: Sequence[Delivery]) -> None:
        try:
            self._completions.complete(deliveries)
        except BackendError as error:
            log.warning("%d completions could not be deleted and will come again: %s", len(deliveries), error)

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        """Nothing is sent: workers look at the store's cancel flag and at attempts that were given up."""
        self._in_flight.difference_update(keys)

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """Nothing is lost: sending comes before saving, so what is running by the state was sent."""
        self._in_flight.update(message.key for message in running)
        self._own_runs.update(message.workflow_id for message in running)
        return []

    def capacity(self) -> int | None:
        """As many as a step should send: completions, leases and cancel requests wait meanwhile."""
        return _SENT_AT_A_TIME

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self, grace_s: float = 5.0) -> None:
        """Close the queues; messages and workers go on without this process."""
        self._acknowledger.shutdown()
        for queue in (*self._queues.values(), self._completions):
            queue.close()
        self._transport.close()
