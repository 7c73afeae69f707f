from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagkit.config import load_settings
from dagkit.doctor import examine
from dagkit.executors.slurm.check import check
from dagkit.executors.slurm.commands import Commands
from dagkit.testing.slurm import FakeSlurm

SCRIPT = "#!/bin/sh\n#SBATCH --job-name=x\n"


@pytest.fixture
def commands(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", fake.environment["PATH"])
    return Commands(10.0)


def submit(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    path.write_text(SCRIPT)
    commands.sbatch(path, has_jobs=False)


def test_a_cluster_that_answers_is_well(commands: Commands, tmp_path: Path) -> None:
    submit(commands, tmp_path)

    found = list(check(commands))

    assert [status for status, _, _ in found] == ["pass", "pass"]
    assert "1 jobs of yours, 1 of them wait" in found[0][1]


def test_jobs_that_may_wait_for_ever_are_named_with_their_reason(
    fake: FakeSlurm, commands: Commands, tmp_path: Path
) -> None:
    submit(commands, tmp_path)
    fake.hold(fake.jobs()[0], "PartitionTimeLimit")

    (worry,) = [finding for finding in check(commands) if finding[0] == "warn"]

    assert "PartitionTimeLimit" in worry[1]
    assert worry[1].endswith(": 1")


def test_no_accounting_is_a_warning(fake: FakeSlurm, commands: Commands) -> None:
    fake.set("accounting_off", 1)

    assert [status for status, _, _ in check(commands)] == ["pass", "warn"]


def test_a_controller_that_does_not_answer_is_a_failure(fake: FakeSlurm, commands: Commands) -> None:
    fake.fault("squeue", "fails")

    ((status, message, _),) = check(commands)

    assert status == "fail"
    assert "Socket timed out" in message


def test_the_doctor_looks_where_a_target_has_queues_on_slurm(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "dagkit.toml"
    path.write_text("[targets.hpc.queues]\ngpu = 'slurm'\n")

    with_slurm = examine(load_settings(config=path, environ={}, cwd=tmp_path))
    path.write_text("")
    without = examine(load_settings(config=path, environ={}, cwd=tmp_path))

    assert [one.status for one in with_slurm if one.name == "slurm"] == ["pass", "pass"]
    assert not [one for one in without if one.name == "slurm"]


def test_commands_do_not_inherit_the_job_that_they_run_in(fake: FakeSlurm, tmp_path: Path) -> None:
    told = fake.bin / "sbatch"
    told.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\necho 7\n")
    inside = {"SLURM_JOB_ID": "3", "SLURM_MEM_PER_CPU": "100", "SLURM_CONF": "/etc/x", "SBATCH_ACCOUNT": "me"}

    Commands(10.0, {**os.environ, **fake.environment, **inside}).sbatch(tmp_path / "x.sh", has_jobs=False)

    found = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert {name for name in found if name.startswith(("SLURM_", "SBATCH_"))} == {
        "SLURM_CONF",
        "SLURM_BITSTR_LEN",
        "SBATCH_ACCOUNT",
    }
