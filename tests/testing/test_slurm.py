from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dagkit.executors.slurm.commands import Commands, NoAccounting, Refused
from dagkit.executors.slurm.refusals import Refusal
from dagkit.testing.slurm import FakeSlurm

SCRIPT = "#!/bin/bash\n#SBATCH --job-name=fit.a\n{}exit 0\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm")


@pytest.fixture
def commands(fake: FakeSlurm) -> Commands:
    return Commands(environ={**os.environ, **fake.environment}, timeout_s=20)


def script(tmp_path: Path, array: str = "") -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT.format(f"#SBATCH --array={array}\n" if array else ""))
    return path


def test_a_job_is_accepted_listed_run_and_accounted_for(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    number = commands.sbatch(script(tmp_path), has_jobs=False)

    assert {job: row.state for job, row in commands.squeue().items()} == {number: "PENDING"}
    assert fake.run_all() == 1
    assert commands.squeue() == {}
    assert commands.squeue(with_ended=True)[number].state == "COMPLETED"
    assert commands.sacct([number])[number].state == "COMPLETED"


def test_elements_of_an_array_are_jobs_of_their_own(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    number = commands.sbatch(script(tmp_path, "0-3%4"), has_jobs=False)
    first, second, *_ = fake.jobs()

    fake.end(first, "OUT_OF_MEMORY", 0, 125)
    commands.scancel([second.id])

    assert sorted(commands.squeue()) == [f"{number}_2", f"{number}_3"]
    states = {job: row.state for job, row in commands.sacct([number]).items()}
    assert states == {f"{number}_{n}": s for n, s in enumerate(("OUT_OF_MEMORY", "CANCELLED", "PENDING", "PENDING"))}


@pytest.mark.parametrize(("fault", "accepted"), [("times out, accepted", 1), ("times out, not accepted", 0)])
def test_sbatch_that_times_out_may_have_made_the_job(
    fake: FakeSlurm, commands: Commands, tmp_path: Path, fault: str, accepted: int
) -> None:
    fake.fault("sbatch", fault)  # type: ignore[arg-type]

    with pytest.raises(Refused) as caught:
        commands.sbatch(script(tmp_path), has_jobs=False)

    assert caught.value.refusal is Refusal.UNCERTAIN
    assert len(fake.jobs()) == accepted
    assert commands.sbatch(script(tmp_path), has_jobs=False)


def test_sbatch_that_hangs_is_cut_off(fake: FakeSlurm, tmp_path: Path) -> None:
    fake.fault("sbatch", "hangs, accepted", value=60)

    with pytest.raises(Refused) as caught:
        Commands(timeout_s=1.0, environ={**os.environ, **fake.environment}).sbatch(script(tmp_path), has_jobs=False)

    assert caught.value.refusal is Refusal.UNCERTAIN
    assert len(fake.jobs()) == 1


def test_sbatch_that_waits_for_room_is_not_waited_for(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    fake.fault("sbatch", "is full", value=60)

    with pytest.raises(Refused) as caught:
        commands.sbatch(script(tmp_path), has_jobs=True)

    assert caught.value.refusal is Refusal.DEFERRED
    assert fake.jobs() == []


def test_the_submit_limit_counts_elements(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    fake.set("submit_limit", 4)
    commands.sbatch(script(tmp_path, "0-2%3"), has_jobs=False)

    with pytest.raises(Refused) as caught:
        commands.sbatch(script(tmp_path, "0-1%2"), has_jobs=True)

    assert caught.value.refusal is Refusal.DEFERRED
    assert commands.sbatch(script(tmp_path), has_jobs=True)


def test_accounting_lags_or_is_off(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    number = commands.sbatch(script(tmp_path), has_jobs=False)
    fake.run_all()

    fake.set("sacct_lag_s", 1000)
    assert commands.sacct([number]) == {}
    fake.set("accounting_off", 1)
    with pytest.raises(NoAccounting):
        commands.sacct([number])


def test_a_job_that_vanished_is_known_to_nobody(fake: FakeSlurm, commands: Commands, tmp_path: Path) -> None:
    number = commands.sbatch(script(tmp_path), has_jobs=False)
    fake.vanish(fake.jobs()[0])

    assert commands.squeue(with_ended=True) == {}
    assert commands.sacct([number]) == {}


def test_the_caller_of_sbatch_can_be_killed_at_the_worst_moment(fake: FakeSlurm, tmp_path: Path) -> None:
    path = script(tmp_path)
    for fault, accepted in (("kills caller before", 1), ("kills caller after", 2)):
        fake.fault("sbatch", fault)  # type: ignore[arg-type]
        caller = subprocess.run(
            ["bash", "-c", f"sbatch --parsable {path}; echo never"],
            env={**os.environ, **fake.environment},
            capture_output=True,
            check=False,
            timeout=20,
        )

        assert caller.returncode == -9
        assert caller.stdout in (b"", b"1\n", b"2\n")
        assert len(fake.jobs()) == accepted
