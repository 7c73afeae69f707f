"""Nodes for the plain PJM: they run its jobs as a machine would, some at a time, and end those that are deleted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading

from executors.pjm.plain_pjm import ENDED, PlainPjm


class Nodes:
    """Owns one thread; `stop` joins it and ends what runs."""

    def __init__(self, pjm: PlainPjm, count: int = 2) -> None:
        self._pjm, self._count, self._over = pjm, count, threading.Event()
        self._running: dict[tuple[int, int], subprocess.Popen[bytes]] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)
        for process in self._running.values():
            _kill(process)

    def _run(self) -> None:
        while not self._over.wait(0.05):
            states = {(job, sub): state for job, sub, _, _, state in self._pjm.jobs()}
            for key, process in list(self._running.items()):
                if states[key] in ENDED:
                    _kill(process)
                elif process.poll() is not None:
                    self._pjm.change(*key, "EXT", process.returncode)
                if process.poll() is not None:
                    del self._running[key]
            for job, sub, _, script, _ in self._pjm.jobs("QUE")[: self._count - len(self._running)]:
                self._pjm.change(job, sub, "RUN")
                self._running[job, sub] = _start(script, sub)


def _start(script: str, sub: int) -> subprocess.Popen[bytes]:
    inside = {**os.environ, "PJM_BULKNUM": str(sub)}
    return subprocess.Popen(["bash", "-c", script], env=inside, stdin=subprocess.DEVNULL, start_new_session=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
