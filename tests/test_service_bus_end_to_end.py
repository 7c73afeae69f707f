"""Workflows whose queues are on Service Bus: a coordinator and workers as processes, killed at will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import azure_steps as steps
from dagkit import shell, task, workflow
from services.azurite import Account
from services.processes import die_with_parent, wait_until
from services.servicebus import Namespace

pytestmark = [pytest.mark.xdist_group("servicebus"), pytest.mark.slow]

TESTS = Path(__file__).parent
COMPLETIONS = {"sqlite": "workflow-completions", "azure": "proj-workflow-completions"}


class Cluster:
    """A store and a namespace, and processes that find both by the environment alone."""

    def __init__(self, store: str, folder: Path, **environment: str) -> None:
        self.store, self.folder = store, folder
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
        self.environment = {**clean, "PYTHONPATH": str(TESTS), **environment}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagkit.cli", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        self.started.append(process)
        return process

    def worker(self, queue: str, *words: str) -> subprocess.Popen[str]:
        return self.start("worker", queue, "--lock", "4s", "--cancel-poll", "0.3", *words)

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@task
def effect(number: int, path: str) -> int:
    with open(path, "a") as file:
        file.write(f"{number}\n")
    return number


@pytest.fixture(params=["sqlite", "azure"])
def cluster(request: pytest.FixtureRequest, servicebus_namespace: Namespace, tmp_path: Path) -> Iterator[Cluster]:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for queue in ("cpu", "gpu", *COMPLETIONS.values()):
        servicebus_namespace.create(queue, lock_s=4.0)
    said = {**servicebus_namespace.environment(), "JOBQ_WORKFLOW_QUEUES": servicebus_namespace.url}
    if request.param == "azure":
        account: Account = request.getfixturevalue("azurite_account")
        store = f"azure://{account.name}/Proj"
        said |= {**account.environment, "JOBQ_WORKFLOW_PREFIX": f"{account.name}/Proj"}
    else:
        store = f"sqlite:{tmp_path / 'store'}"
        said |= {"DAGKIT_STORE": store}
    cluster = Cluster(store, tmp_path, **said)
    yield cluster
    cluster.stop()


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_traced_workflow_survives_the_kill_of_a_worker_and_each_effect_happens_once(
    cluster: Cluster, servicebus_namespace: Namespace
) -> None:
    effects, go, beat = cluster.folder / "effects", cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        held = steps.waits_for(str(go), str(beat))
        parts = effect.map(number=range(20), path=[str(effects)] * 20)
        ends = shell("true", name="ends", after=[held, *parts])()
        return {"parts": parts, "held": held, "doubled": steps.double([1, 2], factor=3), "ends": ends}

    run = pipeline().submit(store=cluster.store)
    cluster.start("coordinator")
    victim = cluster.worker("cpu")
    wait_until(lambda: lines(beat) == 1, "the task runs at the first worker")
    victim.send_signal(signal.SIGKILL)
    for queue in ("cpu", "gpu"):
        cluster.worker(queue, "--slots", "2")
    wait_until(lambda: lines(beat) == 2, "the task runs again at the second")
    go.touch()

    result = run.result(timeout=60)

    assert result["parts"] == list(range(20))
    assert (result["held"], result["doubled"]) == ("done", [3, 6])
    assert sorted(map(int, effects.read_text().split())) == list(range(20))
    assert {each.attempt for each in run.tasks()} == {1}
    kind = cluster.store.partition(":")[0]
    wait_until(
        lambda: all(servicebus_namespace.counts(name)["total"] == 0 for name in ("cpu", "gpu", COMPLETIONS[kind])),
        "nothing is left on the queues",
    )


def test_a_lock_that_is_shorter_than_the_worker_asks_for_is_kept_all_the_same(
    cluster: Cluster, servicebus_namespace: Namespace
) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.waits_for(str(go), str(beat))

    run = pipeline().submit(store=cluster.store)
    for words in (("coordinator",), ("worker", "cpu"), ("worker", "cpu")):
        cluster.start(*words)
    wait_until(lambda: servicebus_namespace.look()["passed"].get("renew-lock", 0) >= 3, "more than a lock has gone by")
    go.touch()

    assert run.result(timeout=30) == "done"
    assert lines(beat) == 1


def test_a_worker_that_is_told_to_stop_gives_its_task_back_and_a_run_can_be_cancelled(cluster: Cluster) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.waits_for(str(go), str(beat))

    run = pipeline().submit(store=cluster.store)
    cluster.start("coordinator")
    first = cluster.worker("cpu", "--grace", "0.1", "--kill-timeout", "0.5")
    wait_until(lambda: lines(beat) == 1, "the task runs")
    first.send_signal(signal.SIGTERM)
    cluster.worker("cpu")
    wait_until(lambda: lines(beat) == 2, "the task runs elsewhere")

    run.cancel()
    run.wait(timeout=30)

    assert str(run.status) == "cancelled"
    assert first.wait(timeout=10) == 0


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_task_that_kills_its_workers_fails_before_the_service_sets_its_message_aside(
    cluster: Cluster, servicebus_namespace: Namespace
) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"
    servicebus_namespace.create("frail", lock_s=2.0, max_delivery_count=2)

    @workflow(default_queue="frail")
    def pipeline() -> Any:
        return steps.waits_for(str(go), str(beat))

    run = pipeline().submit(store=cluster.store)
    cluster.start("coordinator")
    victim = cluster.worker("frail")
    wait_until(lambda: lines(beat) == 1, "the task runs")
    victim.send_signal(signal.SIGKILL)
    cluster.worker("frail")

    run.wait(timeout=40)

    (failure,) = run.errors()
    assert "started 1 time without ever ending" in failure.error
    assert lines(beat) == 1
    assert servicebus_namespace.counts("frail")["total"] == 0


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_run_through_cut_connections_lost_replies_and_doubled_messages_does_everything_once(
    cluster: Cluster, servicebus_namespace: Namespace
) -> None:
    """Locks outlast what it takes to connect again, as in production: a task whose lock is lost runs once more."""
    effects, layers, width = cluster.folder / "effects", 5, 12
    servicebus_namespace.create("patient", lock_s=15.0)

    @workflow(default_queue="patient")
    def pipeline() -> Any:
        before: list[Any] = []
        for layer in range(layers):
            numbers = range(layer * width, (layer + 1) * width)
            before = [effect.options(after=before)(number, str(effects)) for number in numbers]
        return before

    run = pipeline().submit(store=cluster.store)
    for words in (("coordinator",), ("worker", "patient", "--slots", "2"), ("worker", "patient")):
        cluster.start(*words)
    for point, kind in (("send", "duplicate"), ("send", "cut_after"), ("push", "cut_after"), ("settle", "cut")) * 2:
        servicebus_namespace.fault(point, kind, skip=5)
    for layer in range(1, layers):
        wait_until(lambda done=layer * width: lines(effects) >= done, f"layer {layer} is done", 60)  # type: ignore[misc]
        servicebus_namespace.order("drop")

    run.wait(timeout=90)

    assert str(run.status) == "completed"
    assert sorted(map(int, effects.read_text().split())) == list(range(layers * width))
    assert {each.attempt for each in run.tasks()} == {1}
