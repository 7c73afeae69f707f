"""`dagkit pjm simulate` and `dagkit pjm rehearse`, as they are typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dagkit.testing.pjm import PjmSimulator

CAMPAIGN = """\
command: [/bin/sh, -c, 'sleep "$1"; echo ran >> out.txt', job]
registry: campaign.db
hpc: {target: fugaku}
jobs:
  - {job_key: a, work_dir: w/a, command_args: ["0"], expected_outputs: [out.txt]}
  - {job_key: b, work_dir: w/b, command_args: ["0"], expected_outputs: [out.txt]}
"""
FUGAKU = """\
[targets.fugaku]
default = { executor = "pjm", rscgrp = "small", group = "hp000000", elapse = "10m" }
look_s = "300ms"
refill_s = "1s"
submit_interval_s = "0s"

[targets.patient]
default = { executor = "pjm", group = "hp000000", max_submit_per_refill = 20 }
refill_s = "30s"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    (tmp_path / "dagkit.toml").write_text(FUGAKU)
    return tmp_path


def dagkit(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dagkit.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def simulate(folder: Path, *words: str, code: int = 0) -> str:
    return dagkit(folder, "pjm", "simulate", "--speed", "50", *words, code=code)


def test_a_campaign_runs_in_the_simulated_machine_and_again_does_nothing(folder: Path) -> None:
    line = (sys.executable, "-m", "dagkit.cli", "bulk", "run", "campaign.yaml")

    assert "ran: 2 parts; names used twice: 0" in simulate(folder, *line)
    assert "ran: 2 parts; names used twice: 0" in simulate(folder, *line)

    assert (folder / "w/a/out.txt").read_text() == "ran\n"


def test_the_exit_code_is_that_of_the_command(folder: Path) -> None:
    simulate(folder, "sh", "-c", "exit 3", code=3)
    assert "not a program" in simulate(folder, "no-such-program", code=2)


def test_what_ran_when_the_shell_ended_has_lost_its_node(folder: Path) -> None:
    (folder / "job.sh").write_text("sleep 100\n")
    script = "pjsub -g hp000000 job.sh; until pjstat | grep -q RUN; do sleep 0.1; done"

    simulate(folder, "sh", "-c", script)

    assert [(job.st, job.pc) for job in PjmSimulator(folder / ".pjmsim").jobs()] == [("EXT", 20)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_runs_on_when_the_simulator_is_ended(folder: Path, number: signal.Signals) -> None:
    (folder / "job.sh").write_text(f"echo $$ > {folder}/pid; exec sleep 100\n")
    process = begin(folder, "sh", "-c", "pjsub -g hp000000 job.sh; sleep 100")
    until(lambda: (folder / "pid").is_file() and bool((folder / "pid").read_text()))

    os.killpg(process.pid, number)
    process.wait(30)

    until(lambda: not Path(f"/proc/{int((folder / 'pid').read_text())}").exists())


def test_an_interrupt_is_the_commands(folder: Path) -> None:
    """What was typed into the shell died of an interrupt that it would have handled."""
    process = begin(folder, "sh", "-c", "trap 'sleep 0.5; echo handled > handled' INT; touch ready; sleep 5; exit 7")
    until(lambda: (folder / "ready").exists())

    os.killpg(process.pid, signal.SIGINT)

    assert process.wait(30) == 7
    assert (folder / "handled").exists()


def begin(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "dagkit.cli", "pjm", "simulate", "--speed", "50", *words]
    return subprocess.Popen(line, cwd=folder, start_new_session=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_campaign_is_foreseen(folder: Path) -> None:
    asked = ("pjm", "rehearse", "--jobs", "60", "--nodes", "20", "--accept", "10", "--bulksubjob", "100")

    said = dagkit(folder, *asked, "--target", "patient")
    found, _ = json.JSONDecoder().raw_decode(dagkit(folder, *asked, "--mode", "single", "--outage", "10m", "--json"))

    assert [line.split()[0] for line in said.splitlines()] == ["mode", "single", "bulk", "auto"]
    assert (found[0]["refused"], found[0]["pjsub"]) == (0, 60)
    assert found[0]["elapsed_s"] > 600
    assert "no target" in dagkit(folder, "pjm", "rehearse", "--target", "elsewhere", code=2)
