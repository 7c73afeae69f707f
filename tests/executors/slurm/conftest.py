from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.executors.slurm.commands import Commands
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.watch import Patience
from dagkit.stores.base import Store
from dagkit.testing.slurm import FakeSlurm

#: What takes a minute on a cluster takes a moment here.
QUICK = Patience(
    collect_s=0.0,
    look_s=0.02,
    most_look_s=0.1,
    grace_s=0.3,
    short_grace_s=0.1,
    gone_s=60,
    settle_s=0.3,
    files_s=0.02,
)


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm")


@pytest.fixture
def make(fake: FakeSlurm, store: Store, tmp_path: Path) -> Iterator[Callable[..., SlurmExecutor]]:
    """Makes executors over the fake, all with the same folder; the last is closed by the test's end, as all are."""
    made: list[SlurmExecutor] = []

    def executor(**settings: Any) -> SlurmExecutor:
        commands = Commands(20.0, {**os.environ, **fake.environment})
        chosen = {"patience": QUICK, "commands": commands, "folder": tmp_path / "spools", **settings}
        made.append(SlurmExecutor(store, **chosen))
        return made[-1]

    yield executor
    for one in made:
        one.close()


@pytest.fixture
def slurm_executor(make: Callable[..., SlurmExecutor]) -> SlurmExecutor:
    return make()
