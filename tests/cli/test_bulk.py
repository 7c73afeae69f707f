"""`dagkit bulk` and `dagkit pjm`, as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagkit.testing.pjm import PjmSimulator, Site

CAMPAIGN = """\
command: [/bin/sh, -c, 'test "$0" != bad && echo "$0" > out.txt']
jobs:
  - {job_key: a/1, work_dir: w/1, command_args: ["x y"], expected_outputs: [out.txt], wave_id: w1}
  - {job_key: a/2, work_dir: w/2, command_args: [bad], stage_id: s}
"""
FUGAKU = """\
[targets.fugaku]
default = { executor = "pjm", rscgrp = "small", group = "group1", elapse = "10m", node = "2x3x2", mode = "bulk" }
"""


def dagkit(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dagkit.cli", *words],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'pjm/bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    (tmp_path / "dagkit.toml").write_text(FUGAKU)
    return tmp_path


def test_a_campaign_from_a_file_to_its_end_and_again(folder: Path) -> None:
    assert "1 FAILED, 1 SUCCEEDED" in dagkit(folder, "bulk", "run", "c.yaml", code=1)
    assert (folder / "w/1/out.txt").read_text() == "x y\n"
    assert "a/2: user: " in dagkit(folder, "bulk", "status", "c.yaml", "--failed")
    document = json.loads(dagkit(folder, "bulk", "status", "c.yaml", "--json"))
    assert document["ready_waves"] == ["w1"]

    assert "1 job will run again" in dagkit(folder, "bulk", "reset", "c.yaml")
    assert "cancelled 1 job" in dagkit(folder, "bulk", "cancel", "c.yaml", "a/2")
    assert "1 CANCELLED, 1 SUCCEEDED" in dagkit(folder, "bulk", "status", "c.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command: [a]\njobs: [{job_kee: a}]", "jobs[0]: no key 'job_kee'"),
        ("command: a b\njobs: []", "is not a list of texts"),
        ("jobs: []", "needs `command`"),
        ("command: [a]\njobs: [{job_key: a, hpc_profile: {target: 1, wo: 2}}]", "no key 'wo'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(folder: Path, text: str, said: str) -> None:
    (folder / "c.yaml").write_text(text)

    assert said in dagkit(folder, "bulk", "run", "c.yaml", code=2)


def test_a_dry_run_prints_the_command_and_the_script(folder: Path) -> None:
    (folder / "c.yaml").write_text(CAMPAIGN + "hpc: {target: fugaku, options: {mpi: {proc: 4}}}\n")

    said = dagkit(folder, "pjm", "dry-run", "c.yaml")

    assert "pjsub --bulk --sparam 0-99 -N bulk-" in said
    assert "-L node=2x3x2,elapse=0:10:00,rscgrp=small -g group1 --mpi proc=4" in said
    assert "-m dagkit.executors.job" in said
    assert "x y" not in said


def test_plan_shows_the_scripts_of_a_workflow(folder: Path) -> None:
    (folder / "flow.yaml").write_text("name: f\ntasks:\n  - {name: a, kwargs: {cmd: 'echo secret'}}\n")

    said = dagkit(folder, "plan", "flow.yaml", "--target", "fugaku", "--scripts")

    assert "pjsub" in said
    assert "secret" not in said
    assert "no queue of target local" in dagkit(folder, "plan", "flow.yaml", "--target", "local", "--scripts")


def test_doctor_finds_what_is_wrong_with_a_machine(folder: Path) -> None:
    assert "not on PATH" in dagkit(folder, "pjm", "doctor", "--target", "fugaku", code=1)
    pjm = PjmSimulator(folder / "pjm", Site.quick())
    pjm.limit("ru-accept", 20)
    pjm.limit("ru-accept-bulksubjob", 200)

    said = dagkit(folder, "pjm", "doctor", "--target", "fugaku", "--submit", "-o", "found.json")

    assert "FAIL" not in said
    assert all(check["ok"] for check in json.loads((folder / "found.json").read_text()))
    assert "20 single jobs, 200 sub-jobs" in dagkit(folder, "pjm", "limits")


def test_a_template_of_ones_own_replaces_the_script(folder: Path) -> None:
    (folder / "own.sh").write_text("#!/bin/bash\nmodule load LLVM\n{command}\n")
    (folder / "dagkit.toml").write_text(FUGAKU.replace(" }", ', template = "own.sh" }'))
    (folder / "c.yaml").write_text(CAMPAIGN + "hpc: {target: fugaku}\n")

    assert "module load LLVM" in dagkit(folder, "pjm", "dry-run", "c.yaml")
    (folder / "own.sh").write_text("#!/bin/bash\n")
    assert "has no {command}" in dagkit(folder, "pjm", "dry-run", "c.yaml", code=2)
