"""The script that deploys to Azure, with an `az` that notes what it is asked for: no subscription is at hand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples/azure/deploy.sh"
AZ = """\
#!/bin/sh
printf '%s\\n' "az $*" >> "$AZ_LOG"
case "$*" in *"--output tsv"*) echo a-value;; esac
"""


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    program = tmp_path / "az"
    program.write_text(AZ)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "AZ_LOG": str(tmp_path / "log")}
    subprocess.run([SCRIPT, "lab", "labacct"], check=True, env=environment, cwd=ROOT, timeout=60, capture_output=True)
    return (tmp_path / "log").read_text().splitlines()


def test_it_gives_both_the_identity_and_its_user_the_roles_that_are_needed(asked: list[str]) -> None:
    roles = [re.findall(r"--role (.+?) --scope", line)[0] for line in asked if "--role Storage" in line]

    assert sorted(roles) == sorted(2 * [f"Storage {one} Data Contributor" for one in ("Blob", "Queue", "Table")])


def test_there_is_one_coordinator_and_workers_that_scale_with_their_queue(asked: list[str]) -> None:
    apps = {re.findall(r"--name (\S+)", line)[0]: line for line in asked if "containerapp create" in line}

    assert set(apps) == {"coordinator", "worker-cpu", "worker-gpu"}
    assert "--min-replicas 1 --max-replicas 1" in apps["coordinator"]
    for queue in ("cpu", "gpu"):
        assert f"--args worker {queue} " in apps[f"worker-{queue}"]
        assert f"accountName=labacct queueName={queue}" in apps[f"worker-{queue}"]
    assert all("JOBQ_WORKFLOW_PREFIX=labacct/proj" in line for line in apps.values())


def test_every_command_of_the_script_is_told_on_the_page(asked: list[str]) -> None:
    page = (ROOT / "docs/how-to/run-on-azure.md").read_text(encoding="utf-8")
    verbs = {" ".join(re.findall(r"^az((?: [a-z-]+)+?)(?= --|$)", line)).strip() for line in asked}

    assert {verb for verb in verbs if f"az {verb}" not in page} == set()
