"""Bulk jobs on PJM: `dagkit bulk run` is killed again and again, and every job runs once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit.testing.pjm import PjmSimulator, Site

CAMPAIGN = """\
command: [/bin/sh, -c, 'echo ran >> out.txt']
hpc: {target: fugaku}
jobs:
"""
FUGAKU = """\
[targets.fugaku]
default = { executor = "pjm", group = "group1", elapse = "10m", mode = "MODE", group_size = 4, look_s = "200ms" }
refill_s = "300ms"
submit_interval_s = "0s"
settle_s = "3s"
files_s = "50ms"
"""
JOBS = 10


@pytest.fixture
def pjm(tmp_path: Path) -> Iterator[PjmSimulator]:
    machine = PjmSimulator(tmp_path / "pjm", Site.quick(nodes=1))
    machine.limit("ru-accept", 6)
    machine.limit("ru-accept-bulksubjob", 100)
    with machine.running():
        yield machine


@pytest.mark.parametrize("mode", ["single", "bulk"])
def test_a_campaign_that_is_killed_runs_every_job_once(tmp_path: Path, pjm: PjmSimulator, mode: str) -> None:
    rows = [f"  - {{job_key: k{n}, work_dir: w/{n}, expected_outputs: [out.txt]}}\n" for n in range(JOBS)]
    (tmp_path / "c.yaml").write_text(CAMPAIGN + "".join(rows))
    (tmp_path / "dagkit.toml").write_text(FUGAKU.replace("MODE", mode))
    dice, kills, code, deadline = random.Random(mode), 4, None, time.monotonic() + 90

    while code != 0:
        assert time.monotonic() < deadline
        process = subprocess.Popen(
            [sys.executable, "-m", "dagkit.cli", "bulk", "run", "c.yaml"],
            cwd=tmp_path,
            env={**pjm.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = process.wait(dice.uniform(0.4, 1.3) if kills else 60)
        except subprocess.TimeoutExpired:
            kills -= 1
            process.send_signal(signal.SIGKILL)
            process.wait()

    assert [(tmp_path / f"w/{n}/out.txt").read_text() for n in range(JOBS)] == ["ran\n"] * JOBS
    while not all(job.is_over for job in pjm.jobs()):  # a job has left its completion a moment before it ends
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found = pjm.oracle()
    assert found.duplicates == {}
    assert found.over == ()
    assert set(found.runs.values()) == {1}
    assert sum(found.runs.values()) == JOBS


def test_of_two_drivers_of_one_registry_one_waits(tmp_path: Path, pjm: PjmSimulator) -> None:
    rows = [f"  - {{job_key: k{n}, work_dir: w/{n}, expected_outputs: [out.txt]}}\n" for n in range(JOBS)]
    (tmp_path / "c.yaml").write_text(CAMPAIGN + "".join(rows))
    (tmp_path / "dagkit.toml").write_text(FUGAKU.replace("MODE", "single"))
    line = [sys.executable, "-m", "dagkit.cli", "bulk", "run", "c.yaml"]

    drivers = [
        subprocess.Popen(line, cwd=tmp_path, env={**pjm.environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [driver.communicate(timeout=90)[1].decode() for driver in drivers]

    assert [driver.returncode for driver in drivers] == [0, 0]
    assert sum("is driven by" in text for text in said) == 1
    assert [(tmp_path / f"w/{n}/out.txt").read_text() for n in range(JOBS)] == ["ran\n"] * JOBS
    assert sum(pjm.oracle().runs.values()) == len(pjm.oracle().submits) == JOBS
