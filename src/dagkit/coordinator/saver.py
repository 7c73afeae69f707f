"""The saver: writes changes of runs in a thread of its own, one save at a time for each run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from dagkit.coordinator.drive import Drive
from dagkit.errors import BackendError, StateConflict
from dagkit.model.records import StateChanges
from dagkit.stores.base import Store

__all__ = ["Saver"]

log = logging.getLogger("dagkit.coordinator")


class Saver:
    """Owns one thread; `close()` joins it after the saves that were asked for.

    A failing service is tried again after each pause of `backoff_s`; then the failure is the result.
    """

    def __init__(self, store: Store, wake: Callable[[], None], backoff_s: tuple[float, ...]) -> None:
        self._store, self._wake, self._backoff_s = store, wake, backoff_s
        self._jobs: queue.SimpleQueue[tuple[Drive, StateChanges] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Drive, BaseException | None]] = deque()
        self._idle = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dagkit-saver", daemon=True)
        self._thread.start()

    def save(self, drive: Drive) -> None:
        """Write what changed in this run since the last save; the result arrives in `results`."""
        drive.is_saving = True
        self._jobs.put((drive, drive.changes_to_save()))

    def results(self) -> list[tuple[Drive, BaseException | None]]:
        """Saves that ended since the last call, with what went wrong or None."""
        ended = []
        while self._done:
            drive, error = self._done.popleft()
            drive.is_saving = False
            ended.append((drive, error))
        return ended

    def wait_for(self, drive: Drive, timeout_s: float = 30.0) -> None:
        """Return when the save of this run that is in flight has ended."""
        with self._idle:
            self._idle.wait_for(lambda: not drive.is_saving or any(d is drive for d, _ in self._done), timeout_s)

    def close(self) -> None:
        self._closing.set()
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            drive, changes = job
            error = self._save(drive, changes)
            with self._idle:
                self._done.append((drive, error))
                self._idle.notify_all()
            if error is not None or drive.is_over_when_saved:  # else the loop, which looks every few ms, is soon enough
                self._wake()

    def _save(self, drive: Drive, changes: StateChanges) -> BaseException | None:
        for pause in (*self._backoff_s, None):
            begun = time.monotonic()
            try:
                drive.etag = self._store.save(drive.workflow_id, changes, drive.etag)
                drive.save_s = time.monotonic() - begun
                if results := drive.results_to_remember():
                    self._store.remember(results)
            except StateConflict as error:
                return error
            except BackendError as error:
                if pause is None or self._closing.is_set():
                    return error
                log.warning("run %s: saving failed, trying again in %.1f s: %s", drive.workflow_id, pause, error)
                time.sleep(pause)
            except Exception as error:  # a fault of ours must reach whoever waits for the run, not kill the thread
                log.exception("run %s: saving failed", drive.workflow_id)
                return error
            else:
                return None
        return None
