"""What a task writes to stdout and stderr goes to its own log: print, logging, C-level writes, subprocesses.

Descriptors 1 and 2 of a worker process point at one open file. A task that wrote nothing leaves it as it is; a task
that wrote something owns the file, which is renamed to the task's log, and the next task gets a new one. A process that
the task left behind keeps writing to the file it had.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Final, TextIO

__all__ = ["Capture"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Capture:
    """Owns descriptors 1 and 2, `sys.stdout` and `sys.stderr` of this process.

    `publish` may be called by another thread than the rest.

    Attributes:
        ended: How many tasks have ended. Whoever publishes read it while the task ran.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._published: Path | None = None
        self.ended = 0
        self._out = _stream(1)
        self._err = _stream(2)
        self._fd = -1
        self._inode = -1
        self._open()

    def has_unclaimed(self) -> bool:
        """End a task: whether it wrote something that is not in its log yet; then `claim` or `discard` it."""
        with self._lock:
            self.ended += 1
        stat = self._settled()
        if stat is None or (stat.st_size == 0 and self._published is None):
            return False
        with self._lock:
            if self._published is None:
                return True
            if stat.st_size == 0:
                self._unpublish()
            else:
                self._published = None
                self._open()
            return False

    def claim(self, target: Path) -> None:
        """Make what was written the file at `target`."""
        with self._lock:
            if self._published is not None:
                self._published = None
            elif not _move(self._path, target, keep_open=False):
                os.ftruncate(self._fd, 0)
                return
            self._open()

    def publish(self, target: Path, ended: int) -> None:
        """Put the log of the task that runs where its readers look, while it is being written.

        Nothing is done if more than `ended` tasks have ended by now: what is open belongs to the next.
        """
        with self._lock:
            if self.ended == ended and self._published is None and _move(self._path, target, keep_open=True):
                self._published = target

    def discard(self) -> None:
        """Forget what was written since the last task ended."""
        with self._lock, contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)

    def _settled(self) -> os.stat_result | None:
        """State of the open file after flushing; puts right what the task did to the streams."""
        try:
            self._out.flush()
            self._err.flush()
            stat = os.fstat(1)
            if stat.st_ino == self._inode and sys.stdout is self._out and sys.stderr is self._err:
                return stat
        except (OSError, ValueError):
            pass
        self._restore()
        try:
            return os.fstat(self._fd)
        except OSError:
            with self._lock:
                self._open()
            return None

    def _restore(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a replacement of the task's may do anything
                stream.flush()
        with contextlib.suppress(OSError):
            os.dup2(self._fd, 1)
            os.dup2(self._fd, 2)
        self._out = _usable(self._out, 1)
        self._err = _usable(self._err, 2)
        sys.stdout = sys.__stdout__ = self._out  # type: ignore[misc, assignment]
        sys.stderr = sys.__stderr__ = self._err  # type: ignore[misc, assignment]

    def _unpublish(self) -> None:
        """The task wrote nothing after all: its empty log goes back to being the open file."""
        assert self._published is not None
        try:
            self._published.rename(self._path)
        except OSError:
            self._open()
        self._published = None

    def _open(self) -> None:
        fresh = os.open(self._path, _FLAGS, 0o666)
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        os.dup2(fresh, 1)
        os.dup2(fresh, 2)
        self._fd, self._inode = fresh, os.fstat(fresh).st_ino
        if sys.stdout is not self._out or sys.stderr is not self._err:
            self._restore()


def _stream(fd: int) -> TextIO:
    """A line-buffered text stream: what is printed is seen by followers at once, and in order with the rest."""
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _usable(stream: TextIO, fd: int) -> TextIO:
    return _stream(fd) if stream.closed else stream


def _move(source: Path, target: Path, *, keep_open: bool) -> bool:
    """Rename; across file systems copy, unless it is still being written. A failure costs the log, not the task."""
    try:
        try:
            source.rename(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV or keep_open:
            return False
        return _copy(source, target)
    return True


def _copy(source: Path, target: Path) -> bool:
    try:
        shutil.copyfile(source, target)
        source.unlink()
    except OSError:
        return False
    return True
