"""The coordinator is killed around submissions, a hundred times: no job is submitted twice, and none is left alone."""

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
from dagkit.testing.slurm import FakeSlurm, FakeSlurmJob, Fault
from reliability.slurm_coordinators import create

LIMIT_S: Final = 30.0
#: What may happen to a call of sbatch in these runs; the weights make most of them ordinary.
FAULTS: Final[tuple[tuple[Fault | None, float], ...]] = (
    (None, 0.0),
    (None, 0.0),
    ("slow", 0.1),
    ("slow", 0.3),
    ("kills caller before", 0.0),
    ("kills caller after", 0.0),
    ("times out, accepted", 0.0),
    ("times out, not accepted", 0.0),
)


class Coordinators:
    """Coordinators, one at a time, that may be killed."""

    def __init__(self) -> None:
        tests = str(Path(__file__).parents[1])
        self._maker = subprocess.Popen(
            [sys.executable, "-m", "reliability.slurm_coordinators"],
            env={**os.environ, "PYTHONPATH": tests},
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


class Cluster:
    """Runs the jobs of a fake Slurm as time goes by, and counts what they ran."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.fake, self._dice = FakeSlurm(folder / "slurm"), dice
        self.ran: Counter[str] = Counter()
        self.orphans: list[FakeSlurmJob] = []

    def run_some(self) -> None:
        """Some of what waits runs, and leaves its completions before or after it ends."""
        for job in self.fake.jobs(active=True):
            if self._dice.random() < 0.6:
                try:
                    self.ran.update(message.task for message in self.fake.complete(job))
                except BackendError:  # its folder is gone: whoever submitted it does not want it
                    self.orphans.append(job)
                    self.fake.end(job)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("decade", range(10))
def test_no_job_is_submitted_twice_and_none_is_left_alone(
    coordinators: Coordinators, tmp_path: Path, decade: int
) -> None:
    for seed in range(10 * decade, 10 * decade + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_one(coordinators, folder, random.Random(seed))


def check_one(coordinators: Coordinators, folder: Path, dice: random.Random) -> None:
    cluster = Cluster(folder, dice)
    tasks, pack = dice.randrange(1, 9), dice.choice((1, 1, 3))
    (folder / "pack").write_text(str(pack))
    create(folder, tasks)
    for _ in range(3):
        fault, value = dice.choice(FAULTS)
        if fault is not None:
            cluster.fake.fault("sbatch", fault, value=value)
    kills = dice.randrange(1, 4)
    deadline, code = time.monotonic() + LIMIT_S, None
    while code != 0:
        assert time.monotonic() < deadline, f"not over; {cluster.ran}"
        pid = coordinators.start(folder)
        kill_at = time.monotonic() + dice.uniform(0.0, 0.35) if kills > 0 else deadline
        while is_running(pid):
            cluster.run_some()
            if time.monotonic() >= kill_at:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        kills -= 1
        code = coordinators.end()
        assert code in (0, -signal.SIGKILL)

    jobs = cluster.fake.jobs()
    assert cluster.ran == {**{f"t{number}": 1 for number in range(tasks)}, "last": 1}
    assert cluster.orphans == []
    assert not [job for job in jobs if job.is_active]
    assert len(jobs) == -(-tasks // pack) + 1
    store = open_store(folder / "store")
    assert {entry["attempt_no"] for entry in store.task_entries("wf").values()} == {1}
    store.close()
