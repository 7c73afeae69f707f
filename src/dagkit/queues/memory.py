"""Queues that live and die with their process: for tests, and for workers that are threads."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dagkit.queues.base import Delivery, OutMessage, Queue, QueueStats
from dagkit.queues.limits import check_sizes

__all__ = ["MemoryTransport"]

_LONGEST_PAUSE_S = 0.05


class MemoryTransport:
    """Queues in this process's memory. Thread-safe.

    Args:
        clock: Seconds; what locks and delays are judged by.
    """

    url = "memory:"

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._changed = threading.Condition()
        self._queues: dict[str, MemoryQueue] = {}
        self._workers: dict[tuple[str, str], float] = {}

    def open(self, name: str) -> Queue:
        with self._changed:
            return self._queues.setdefault(name, MemoryQueue(name, self.clock, self._changed))

    def names(self) -> list[str]:
        with self._changed:
            return sorted(self._queues)

    def register_worker(self, queue: str, owner: str, ttl_s: float) -> None:
        with self._changed:
            self._workers[queue, owner] = self.clock() + ttl_s

    def workers(self, queue: str) -> list[str] | None:
        now = self.clock()
        with self._changed:
            return sorted(owner for (name, owner), end in self._workers.items() if name == queue and end > now)

    def check(self) -> list[tuple[str, str, str]]:
        """Nothing: the check of the store says it."""
        return []

    def close(self) -> None:
        """Wake whoever is waiting for a message; they receive nothing. Repeatable."""
        with self._changed:
            for queue in self._queues.values():
                queue.is_closed = True
            self._changed.notify_all()


@dataclass(slots=True)
class _Message:
    id: str
    text: str
    sent_at: float
    visible_at: float = 0.0
    hidden_s: float = 0.0
    token: str | None = None
    count: int = 0


class MemoryQueue:
    """One queue of a `MemoryTransport`. A message whose id is still in the queue, locked or not, is not sent again."""

    max_text_bytes = 16 << 20

    def __init__(self, name: str, clock: Callable[[], float], changed: threading.Condition) -> None:
        self.name, self.is_closed = name, False
        self._clock, self._changed = clock, changed
        self._messages: dict[str, _Message] = {}

    def __repr__(self) -> str:
        return f"MemoryQueue({self.name!r})"

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        check_sizes(messages, self.max_text_bytes)
        with self._changed:
            for message in messages:
                self._messages.setdefault(message.id, _Message(message.id, message.text, self._clock()))
            self._changed.notify_all()

    def receive(self, max_messages: int, wait_s: float, lock_s: float) -> list[Delivery]:
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                if taken := self._take(max_messages, lock_s):
                    return taken
                left = deadline - time.monotonic()
                if left <= 0 or self.is_closed:
                    return []
                self._changed.wait(min(left, _LONGEST_PAUSE_S))  # a lock that runs out notifies nobody

    def _take(self, max_messages: int, lock_s: float) -> list[Delivery]:
        now, locked_until = self._clock(), time.monotonic() + lock_s
        taken: list[Delivery] = []
        for message in self._messages.values():
            if len(taken) == max_messages:
                break
            message.visible_at = min(message.visible_at, now + message.hidden_s)  # the clock may have been set back
            if message.visible_at <= now:
                message.visible_at, message.hidden_s, message.token = now + lock_s, lock_s, secrets.token_hex(8)
                message.count += 1
                taken.append(Delivery(message.id, message.text, message.token, locked_until, message.count))
        return taken

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        with self._changed:
            for delivery in deliveries:
                if self._locked(delivery):
                    del self._messages[delivery.id]

    def abandon(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        with self._changed:
            for delivery in deliveries:
                if message := self._locked(delivery):
                    message.token = None
                    message.visible_at, message.hidden_s = self._clock() + max(delay_s, 0.0), max(delay_s, 0.0)
            self._changed.notify_all()

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        with self._changed:
            message = self._locked(delivery)
            if message is None:
                return None
            message.visible_at, message.hidden_s = self._clock() + lock_s, lock_s
            return Delivery(message.id, message.text, message.token, time.monotonic() + lock_s, message.count)

    def _locked(self, delivery: Delivery) -> _Message | None:
        message = self._messages.get(delivery.id)
        return message if message and message.token == delivery.receipt else None

    def stats(self) -> QueueStats:
        now = self._clock()
        with self._changed:
            waiting = [one for one in self._messages.values() if one.token is None or one.visible_at <= now]
            oldest = min((one.sent_at for one in waiting), default=None)
            locked = len(self._messages) - len(waiting)
        return QueueStats(self.name, len(waiting), locked, None if oldest is None else max(0.0, now - oldest))

    def close(self) -> None:
        """Nothing to close: the transport owns the messages."""
