"""How a worker process ended, in words and as a failure kind."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from dagkit.model.states import FailureKind
from dagkit.runtime.failure import signal_name

__all__ = ["OomWatch", "describe_exit"]

_CGROUP_EVENTS: Final = Path("/sys/fs/cgroup/memory.events")
_VMSTAT: Final = Path("/proc/vmstat")


class OomWatch:
    """Tells whether the kernel has killed a process for memory since the last question."""

    def __init__(self) -> None:
        self._seen = _oom_kills()

    def has_killed(self) -> bool:
        """Whether there was such a kill; each is told once."""
        now = _oom_kills()
        killed, self._seen = now > self._seen, now
        return killed


def describe_exit(code: int, oom: OomWatch) -> tuple[str, FailureKind]:
    """What a task is told when its worker process ended with `code` (negative: by that signal)."""
    if code >= 0:
        return f"the worker process exited with code {code} while the task was running", FailureKind.USER
    if code != -signal.SIGKILL:
        return f"the worker process was killed by signal {signal_name(-code)}", FailureKind.USER
    if oom.has_killed():
        return "the worker process was killed by the kernel, which was out of memory (SIGKILL)", FailureKind.MEMORY
    return (
        "the worker process was killed by signal SIGKILL: by somebody, or by a memory limit that left no trace here",
        FailureKind.USER,
    )


def _oom_kills() -> int:
    """Kills so far in this machine and in this container; 0 where neither can be read."""
    return sum(_counter(path, "oom_kill") for path in (_VMSTAT, _CGROUP_EVENTS))


def _counter(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)
