"""The coordinator is killed around submissions: no job is submitted twice, none is left alone.

Ten runs; two hundred, which take eight minutes, with DAGKIT_ALL_KILLS=1 in the environment.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dagkit.errors import BackendError
from dagkit.stores import open_store
from dagkit.testing.pjm import PjmSimulator, Site
from dagkit.testing.pjm.driver import leave_completions
from reliability.slurm_coordinators import create

LIMIT_S: Final = 40.0
DECADES: Final = 20 if os.environ.get("DAGKIT_ALL_KILLS") else 1
#: What may happen to a call in these runs; most of them are ordinary.
FAULTS: Final[tuple[tuple[str, float], ...]] = (
    ("", 0.0),
    ("", 0.0),
    ("submit-slow", 0.1),
    ("submit-slow", 0.3),
    ("kill-caller-before", 0.0),
    ("kill-caller-after", 0.0),
    ("accept-kill", 0.0),
    ("accept-silent", 0.0),
    ("submit-killed", 0.0),
    ("accept-garbled", 0.0),
    ("submit-fails", 0.0),
    ("stat-kills-caller", 0.0),
    ("stat-cut", 0.0),
)


class Coordinators:
    """Coordinators, one at a time, that may be killed."""

    def __init__(self) -> None:
        self._maker = subprocess.Popen(
            [sys.executable, "-m", "reliability.pjm_coordinators"],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._maker.stdin is not None
        assert self._maker.stdout is not None
        self._asked, self._answers = self._maker.stdin, self._maker.stdout

    def start(self, folder: Path) -> int:
        self._asked.write(f"{folder}\n")
        self._asked.flush()
        return int(self._answers.readline())

    def end(self) -> int:
        """How the one that was started has ended; waits for it."""
        return int(self._answers.readline())

    def close(self) -> None:
        self._asked.close()
        self._maker.wait(30)
        self._answers.close()


@pytest.fixture(scope="module")
def coordinators() -> Iterator[Coordinators]:
    made = Coordinators()
    yield made
    made.close()


class Machine:
    """Runs the jobs as time goes by, and counts what they ran."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.pjm, self._dice = PjmSimulator(folder / "pjm", Site.quick(mode="plan", nodes=0, live_s=3.0)), dice
        self.ran: Counter[str] = Counter()
        self.orphans: list[str] = []

    def run_some(self) -> None:
        """Some of what waits runs, and leaves its completions before or after it ends."""
        for job in self.pjm.jobs("QUE"):
            if self._dice.random() >= 0.6:
                continue
            try:
                self.ran.update(message.task for message in leave_completions(job))
            except BackendError:  # its folder is gone: whoever submitted it does not want it
                self.orphans.append(job.name)
            self.pjm.force(job, "EXT", ec=0)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("decade", range(DECADES))
def test_no_job_is_submitted_twice_and_none_is_left_alone(
    coordinators: Coordinators, tmp_path: Path, decade: int
) -> None:
    for seed in range(10 * decade, 10 * decade + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_one(coordinators, folder, random.Random(seed))


def check_one(coordinators: Coordinators, folder: Path, dice: random.Random) -> None:
    machine = Machine(folder, dice)
    tasks, pack, mode = dice.randrange(1, 9), dice.choice((1, 1, 3)), dice.choice(("single", "bulk", "auto"))
    (folder / "how").write_text(f"{pack} {mode}")
    create(folder, tasks)
    for _ in range(3):
        fault, value = dice.choice(FAULTS)
        if fault:
            machine.pjm.fault(fault, value=value)
    kills = dice.randrange(1, 4)
    deadline, code = time.monotonic() + LIMIT_S, None
    while code != 0:
        assert time.monotonic() < deadline, f"not over; {machine.ran} {machine.pjm.oracle().submits}"
        pid = coordinators.start(folder)
        kill_at = time.monotonic() + dice.uniform(0.0, 0.4) if kills > 0 else deadline
        while is_running(pid):
            machine.run_some()
            if time.monotonic() >= kill_at:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        kills -= 1
        code = coordinators.end()
        assert code in (0, -signal.SIGKILL)

    assert machine.ran == {**{f"t{number}": 1 for number in range(tasks)}, "last": 1}
    assert machine.orphans == []
    assert all(job.is_over for job in machine.pjm.jobs())
    found = machine.pjm.oracle()
    assert (found.duplicates, found.over) == ({}, ())
    store = open_store(folder / "store")
    assert {entry["attempt_no"] for entry in store.task_entries("wf").values()} == {1}
    store.close()
