"""How much one attempt used: measured cheaply, because most attempts are short.

An attempt under a millisecond reports only its wall time and its start; nothing that costs a system call is looked at.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["Meter", "peak_bytes"]

SHORT_S: Final = 0.001
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def peak_bytes(ru_maxrss: int) -> int:
    """Bytes from `ru_maxrss`, which is in KiB everywhere but on macOS."""
    return ru_maxrss if sys.platform == "darwin" else ru_maxrss * 1024


class Meter:
    """Measures the attempts of one process, one after the other.

    The peak of a process is remembered by the kernel for its whole life. It belongs to the attempt in which it rose;
    an attempt below an earlier peak is known only by the samples that the process's watcher takes of long ones.
    """

    def __init__(self) -> None:
        self._own = time.process_time()
        self._children = _children_s()
        self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._sampled = 0

    def sample(self, resident_bytes: int | None = None) -> None:
        """Note how large an attempt is now: this process, unless it says another size. For attempts over a second."""
        if resident_bytes is None:
            try:
                resident_bytes = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
            except OSError:
                return
        self._sampled = max(self._sampled, resident_bytes)

    def end(self, wall_s: float) -> dict[str, Any]:
        """What the attempt that has just ended used beside its wall time; {} for a short one."""
        own, before = time.process_time(), self._own
        self._own = own
        if wall_s < SHORT_S:
            return {}
        children = _children_s()
        usage: dict[str, Any] = {"cpu_s": round(own - before + children - self._children, 6)}
        self._children = children
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if peak > self._peak:
            usage["peak_rss_bytes"] = peak_bytes(peak)
        elif self._sampled:
            usage["peak_rss_bytes"] = self._sampled
        self._peak, self._sampled = peak, 0
        return usage


def _children_s() -> float:
    """Processor time of child processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
