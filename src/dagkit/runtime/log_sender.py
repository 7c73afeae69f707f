"""Sends the log of the task that runs, as it grows, to a store that has no files."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dagkit.errors import BackendError

if TYPE_CHECKING:
    from dagkit.runtime.storage import Storage

__all__ = ["LogSender"]

_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 10.0  # an append blob takes 50,000 blocks (Microsoft's "Scalability targets for Blob storage")
_SLOWER_BY: Final = 0.02
_PART_BYTES: Final = 4 << 20


class _Attempt(NamedTuple):
    workflow_id: str
    task: str
    attempt: str


class LogSender:
    """Owns a thread from the first task that takes long. What was sent once is not sent again.

    Args:
        path: The file that tasks of this process write to, one after the other.
    """

    def __init__(self, storage: Storage, path: Path) -> None:
        self._storage, self._path = storage, path
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._attempt: _Attempt | None = None
        self._sent, self._began = 0, 0.0
        self._thread: threading.Thread | None = None

    def follow(self, workflow_id: str, task: str, attempt: str, runs: Callable[[], bool] = lambda: True) -> None:
        """Send what this attempt writes, from now on, if it still `runs`: one that has ended was sent, or forgotten."""
        with self._changed:
            if not runs():
                return
            self._attempt, self._began = _Attempt(workflow_id, task, attempt), time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dagkit-log", daemon=True)
                self._thread.start()
            self._changed.notify()

    def finish(self, workflow_id: str, task: str, attempt: str) -> None:
        """Send the rest of an attempt that has ended. `BackendError`, `OSError`."""
        with self._changed:
            self._attempt = None
        with self._sending:
            sent, self._sent = self._sent, 0
            self._send(_Attempt(workflow_id, task, attempt), sent)

    def forget(self) -> None:
        """The attempt has ended and wrote nothing: what is written now is another's."""
        with self._changed:
            was_followed, self._attempt = self._attempt is not None, None
        if was_followed:
            with self._sending:
                self._sent = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._attempt is None:
                    self._changed.wait()
                attempt = self._attempt
                pause = min(max(_SHORTEST_S, (time.monotonic() - self._began) * _SLOWER_BY), _LONGEST_S)
            with self._sending:
                if self._attempt is attempt:
                    with contextlib.suppress(BackendError, OSError):  # tried again the next time, and at the end
                        self._sent = self._send(attempt, self._sent)
            with self._changed:
                self._changed.wait_for(lambda attempt=attempt: self._attempt is not attempt, pause)  # type: ignore[misc]

    def _send(self, attempt: _Attempt, sent: int) -> int:
        """Send what the file has beyond `sent` bytes; how much was sent in all."""
        with open(self._path, "rb") as file:
            file.seek(sent)
            while part := file.read(_PART_BYTES):
                self._storage.store.append_log(*attempt, sent, part)
                sent += len(part)
        return sent
