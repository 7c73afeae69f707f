"""A thread that owns one sender or receiver of the SDK, which is not thread-safe and may hang for ever."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

__all__ = ["Lane"]

T = TypeVar("T")

_CLOSING_S: Final = 3.0
_WORN: Final = 1 << 62


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[Any], Any]
    future: Future[Any] = field(default_factory=Future)


class Lane:
    """Does what callers ask for, one after the other, each within its deadline. Thread-safe.

    A call that does not come back is left behind with its thread and its connection; the next one gets new ones. So
    does the one after a call that failed.

    Args:
        connect: Makes the sender or receiver, and opens it.
        max_uses: How many calls one of them may serve; None for as many as there are.
    """

    def __init__(self, name: str, connect: Callable[[], Any], max_uses: int | None = None) -> None:
        self._name, self._connect, self._max_uses = name, connect, max_uses
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False

    def call(self, work: Callable[[Any], T], timeout_s: float) -> T:
        """What `work` returns or raises; TimeoutError after the time, with the work perhaps done."""
        job = _Job(work)
        with self._changed:
            if self._closing:
                raise TimeoutError(f"{self._name} is closed")
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"dagkit-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        try:
            result: T = job.future.result(timeout_s)
        except FutureTimeoutError:  # the builtin one from Python 3.11 on, and so what the work may raise itself
            if job.future.done():
                raise
            self._leave_behind(job)
            raise TimeoutError(f"{self._name}: no answer within {timeout_s:g} s") from None
        return result

    def _leave_behind(self, job: _Job) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)  # it waited for another one, whose caller gives up in its own time
                return
            self._thread = None
            if self._jobs:
                self._thread = threading.Thread(target=self._run, name=f"dagkit-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        handler, uses = None, 0
        while (job := self._next()) is not None:
            try:
                if handler is None:
                    handler, uses = self._connect(), 0
                job.future.set_result(job.work(handler))
                uses += 1
            except BaseException as error:  # it is the caller's, whatever it is
                job.future.set_exception(error)
                uses = _WORN
            if uses >= (self._max_uses or _WORN):
                _close(handler)
                handler = None
        _close(handler)

    def _next(self) -> _Job | None:
        """The next job for this thread; None if it has been left behind, or there will be none."""
        me = threading.current_thread()
        with self._changed:
            while self._thread is me and not self._jobs and not self._closing:
                self._changed.wait()
            return self._jobs.popleft() if self._thread is me and self._jobs else None

    def shut(self) -> None:
        """Take no more calls; those in flight go on. Returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self, timeout_s: float = _CLOSING_S) -> None:
        """Wait, not for long, until the connection is closed."""
        thread, deadline = self._thread, time.monotonic() + timeout_s
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _close(handler: Any) -> None:
    if handler is not None:
        with contextlib.suppress(Exception):  # it may be broken already; there is nothing left to be saved in it
            handler.close()
