from __future__ import annotations

import pytest

from services.processes import wait_until
from services.slurm import Slurm

pytestmark = pytest.mark.xdist_group("slurm")


def test_a_job_runs_and_is_accounted_for(slurm: Slurm) -> None:
    number = slurm.ask("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()

    def states() -> list[str]:
        return slurm.ask("sacct", "-nPX", "-o", "State", "-j", number).split()

    wait_until(lambda: states() == ["COMPLETED"], "the job is COMPLETED in the accounting database")
