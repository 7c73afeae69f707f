"""Attempts that hold more memory than they asked for, stopped on this machine as a cluster would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dagkit import task
from dagkit.executors.local import LocalExecutor
from dagkit.executors.memory import limit_of
from dagkit.model.messages import TaskMessage
from dagkit.model.states import FailureKind
from executors.driving import call, message, run_all

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of processes is read in /proc")

#: Holds that many MiB for a while, in a process of its own.
HOLD = f'{sys.executable} -c "import time; held = bytearray({{mib}} << 20); time.sleep({{seconds}})"'


def asking(name: str, kwargs: dict[str, Any], memory: Any) -> TaskMessage:
    return message(name, kwargs, resources={"memory": memory})


def test_a_call_that_holds_too_much_is_killed_and_its_neighbour_goes_on(executor: LocalExecutor) -> None:
    ended = run_all(
        executor,
        [
            asking("greedy", call("hold_memory", 400, 60.0), "200M"),
            asking("modest", call("hold_memory", 20, 0.5), "500M"),
        ],
    )

    assert (ended["greedy"].success, ended["greedy"].kind) == (False, FailureKind.MEMORY)
    assert ended["greedy"].error == "held more than the 200M of memory that it asked for"
    assert ended["modest"].success


def test_a_command_is_held_to_it_with_all_that_it_starts(executor: LocalExecutor) -> None:
    both = f"{HOLD.format(mib=120, seconds=60)} & {HOLD.format(mib=120, seconds=60)}; wait"
    ended = run_all(
        executor,
        [
            asking("greedy", {"cmd": both}, "200M"),
            asking("modest", {"cmd": HOLD.format(mib=120, seconds=0.5)}, "200M"),
        ],
    )

    assert ended["greedy"].kind is FailureKind.MEMORY
    assert ended["modest"].success


def test_without_a_request_nothing_is_measured(executor: LocalExecutor) -> None:
    ended = run_all(executor, [message("free", call("hold_memory", 300, 0.5))])
    assert ended["free"].success


@pytest.mark.parametrize(
    ("resources", "limit"),
    [(None, None), ({}, None), ({"memory": "1G"}, 1 << 30), ({"memory": 5}, 5), ({"memory": "lots"}, None)],
)
def test_limits(resources: Any, limit: int | None) -> None:
    assert limit_of(resources) == limit


@task(memory="150M", retries=2, resource_scales={"memory": 3.0})
def grow(mib: int) -> int:
    import time

    held = bytearray(mib << 20)
    time.sleep(0.6)
    return len(held)


def test_resource_retry_can_be_rehearsed_on_a_laptop(tmp_path: Path) -> None:
    run = grow(250).run(store=str(tmp_path / ".dagkit"), progress=False)

    assert run.result() == 250 << 20
    row = run.task("grow")
    assert (row.attempt, row.resources["memory"]) == (2, "600M")
