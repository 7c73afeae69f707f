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
from executors.pjm.conftest import folder_of, success
from executors.pjm.plain_pjm import ENDED, PlainPjm
from reliability.slurm_coordinators import create

LIMIT_S: Final = 40.0
DECADES: Final = 20 if os.environ.get("DAGKIT_ALL_KILLS") else 1
#: What may happen to a call of pjsub in these runs; most of them are ordinary.
FAULTS: Final[tuple[tuple[str, float], ...]] = (
    ("", 0.0),
    ("", 0.0),
    ("slow", 0.1),
    ("slow", 0.3),
    ("kills caller before", 0.0),
    ("kills caller after", 0.0),
    ("times out", 0.0),
    ("is silent", 0.0),
    ("garbled", 0.0),
    ("fails", 0.0),
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
        self.pjm, self._dice = PlainPjm(folder / "pjm"), dice
        self.pjm.set(lag_s=0.05, live_s=3.0)
        self.ran: Counter[str] = Counter()
        self.orphans: list[str] = []

    def run_some(self) -> None:
        """Some of what waits runs, and leaves its completions before or after it ends."""
        for job, sub, name, script, _ in self.pjm.jobs("QUE", "RUN"):
            if self._dice.random() >= 0.6:
                continue
            folder = folder_of(script)
            try:
                _, messages, _ = folder.read(max(sub, 0))
            except BackendError:  # its folder is gone: whoever submitted it does not want it
                self.orphans.append(name)
            else:
                for place, message in enumerate(messages):
                    folder.finish(max(sub, 0), place, success(message))
                    self.ran[message.task] += 1
            self.pjm.change(job, sub, "EXT", 0)


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
            machine.pjm.fault("pjsub", fault, value=value)
    kills = dice.randrange(1, 4)
    deadline, code = time.monotonic() + LIMIT_S, None
    while code != 0:
        assert time.monotonic() < deadline, f"not over; {machine.ran} {machine.pjm.submits()}"
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
    assert not [job for job in machine.pjm.jobs() if job[4] not in ENDED]
    assert {name for name, count in Counter(name for name, _ in machine.pjm.submits()).items() if count > 1} == set()
    store = open_store(folder / "store")
    assert {entry["attempt_no"] for entry in store.task_entries("wf").values()} == {1}
    store.close()
