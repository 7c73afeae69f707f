"""The folder in which an executor's workers keep their files while they run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

__all__ = ["Scratch"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_PREFIX = "dagkit-scratch-"
#: A name that `Scratch` has made, and nobody by hand: temporary folders hold what is dear to others too.
_NAME = re.compile(rf"{_PREFIX}\d+-[a-z0-9_]{{8}}")
_YOUNG_S = 60.0


class Scratch:
    """A temporary folder that is locked as long as its process lives.

    What processes that were killed have left behind is removed when the next one is made: the lock, and not a number
    of a process, tells who lives, also between containers that share a folder.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        _sweep(root)
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))
        self._lock_fd = os.open(self.path, _FLAGS)
        _is_locked_here(self._lock_fd)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)


def _sweep(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        if not _NAME.fullmatch(folder.name):
            continue
        try:
            stat = folder.stat()
            if (
                stat.st_uid != os.getuid() or time.time() - stat.st_mtime < _YOUNG_S
            ):  # one that is young may be unlocked
                continue
            fd = os.open(folder, _FLAGS)
        except OSError:  # gone meanwhile, or nothing of ours
            continue
        try:
            if _is_locked_here(fd):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


def _is_locked_here(fd: int) -> bool:
    """Lock the folder; False if another process holds the lock, or where folders cannot be locked."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
