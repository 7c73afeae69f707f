"""The examples of examples/slurm, on the real Slurm and without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.slurm import Slurm

EXAMPLES = Path(__file__).parents[3] / "examples" / "slurm"

SAYS = {
    "sweep.py": ["40 fits, slope 2.0", "fitting on"],
    "long.py": ["value 1.0202 after 20 steps"],
}


def run(script: str, folder: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DAGKIT_", "JOBQ_"))}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize("script", SAYS)
def test_it_runs_on_slurm(script: str, slurm: Slurm, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "dagkit.toml", tmp_path)

    said = run(script, tmp_path, "--quick")

    for text in SAYS[script]:
        assert text in said


@pytest.mark.parametrize("script", SAYS)
def test_it_runs_without(script: str, tmp_path: Path) -> None:
    said = run(script, tmp_path, "--target", "local", "--quick")

    for text in SAYS[script]:
        assert text in said


def test_every_script_is_tried() -> None:
    assert set(SAYS) == {file.name for file in EXAMPLES.glob("*.py")}
