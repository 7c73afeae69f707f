"""A real Slurm with accounting on this machine, one for the session: two nodes by name, 16 processors each by its word.

Partitions: `debug` (the default), `minute` (at most one minute), `scavenge` (jobs in it are preempted by the others),
`both` (two nodes). The quality of service `four` allows a user four jobs at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.processes import die_with_parent, free_ports, require

__all__ = ["Slurm", "slurm", "slurm_cluster"]

_PROGRAMS = ("sbatch", "slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd")
_PLACES = (Path("/usr/sbin"), Path("/usr/bin"))


@dataclass(frozen=True)
class Slurm:
    """How to reach the cluster.

    Attributes:
        enforcement: What ends a job over its memory: `cgroup` (OUT_OF_MEMORY) or `polling` (FAILED with signal 9).
    """

    folder: Path
    enforcement: str

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def ask(self, *command: str) -> str:
        """What a command of Slurm says."""
        asked = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30, env={**os.environ, **self.environment}
        )
        return asked.stdout

    def queued_jobs(self, template: str, partition: str = "debug") -> list[str]:
        """Ids and states of what is pending or running of a template in a partition, an element of an array each.

        Not what is completing: it has ended, and its node is slow to say so.
        """
        rows = [row.split() for row in self.ask("squeue", "-h", "-r", "-o", "%i %T %j", "-p", partition).splitlines()]
        return [f"{job} {state}" for job, state, name in rows if name.startswith(template) and state != "COMPLETING"]


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The daemons; the test fails in CI and is skipped elsewhere if they are not installed, or root does not run it."""
    for program in _PROGRAMS:
        require(program, *_PLACES)
    if os.geteuid() != 0:
        pytest.skip("the daemons of Slurm are started by root only")
    folder = tmp_path_factory.mktemp("slurm")
    daemons = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("slurm_daemons.py")), str(folder), *map(str, free_ports(5))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    )
    assert daemons.stdin is not None
    assert daemons.stdout is not None
    word, _, rest = daemons.stdout.readline().strip().partition(" ")
    if word != "ready":
        pytest.fail(f"Slurm did not start: {rest}{daemons.communicate(timeout=60)[0]}", pytrace=False)
    yield Slurm(folder, rest)
    daemons.communicate(timeout=60)


@pytest.fixture
def slurm(slurm_cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The cluster, found by this process and its children; what they leave in it is cancelled, but in `minute`."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield slurm_cluster
    for partition in ("debug", "scavenge", "both"):
        slurm_cluster.ask("scancel", "--user=root", "--full", f"--partition={partition}")
