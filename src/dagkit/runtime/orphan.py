"""The end of a worker process whose executor is gone: nothing of it may stay."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

__all__ = ["ask_for_parent_death", "leave_nothing"]

_PR_SET_PDEATHSIG: Final = 1


def ask_for_parent_death(number: int) -> None:
    """Have Linux send a signal when the executor's process ends, should its pipe be held open by a fork of it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def leave_nothing(pids: Iterable[int], scratch: Path, log: Path) -> NoReturn:
    """Kill these processes, remove the files, and kill this process with the whole group that it leads."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(scratch, ignore_errors=True)
    for remove in (log.unlink, scratch.parent.rmdir):
        with contextlib.suppress(OSError):  # not empty: another worker is still there and will do it
            remove()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
