"""The worker processes of one executor, and the one place where it waits for all of them."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dagkit.errors import ConfigError
from dagkit.executors.scratch import Scratch
from dagkit.executors.slot import Slot
from dagkit.model.messages import TaskMessage
from dagkit.stores.base import Store

__all__ = ["Crew", "Event"]

_EXIT_S: Final = 2.0

Event = tuple[Slot, "list[Any] | None"]
"""Frames that a worker has sent; None when the worker is gone."""


class Crew:
    """Starts worker processes, listens to them, removes them. Used by one thread, except `ring`."""

    def __init__(self, store: Store, log_dir: Path | None, python: str | None, login_shell: bool) -> None:
        self._store, self._log_dir = store, log_dir
        self.python = python or sys.executable
        if not self.python:
            raise ConfigError("this process does not know its Python interpreter; name one: LocalExecutor(python=...)")
        self.members: list[Slot] = []
        self._setup = {"store": store.url, "login_shell": login_shell}
        self._cwd = str(Path.cwd())
        self._scratch: Scratch | None = None
        self._made = 0
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = os.pipe()
        for fd in (self._bell, self._rope):
            os.set_blocking(fd, False)
        self._selector.register(self._bell, selectors.EVENT_READ)

    def start(self, message: TaskMessage) -> Slot:
        """A new worker; `message` is the first that it will get."""
        if self._scratch is None:
            self._scratch = Scratch()
        self._made += 1
        scratch = self._scratch.path / str(self._made)
        slot = Slot(self._made, self.python, self._cwd, scratch, self._open_log(message, scratch), self._setup)
        self.members.append(slot)
        self._selector.register(slot.in_fd, selectors.EVENT_READ, slot)
        if slot.exit_fd is not None:
            self._selector.register(slot.exit_fd, selectors.EVENT_READ, slot)
        return slot

    def _open_log(self, message: TaskMessage, scratch: Path) -> Path:
        """The file a new worker writes into; on the file system of the store's logs, so that renaming is enough."""
        folder = self._log_dir
        if folder is None:
            path = self._store.log_path(message.workflow_id, message.task, f"{message.generation}.{message.attempt}")
            folder = path.parent.parent if path is not None else None
        if folder is None:
            return scratch / "log"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f".open-{os.getpid()}-{id(self):x}-{self._made}"

    def listen(self, wait_s: float, *, spin_s: float = 0.0) -> tuple[bool, list[Event]]:
        """Wait for workers; whether `ring` was called meanwhile, and what came. Ends come after all frames.

        For `spin_s` it looks without sleeping: waking a processor that sleeps takes as long as a hop of a chain.
        """
        has_rung, frames, gone = False, [], []
        for key, _ in self._spin(min(wait_s, spin_s)) or self._selector.select(wait_s):
            slot: Slot | None = key.data
            if slot is None:
                has_rung = True
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 4096)
            elif key.fd == slot.out_fd:
                slot.flush()
                self.watch(slot)
            elif key.fd == slot.exit_fd:
                gone.append(slot)
            else:
                frames.append((slot, self._read(slot, gone)))
        return has_rung, [*frames, *((slot, None) for slot in gone)]

    def _spin(self, limit_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        if limit_s <= 0:
            return []
        until = time.perf_counter() + limit_s
        while not (events := self._selector.select(0)) and time.perf_counter() < until:
            pass
        return events

    def _read(self, slot: Slot, gone: list[Slot]) -> list[Any]:
        frames, is_over = slot.read()
        if is_over:
            self._selector.unregister(slot.in_fd)
            slot.kill_at = min(slot.kill_at or float("inf"), time.monotonic() + _EXIT_S)
            if slot.exit_fd is None:
                gone.append(slot)
        return frames

    def send(self, slot: Slot, frame: tuple[Any, ...]) -> None:
        """Send a frame; what the pipe does not take now is written while listening."""
        slot.send(frame)
        self.watch(slot)

    def watch(self, slot: Slot) -> None:
        """Listen for room in a worker's pipe as long as something waits to be written."""
        if slot.has_unsent == slot.is_watched:
            return
        slot.is_watched = slot.has_unsent
        if slot.has_unsent:
            self._selector.register(slot.out_fd, selectors.EVENT_WRITE, slot)
        else:
            self._selector.unregister(slot.out_fd)

    def overdue(self, now: float) -> Iterator[Slot]:
        """Workers that should have ended by now; each is killed, and again a second later."""
        for slot in list(self.members):
            if slot.kill_at is not None and now >= slot.kill_at:
                slot.kill()
                slot.kill_at = now + 1.0
                yield slot

    def ring(self) -> None:
        """Make `listen` return. Thread-safe."""
        with contextlib.suppress(OSError):  # full: it is rung already; closed: nobody waits
            os.write(self._rope, b"!")

    def remove(self, slot: Slot, *, keep_log: bool = False) -> int:
        """Forget a worker, with all that it left; returns how its process ended."""
        for fd in (slot.in_fd, slot.out_fd, slot.exit_fd):
            if fd is not None and fd in self._selector.get_map():
                self._selector.unregister(fd)
        self.members.remove(slot)
        code = slot.bury()
        if not keep_log:
            with contextlib.suppress(OSError):
                slot.log.unlink()
        return code

    def close(self) -> None:
        """Kill who is left; nothing of them remains."""
        for slot in list(self.members):
            self.remove(slot)
        self._selector.close()
        os.close(self._bell)
        os.close(self._rope)
        if self._scratch is not None:
            self._scratch.remove()
