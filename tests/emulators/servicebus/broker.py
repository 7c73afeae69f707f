"""Queues and their messages: locks, counts, duplicates, schedules, dead letters. No network; time is an argument."""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from emulators.servicebus.codec import Int, Long, Timestamp
from emulators.servicebus.message import Content

__all__ = ["DEAD_LETTERS", "Broker", "LockLost", "Message", "NoSuchMessage", "Queue", "QueueExists", "Rules"]

DEAD_LETTERS = "/$deadletterqueue"
_STATES = {"active": 0, "deferred": 1, "scheduled": 2}


class LockLost(Exception):
    """The lock token is not, or no longer, of a locked message."""


class NoSuchMessage(Exception):
    """No message has this sequence number in the state that was asked for."""


class QueueExists(Exception):
    """There is a queue of this name."""


@dataclass
class Rules:
    """What a queue was created with; times in seconds."""

    lock_s: float = 60.0
    max_delivery_count: int = 10
    detects_duplicates: bool = False
    history_s: float = 600.0
    ttl_s: float | None = None
    dead_letters_expired: bool = False
    max_message_bytes: int = 262_144


@dataclass(eq=False)
class Message:
    """A message in a queue."""

    content: Content
    sequence: int
    enqueued: float
    state: str = "active"
    count: int = 0
    token: uuid.UUID | None = None
    locked_until: float = 0.0
    due: float = 0.0
    expires: float = float("inf")
    source: str | None = None
    reasons: dict[str, str] = field(default_factory=dict)

    def encoded(self, *, is_locked: bool) -> bytes:
        """The message as a receiver gets it; a peeked one is not locked."""
        marks: dict[str, Any] = {
            "x-opt-sequence-number": Long(self.sequence),
            "x-opt-enqueued-time": _milliseconds(self.enqueued),
            "x-opt-enqueue-sequence-number": Long(self.sequence),
            "x-opt-message-state": Int(_STATES[self.state]),
        }
        if is_locked:
            marks["x-opt-locked-until"] = _milliseconds(self.locked_until)
        if self.source:
            marks["x-opt-deadletter-source"] = self.source
        if self.state == "scheduled":
            marks["x-opt-scheduled-enqueue-time"] = _milliseconds(self.due)
        return self.content.encoded(self.count, marks, self.reasons)


class Queue:
    """One queue. `arrived` is called when there may be something for a receiver."""

    def __init__(self, name: str, rules: Rules, dead_letters: Queue | None = None) -> None:
        self.name, self.rules, self.dead_letters = name, rules, dead_letters
        self.arrived: Callable[[], None] = lambda: None
        self.messages: dict[int, Message] = {}
        self._locked: dict[uuid.UUID, Message] = {}
        self._ready: list[int] = []
        self._timers: list[tuple[float, int]] = []
        self._numbers = itertools.count(1)
        self._seen: dict[Any, float] = {}

    def send(self, content: Content, now: float, due: float = 0.0) -> int | None:
        """The sequence number; None for a duplicate, which is dropped without a word."""
        if self.rules.detects_duplicates and content.message_id is not None:
            if self._seen.get(content.message_id, float("-inf")) > now - self.rules.history_s:
                return None
            self._seen[content.message_id] = now
        due = due or content.annotations.get("x-opt-scheduled-enqueue-time", 0) / 1000
        message = Message(content, next(self._numbers), now)
        self.messages[message.sequence] = message
        if due > now:
            message.state, message.due = "scheduled", due
            heapq.heappush(self._timers, (due, message.sequence))
        else:
            self._enqueue(message, now)
        return message.sequence

    def _enqueue(self, message: Message, now: float) -> None:
        message.state, message.enqueued = "active", now
        lives = [s for s in (self.rules.ttl_s, message.content.ttl_ms and message.content.ttl_ms / 1000) if s]
        if lives and self.dead_letters is not None:
            message.expires = now + min(lives)
            heapq.heappush(self._timers, (message.expires, message.sequence))
        self._make_ready(message)

    def _make_ready(self, message: Message) -> None:
        heapq.heappush(self._ready, message.sequence)
        self.arrived()

    def take(self, now: float, *, forget: bool = False) -> Message | None:
        """The first message that is ready, now locked (or gone, if it is to be forgotten)."""
        self.tick(now)
        while self._ready:
            message = self.messages.get(heapq.heappop(self._ready))
            if message is None or message.token is not None or message.state != "active":
                continue
            if forget:
                del self.messages[message.sequence]
            else:
                self._lock(message, now)
            return message
        return None

    def _lock(self, message: Message, now: float) -> None:
        message.token, message.locked_until = uuid.uuid4(), now + self.rules.lock_s
        self._locked[message.token] = message
        heapq.heappush(self._timers, (message.locked_until, message.sequence))

    def renew(self, token: uuid.UUID, now: float) -> float:
        message = self._of(token, now)
        message.locked_until = now + self.rules.lock_s
        heapq.heappush(self._timers, (message.locked_until, message.sequence))
        return message.locked_until

    def complete(self, token: uuid.UUID, now: float) -> None:
        message = self._of(token, now)
        del self.messages[message.sequence], self._locked[token]

    def release(self, token: uuid.UUID, now: float, *, counts: bool) -> None:
        """Put back; abandoning counts as a delivery, releasing does not."""
        self._unlock(self._of(token, now), counts=counts)

    def defer(self, token: uuid.UUID, now: float) -> None:
        message = self._of(token, now)
        message.state = "deferred"
        self._unlock(message, counts=True)

    def dead_letter(self, token: uuid.UUID, now: float, reason: str | None, description: str | None) -> None:
        message = self._of(token, now)
        del self._locked[token]
        self._bury(message, reason, description)

    def deferred(self, sequence: int, now: float) -> Message:
        message = self.messages.get(sequence)
        if message is None or message.state != "deferred" or message.token is not None:
            raise NoSuchMessage(sequence)
        self._lock(message, now)
        return message

    def cancel_scheduled(self, sequence: int) -> None:
        message = self.messages.get(sequence)
        if message is None or message.state != "scheduled":
            raise NoSuchMessage(sequence)
        del self.messages[sequence]

    def peek(self, start: int, count: int) -> list[Message]:
        return list(itertools.islice((self.messages[n] for n in sorted(self.messages) if n >= start), count))

    def counts(self) -> dict[str, int]:
        states = [message.state for message in self.messages.values()]
        buried = len(self.dead_letters.messages) if self.dead_letters else 0
        return {name: states.count(name) for name in _STATES} | {"dead": buried, "total": len(states) + buried}

    def tick(self, now: float) -> None:
        """Do what is due: locks that ran out, scheduled messages, messages too old."""
        while self._timers and self._timers[0][0] <= now:
            message = self.messages.get(heapq.heappop(self._timers)[1])
            if message is None:
                continue
            if message.state == "scheduled" and message.due <= now:
                self._enqueue(message, now)
            elif message.token is not None and message.locked_until <= now:
                self._unlock(message, counts=True)
            elif message.token is None and message.expires <= now:
                self._expire(message)

    def _expire(self, message: Message) -> None:
        if self.rules.dead_letters_expired:
            self._bury(message, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            del self.messages[message.sequence]

    def _unlock(self, message: Message, *, counts: bool) -> None:
        if message.token is not None:
            del self._locked[message.token]
        message.token = None
        message.count += counts
        if self.dead_letters is not None and message.count >= self.rules.max_delivery_count:
            self._bury(
                message, "MaxDeliveryCountExceeded", "Message could not be consumed after many delivery attempts."
            )
        elif message.state == "active":
            heapq.heappush(self._timers, (message.expires, message.sequence))  # it may have grown too old meanwhile
            self._make_ready(message)

    def _bury(self, message: Message, reason: str | None, description: str | None) -> None:
        if self.dead_letters is None:
            self._make_ready(message)
            return
        del self.messages[message.sequence]
        told = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        grave = self.dead_letters
        buried = Message(message.content, next(grave._numbers), message.enqueued)
        grave.messages[buried.sequence] = buried
        buried.count, buried.source = message.count, self.name
        buried.reasons = {name: text for name, text in told.items() if text}
        grave._make_ready(buried)

    def _of(self, token: uuid.UUID, now: float) -> Message:
        self.tick(now)
        try:
            return self._locked[token]
        except KeyError:
            raise LockLost(str(token)) from None


class Broker:
    """The queues of a namespace. Names are compared without case."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def __iter__(self) -> Iterator[Queue]:
        return iter(list(self._queues.values()))

    def create(self, name: str, rules: Rules) -> Queue:
        if name.lower() in self._queues:
            raise QueueExists(name)
        grave = Queue(f"{name}/$DeadLetterQueue", rules)
        queue = self._queues[name.lower()] = Queue(name, rules, grave)
        return queue

    def delete(self, name: str) -> None:
        del self._queues[name.lower()]

    def find(self, path: str) -> Queue | None:
        """The queue at a path, which may be that of its dead letters."""
        path = path.lower()
        if path.endswith(DEAD_LETTERS):
            queue = self._queues.get(path.removesuffix(DEAD_LETTERS))
            return queue.dead_letters if queue else None
        return self._queues.get(path)

    def tick(self, now: float) -> None:
        for queue in self:
            queue.tick(now)


def _milliseconds(seconds: float) -> Timestamp:
    return Timestamp(int(seconds * 1000))
