"""Holds the processes of one job, as a node does: runs its script, and leaves nothing running when it has ended.

Run as a program by `dagkit.testing.pjm.processes`; says how the script ended in a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["descendants", "main"]

_PR_SET_CHILD_SUBREAPER = 36


def main(path: str) -> None:
    """Run what the file says."""
    order: dict[str, Any] = json.loads(Path(path).read_text())
    if (child := os.fork()) > 0:  # nobody has to wait for the one that stays
        os.write(1, str(child).encode())
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with contextlib.suppress(OSError, AttributeError):  # Linux: whatever the script leaves behind becomes our child
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = _run(order, Path(path))
    end_all(os.getpid(), signal.SIGKILL)
    result = {"ec": max(code, 0), "sn": max(-code, 0), "wall": time.time()}
    unfinished = Path(order["result"]).with_suffix(".tmp")
    unfinished.write_text(json.dumps(result))
    unfinished.rename(order["result"])


def _run(order: dict[str, Any], path: Path) -> int:
    try:
        with open(order["out"], "ab") as out, open(order["err"], "ab") as err:
            child = subprocess.Popen(
                ["bash", order["script"], *order["arguments"]],
                cwd=order["directory"],
                env=order["environ"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
    except OSError:
        return 127
    if not path.exists():  # it was ended before there was anything to end
        end_all(os.getpid(), signal.SIGKILL)
    try:
        return child.wait(order["at_most_s"])
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def descendants(pid: int) -> list[int]:
    """Processes below one, the nearest first; where there is /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
                children.setdefault(int(text.split()[1]), []).append(int(entry))
    found, waiting = list[int](), [pid]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def end_all(pid: int, number: int) -> None:
    """Signal everything below a process."""
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            os.kill(one, number)


if __name__ == "__main__":
    main(sys.argv[1])
