"""The messages a worker holds, and the thread that renews their locks while tasks keep the rest of the process busy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dagkit.errors import BackendError
from dagkit.model.messages import AttemptKey, TaskMessage
from dagkit.queues.base import Delivery, Queue

__all__ = ["Held", "LockKeeper"]

log = logging.getLogger(__name__)

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(slots=True, eq=False)
class Held:
    """A message that this worker has taken and neither completed nor given back."""

    message: TaskMessage
    delivery: Delivery
    is_ordinary: bool = False
    """Not a task of a workflow: nobody waits for a completion."""
    lost: bool = False
    """The lock ran out: somebody else may have the message, so nothing may be said about it."""
    renew_at: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> AttemptKey:
        return self.message.key


class LockKeeper:
    """Renews every lock at half its time and announces this worker; thread-safe.

    Args:
        on_lost: Called in the keeper's thread with a message whose lock is lost, after `lost` was set.
        announce: Called about every third of `announce_ttl_s`; failures are logged.
    """

    def __init__(
        self,
        queue: Queue,
        lock_s: float,
        on_lost: Callable[[Held], None],
        announce: Callable[[float], None],
        announce_ttl_s: float = 30.0,
    ) -> None:
        self._queue, self._lock_s, self._on_lost = queue, lock_s, on_lost
        self._announce, self._announce_ttl_s = announce, announce_ttl_s
        self._held: set[Held] = set()
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dagkit-locks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, held: Held) -> None:
        """Renew this lock from now on."""
        held.renew_at = _half_way(held.delivery)
        with self._guard:
            self._held.add(held)

    def drop(self, held: Held) -> Delivery:
        """Renew it no more; returns the delivery with the newest receipt."""
        with self._guard:
            self._held.discard(held)
            return held.delivery

    def close(self) -> None:
        """Renew nothing more, and say that this worker is gone."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._announce_once(0.0)

    def _run(self) -> None:
        announce_at = 0.0
        while not self._closing.is_set():
            now = time.monotonic()
            if now >= announce_at:
                self._announce_once(self._announce_ttl_s)
                announce_at = now + self._announce_ttl_s / 3
            for held in self._due(now):
                self._renew(held)
            self._closing.wait(self._pause())

    def _pause(self) -> float:
        """Until the next renewal, but no longer than a message may have to wait that is yet to come."""
        with self._guard:
            next_at = min((held.renew_at for held in self._held), default=float("inf"))
        return min(self._lock_s / 10, _LONGEST_PAUSE_S, max(next_at - time.monotonic(), _SHORTEST_PAUSE_S))

    def _announce_once(self, ttl_s: float) -> None:
        try:
            self._announce(ttl_s)
        except BackendError as error:
            log.warning("this worker could not announce itself: %s", error)

    def _due(self, now: float) -> list[Held]:
        with self._guard:
            return [held for held in self._held if now >= held.renew_at]

    def _renew(self, held: Held) -> None:
        try:
            renewed = self._queue.extend(held.delivery, self._lock_s)
        except BackendError as error:
            log.warning("%s: the lock could not be renewed: %s", held.message.id, error)
            if time.monotonic() < held.delivery.locked_until:
                return
            renewed = None
        with self._guard:
            if held not in self._held:
                return
            if renewed is not None:
                held.delivery, held.renew_at = renewed, _half_way(renewed)
                return
            held.lost = True
            self._held.discard(held)
        log.warning("%s: its lock is lost; the task is stopped and nothing is reported", held.message.id)
        self._on_lost(held)


def _half_way(delivery: Delivery) -> float:
    """When to renew: a service may lock for a shorter time than it was asked to."""
    now = time.monotonic()
    return now + (delivery.locked_until - now) / 2
