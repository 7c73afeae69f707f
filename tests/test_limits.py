"""Limits of a run, changed while it goes on, from this process and from any other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import shell, task, workflow
from dagkit.errors import UsageError

LIMIT_S = 20.0


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@task
def nothing(k: int) -> int:
    return k


@workflow
def several(count: int) -> Any:
    return nothing.map(range(count))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / ".dagkit")


def test_a_paused_run_starts_nothing_until_it_goes_on(store: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @workflow
    def gated() -> Any:
        shell(f"until test -e {gate}; do sleep 0.02; done", name="first")()
        return [shell("true", name=f"later-{k}")() for k in range(4)]

    run = gated().run(store=store, wait=False, max_parallelism=1, progress=False)
    until(lambda: run.task("first").state.value == "running")
    run.limit(0)
    gate.touch()
    until(lambda: run.counts.completed == 1)

    with pytest.raises(dagkit.errors.RunTimeout):
        run.wait(0.5)
    assert run.counts.ended == 1

    run.limit(None)
    run.wait(LIMIT_S)
    assert run.counts.completed == 5


def test_another_process_changes_the_limit_of_a_run_that_is_driven_here(store: str, tmp_path: Path) -> None:
    run = several(3).run(store=store, wait=False, id="mine", progress=False, max_parallelism=1)
    run.limit(0)
    # whatever had begun has ended by now: nothing will be saved that could meet the change
    until(lambda: run.counts.running == 0)

    words = [sys.executable, "-m", "dagkit.cli", "--store", store, "limit", "mine", "--max", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "Workflow mine runs at most 2 tasks at a time.\n"
    run.wait(LIMIT_S)
    assert run.result() == [0, 1, 2]


def test_a_template_that_the_run_does_not_have_is_named(store: str) -> None:
    run = several(2).run(store=store, progress=False)
    with pytest.raises(UsageError, match="no template 'nothin'; did you mean nothing"):
        run.limit(1, "nothin")
