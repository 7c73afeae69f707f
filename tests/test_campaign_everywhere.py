"""What a long campaign needs, the same on every target and store: this machine, queues with a worker, a real Slurm."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import shell, task, workflow
from dagkit.errors import RunTimeout
from dagkit.model.states import RunStatus
from dagkit.queues import open_transport
from dagkit.run import Run
from dagkit.settings import WorkerSettings
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.testing import MemoryStore
from dagkit.worker import Worker

LIMIT_S = 60.0
QUICK = "look_s = 0.3\nmost_look_s = 1\ngrace_s = 5\nshort_grace_s = 1\ncollect_s = 0.1\nfiles_s = 0.1\n"
TARGETS = f"""
[targets.local]
default = "local"
[targets.local.queues.brief]
executor = "local"
max_runtime = "2s"
[targets.local.queues.large]
executor = "local"
default_memory = "500M"

[targets.queued]
default = "queued"
[targets.queued.queues.brief]
executor = "queued"
max_runtime = "2s"
[targets.queued.queues.large]
executor = "queued"
default_memory = "500M"

[targets.slurm]
default = "slurm"
{QUICK}
[targets.slurm.queues.brief]
executor = "slurm"
max_runtime = "2s"
default_memory = "100M"
[targets.slurm.queues.large]
executor = "slurm"
default_memory = "500M"
[targets.slurm.queues.default]
executor = "slurm"
default_memory = "100M"
"""


@dataclass
class Place:
    """Where campaigns are tried, in a folder of their own that is also where this process works."""

    target: str
    store: Store | str
    folder: Path

    def start(self, flow: Any, **options: Any) -> Run:
        started: Run = flow.run(store=self.store, target=self.target, wait=False, progress=False, **options)
        return started

    def ran(self, flow: Any, **options: Any) -> Run:
        run = self.start(flow, **options)
        run.wait(LIMIT_S)
        return run


@pytest.fixture(
    params=["memory", "local", "queued", pytest.param("slurm", marks=pytest.mark.xdist_group("slurm"))],
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind: str = request.param
    if kind == "slurm":
        request.getfixturevalue("slurm")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dagkit.toml").write_text(TARGETS)
    target = "local" if kind == "memory" else kind
    with ExitStack() as workers:
        for queue in ("default", "large", "brief") if kind == "queued" else ():
            workers.enter_context(serving(tmp_path / ".dagkit", queue))
        yield Place(target, MemoryStore() if kind == "memory" else str(tmp_path / ".dagkit"), tmp_path)
        dagkit.embedded.close_all()


@contextmanager
def serving(folder: Path, queue: str) -> Iterator[None]:
    """A worker of a queue, in a thread."""
    store = open_store(folder)
    transport = open_transport(store.url)
    worker = Worker(queue, store, transport, WorkerSettings(slots=2, grace_s=0.0, kill_timeout_s=1.0))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(30)
        transport.close()
        store.close()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@task(memory="200M", retries=2, resource_scales={"memory": 1.0})
def hold(mib: int) -> int:
    held = bytearray(mib << 20)
    time.sleep(0.6)
    return len(held) >> 20


def gated(folder: Path, count: int) -> Any:
    @workflow
    def flow() -> Any:
        first = shell(f"until test -e {folder}/gate; do sleep 0.05; done", name="first")()
        return [first, *(shell("true", name=f"later-{k}")() for k in range(count))]

    return flow()


def test_what_ran_out_of_memory_gets_more_and_both_attempts_are_measured(place: Place) -> None:
    run = place.ran(hold(300))

    assert run.result() == 300
    row = run.task("hold")
    assert (row.attempt, row.resources["memory"], [one["kind"] for one in row.past]) == (2, "400M", ["memory"])
    assert 300 <= row.usage["peak_rss_bytes"] / 2**20 < 400
    (used,) = run.usage()
    assert (used["tasks"], used["attempts"]) == (1, 2)
    assert run.resources()["hold"]["memory"].endswith("M")


def test_what_ran_out_of_time_gets_more_on_a_queue_that_has_it(place: Place) -> None:
    slow = shell("sleep 3", name="slow").options(
        runtime="2s", retries=1, queue="brief", fallback_queues=["large"], resource_scales={"runtime": 9}
    )

    run = place.ran(slow())

    row = run.task("slow")
    assert (row.state.value, row.attempt, row.queue) == ("completed", 2, "large")
    assert [one["kind"] for one in row.past] == ["timeout"]
    assert row.resources["runtime"] == "20s"


def test_limits_pause_a_run_and_let_it_go_on(place: Place) -> None:
    run = place.start(gated(place.folder, 3), max_parallelism=1)
    until(lambda: run.task("first").state.value == "running")

    run.limit(0)
    (place.folder / "gate").touch()
    until(lambda: run.counts.completed == 1)
    with pytest.raises(RunTimeout):
        run.wait(0.3)
    assert run.counts.ended == 1

    run.limit(2)
    run.wait(LIMIT_S)
    assert run.counts.completed == 4


def test_a_run_timeout_leaves_the_work_going_on(place: Place) -> None:
    run = place.start(gated(place.folder, 0))
    with pytest.raises(RunTimeout):
        run.wait(0.2)

    (place.folder / "gate").touch()

    assert run.wait(LIMIT_S) is RunStatus.COMPLETED


def test_fail_fast_stops_what_has_not_begun_and_a_retry_runs_it(place: Place) -> None:
    fixed = place.folder / "fixed"

    @workflow
    def flow() -> Any:
        bad = shell(f"test -e {fixed}", name="bad")()
        other = shell("sleep 0.2", name="other")()
        return [bad, other, *(shell("true", name=f"later-{k}").options(after=[other])() for k in range(2))]

    run = place.ran(flow(), fail_fast=True)

    assert run.status is RunStatus.FAILED
    assert [error.task for error in run.errors()] == ["bad"]
    assert run.counts.cancelled + run.counts.completed == 3

    fixed.touch()
    run.retry()
    assert run.wait(LIMIT_S) is RunStatus.COMPLETED


def test_tasks_are_set_completed_or_pending_and_everything_is_reset(place: Place) -> None:
    @workflow
    def flow() -> Any:
        bad = shell("echo ran >> marks; false", name="bad", cwd=str(place.folder))()
        return shell("true", name="after").options(after=[bad])()

    run = place.ran(flow())
    assert run.status is RunStatus.FAILED

    run.set_status(["bad"], "completed")
    assert run.wait(LIMIT_S) is RunStatus.COMPLETED

    run.set_status(["bad"], "pending")
    assert run.wait(LIMIT_S) is RunStatus.FAILED
    assert run.reset() == 2
    assert run.wait(LIMIT_S) is RunStatus.FAILED
    assert (place.folder / "marks").read_text() == "ran\n" * 3


def test_hot_resume_keeps_what_is_done_and_cold_resume_runs_the_rest_again(place: Place) -> None:
    fixed = place.folder / "fixed"

    @workflow
    def flow() -> Any:
        good = shell("echo ran >> marks", name="good", cwd=str(place.folder))()
        return shell(f"test -e {fixed}", name="bad").options(after=[good])()

    run = place.ran(flow(), id="again")
    assert run.status is RunStatus.FAILED
    fixed.touch()

    assert place.ran(flow(), id="again", resume="cold").status is RunStatus.COMPLETED
    assert place.ran(flow(), id="again", resume=True).status is RunStatus.COMPLETED
    assert (place.folder / "marks").read_text() == "ran\n"


def test_resources_and_queue_may_be_decided_by_a_task_before(place: Place) -> None:
    @task
    def probe() -> dict[str, Any]:
        return {"mem": "300M", "queue": "large"}

    @task
    def where() -> str:
        return os.environ.get("SLURM_JOB_PARTITION", "here")

    @workflow
    def flow() -> Any:
        found = probe()
        return where.options(resources={"memory": found["mem"], "queue": found["queue"]})()

    run = place.ran(flow())

    row = run.task("where")
    assert (row.queue, row.resources["memory"], row.state.value) == ("large", "300M", "completed")
