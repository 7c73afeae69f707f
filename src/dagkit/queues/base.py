"""The queue port: at-least-once delivery of texts with a lock that runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Delivery", "OutMessage", "Queue", "QueueStats", "Transport"]


@dataclass(slots=True)
class OutMessage:
    """A text to send. Services that detect duplicates drop a second one with the same id."""

    id: str
    text: str


@dataclass(slots=True)
class Delivery:
    """A message as it was received; nobody else sees it before `locked_until` (this process's monotonic clock, s)."""

    id: str
    text: str
    receipt: Any
    locked_until: float
    count: int
    """How many times it has been delivered, this time included."""
    is_last: bool = False
    """The service sets it aside, where nobody looks, if this delivery does not end it."""


@dataclass(slots=True)
class QueueStats:
    """How a queue stands; ages in seconds."""

    name: str
    waiting: int
    locked: int
    oldest_age_s: float | None = None


class Queue(Protocol):
    """One named queue. Thread-safe. Service failures are `BackendError`."""

    name: str
    max_text_bytes: int

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        """Send all, in order. `BackendError` if any may not have been sent; sending again is then safe."""
        ...

    def receive(self, max_messages: int, wait_s: float, lock_s: float) -> list[Delivery]:
        """Up to `max_messages`, waiting at most `wait_s` for the first; empty if there is none."""
        ...

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        """Delete messages; one whose lock was lost is ignored."""
        ...

    def abandon(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        """Make messages visible again, after `delay_s`."""
        ...

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        """Renew the lock from now; the new delivery replaces the old one. None if the lock was lost."""
        ...

    def stats(self) -> QueueStats: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Opens queues of one service by name; creating one that does not exist."""

    url: str

    def open(self, name: str) -> Queue: ...

    def names(self) -> list[str]:
        """Queues that exist."""
        ...

    def register_worker(self, queue: str, owner: str, ttl_s: float) -> None:
        """Say that a worker serves `queue`; expires by itself. Services without a place for this do nothing."""
        ...

    def workers(self, queue: str) -> list[str] | None:
        """Who serves a queue now; None if the service cannot know."""
        ...

    def check(self) -> list[tuple[str, str, str]]:
        """(what, `pass`, `warn` or `fail`, in words): what `dagkit doctor` says of the service. Raises nothing."""
        ...

    def close(self) -> None: ...
