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

__all__ = ["Meter", "own_peak_bytes", "peak_bytes"]

SHORT_S: Final = 0.001
_NOISE: Final = 1 << 20
"""The kernel counts resident pages in batches for each processor: a peak rises a little without any cause."""
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def peak_bytes(ru_maxrss: int) -> int:
    """Bytes from `ru_maxrss`, which is in KiB everywhere but on macOS."""
    return ru_maxrss if sys.platform == "darwin" else ru_maxrss * 1024


def own_peak_bytes() -> int:
    """The largest resident size of this process.

    Linux counts in `ru_maxrss` what the process was before it became this program, a copy of a large notebook perhaps;
    `VmHWM` in /proc/self/status (proc(5)) begins with the program.
    """
    try:
        status = _STATUS.read_bytes()
    except OSError:
        return peak_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    found = status.partition(b"VmHWM:")[2].split(None, 1)
    return int(found[0]) * 1024 if found else peak_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _forget_peak() -> bool:
    """Have the kernel begin a new peak (`5` to /proc/self/clear_refs, proc(5)); False where it cannot."""
    try:
        _CLEAR.write_bytes(b"5")
    except OSError:
        return False
    return True


class Meter:
    """Measures the attempts of one process, one after the other.

    The peak belongs to one attempt where the kernel can be told to forget it. Elsewhere it belongs to the attempt in
    which it rose, and one below an earlier peak is known only by the samples that the process's watcher takes.
    """

    def __init__(self, forgets: bool | None = None) -> None:
        """`forgets`: whether the kernel can be told to forget the peak; found out if None."""
        self._own = time.process_time()
        self._children = _children_s()
        self._forgets = _forget_peak() if forgets is None else forgets
        self._peak = own_peak_bytes()
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
        """What the call that has just ended used beside its wall time; {} for a short one."""
        own, before = time.process_time(), self._own
        self._own = own
        if wall_s < SHORT_S:
            return {}
        children = _children_s()
        usage: dict[str, Any] = {"cpu_s": round(own - before + children - self._children, 6)}
        self._children = children
        peak = own_peak_bytes()
        if self._forgets or peak > self._peak + _NOISE:
            usage["peak_rss_bytes"] = max(peak, self._sampled)
        elif self._sampled:
            usage["peak_rss_bytes"] = self._sampled
        if self._forgets:
            _forget_peak()
        self._peak, self._sampled = peak, 0
        return usage

    def end_command(self, used: resource.struct_rusage) -> dict[str, Any]:
        """What the command that has just ended used; `used` is the kernel's account of its process.

        The account's peak begins at that of this process, which started it: it is not below the size of a worker.
        """
        usage: dict[str, Any] = {"cpu_s": round(used.ru_utime + used.ru_stime, 6)}
        self._own, self._children = time.process_time(), _children_s()
        peak, sampled = peak_bytes(used.ru_maxrss), self._sampled
        if self._forgets or peak > self._peak + _NOISE:
            usage["peak_rss_bytes"] = max(peak, sampled)
        elif sampled:
            usage["peak_rss_bytes"] = sampled
        self._sampled = 0
        return usage


def _children_s() -> float:
    """Processor time of child processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
