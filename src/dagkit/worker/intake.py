"""Taking messages from the queue, in a thread that receives while there is room: the loop never waits for a service."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dagkit.errors import BackendError
from dagkit.queues.base import Delivery, Queue

__all__ = ["Intake"]

log = logging.getLogger(__name__)

_RECEIVE_WAIT_S = 0.25
_RECEIVE_MAX = 32
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0


class Intake:
    """Receives as many messages as it is allowed to; thread-safe.

    Args:
        arrived: Called in the intake's thread when messages were added.
        max_idle_backoff_s: Longest pause between looks at an empty queue; 0 looks again at once, which costs nothing
            where receiving itself waits.
    """

    def __init__(
        self,
        queue: Queue,
        lock_s: float,
        arrived: Callable[[], None],
        max_idle_backoff_s: float,
    ) -> None:
        self._queue, self._lock_s, self._arrived = queue, lock_s, arrived
        self._max_pause_s = max_idle_backoff_s
        self._messages: list[Delivery] = []
        self.room = 0
        self._changed = threading.Condition()
        self._closed = self._paused = False
        self._thread = threading.Thread(target=self._run, name="dagkit-intake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Messages received and not yet taken out."""
        return len(self._messages)

    def take(self) -> list[Delivery]:
        """Everything that has arrived since the last call. Nothing more is received before the next `allow`."""
        with self._changed:
            taken, self._messages = self._messages, []
            if taken:
                self.room = 0
        return taken

    def allow(self, room: int) -> None:
        """So many messages may be received from now on, those that wait here included."""
        with self._changed:
            self.room = room
            self._changed.notify()

    def pause(self) -> None:
        """Receive nothing before `resume`. A message that a call in flight still brings is given back at once."""
        with self._changed:
            self._paused, self.room = True, 0

    def resume(self) -> None:
        """Receive again, once there is room."""
        with self._changed:
            self._paused = False

    def close(self) -> None:
        """Receive nothing more. A message that a call in flight still brings is given back at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause = 0.0
        while (room := self._wait_for_room()) > 0:
            try:
                deliveries = self._queue.receive(min(room, _RECEIVE_MAX), _RECEIVE_WAIT_S, self._lock_s)
                if deliveries:
                    self._deliver(deliveries)
            except BackendError as error:
                log.warning("queue %s: %s", self._queue.name, error)
                pause = min(max(pause * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                self._sleep(pause)
                continue
            pause = 0.0 if deliveries else min(max(pause * 2, _FIRST_PAUSE_S), self._max_pause_s)
            self._sleep(pause)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        with self._changed:
            if not (self._closed or self._paused):
                self._messages += deliveries
                deliveries = []
        if deliveries:
            self._queue.abandon(deliveries)
        else:
            self._arrived()

    def _wait_for_room(self) -> int:
        """How many messages may be received, as soon as it is at least one; 0 when closed."""
        with self._changed:
            while not self._closed:
                room = self.room - len(self._messages)
                if room > 0:
                    return room
                self._changed.wait()
        return 0

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._closed and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
