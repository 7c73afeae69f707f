"""Workflows on Azurite as people run them: a notebook here, a coordinator and workers as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

import azure_steps as steps
import dagkit
from dagkit import shell, task, workflow
from dagkit.queues import open_transport
from dagkit.stores import open_store
from services.azurite import Account, installed_azurite
from services.processes import die_with_parent, free_ports, is_listening, require, wait_until

pytestmark = [pytest.mark.xdist_group("azurite-daemons"), pytest.mark.slow]

TESTS = Path(__file__).parent
QUICK = ("--max-idle-backoff", "0.2", "--lock", "2s", "--cancel-poll", "0.3")


class Cluster:
    """A coordinator and workers on an account."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.folder, self.url = folder, f"azure://{account.name}/Proj"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
        said = {"JOBQ_WORKFLOW_PREFIX": f"{account.name}/Proj", "PYTHONPATH": str(TESTS)}
        self.environment = {**clean, **account.environment, **said}
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
        return self.start("worker", queue, *QUICK, *words)

    def call(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == code, stderr
        return stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.call(*words, "--json"))

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def cluster(azurite_account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster = Cluster(azurite_account, tmp_path)
    yield cluster
    cluster.stop()


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_traced_workflow_is_submitted_run_by_workers_and_its_results_fetched(cluster: Cluster) -> None:
    factor = 3

    @task
    def captured(value: int) -> int:
        return value * factor

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        parts = [steps.double(steps.numbers(count)) for count in (3, 20_000)]
        return {
            "total": steps.total(parts),
            "captured": captured(14),
            "file": steps.read(steps.model("weights " * 10_000)),
        }

    run = pipeline().submit(store=cluster.url)
    assert str(run.status) == "pending"
    for words in (("coordinator",), ("worker", "cpu", *QUICK), ("worker", "gpu", *QUICK)):
        cluster.start(*words)

    result = run.result(timeout=60)

    assert result["total"]["sum"] == 2 * (sum(range(3)) + sum(range(20_000)))
    assert result["captured"] == 42
    assert result["file"] == "weights " * 10_000
    assert run.logs("numbers") == "makes 3\n"
    assert {task.attempt for task in run.tasks()} == {1}
    again = dagkit.attach(run.id, store=cluster.url)
    assert again.result() == result
    assert cluster.json("status", run.id)["status"] == "completed"


SCRIPT = """\
import asyncio
from dagkit.runtime.context import get_upstream_output, get_upstream_outputs, set_output, workflow_context

async def main():
    values = get_upstream_outputs()
    set_output({"task": workflow_context().task, "n": len(get_upstream_output("make")), "parents": sorted(values)})

asyncio.run(main())
"""


def test_shell_tasks_read_their_parents_and_write_outputs_also_beside_an_event_loop(cluster: Cluster) -> None:
    (cluster.folder / "script.py").write_text(SCRIPT)

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        make = shell("python -c 'import json; print(json.dumps([1] * 50000))' > $JOBQ_OUTPUT_FILE", name="make")()
        return shell(f"{sys.executable} script.py", name="read", after=make)()

    run = pipeline().submit(store=cluster.url)
    cluster.start("coordinator")
    cluster.worker("cpu")

    run.wait(timeout=60)

    assert run.outputs()["read"] == {"task": "read", "n": 50_000, "parents": ["make"]}


def test_a_log_is_followed_from_anywhere_while_the_task_runs(cluster: Cluster) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.waits_for(str(go), str(beat))

    run = pipeline().submit(store=cluster.url)
    cluster.start("coordinator")
    cluster.worker("cpu")
    follower = cluster.start("logs", run.id, "waits_for", "--follow")
    pieces: list[str] = []
    reader = threading.Thread(target=lambda: pieces.extend(iter(lambda: follower.stdout.readline(), "")))  # type: ignore[union-attr]
    reader.start()

    wait_until(lambda: pieces, "the log is seen while the task runs")
    assert str(run.status) == "running"
    go.touch()
    assert run.result(timeout=30) == "done"
    reader.join(10)

    assert "".join(pieces) == "waiting\n"


def test_failures_are_told_and_retry_rerun_and_cancel_work_from_anywhere(cluster: Cluster) -> None:
    missing = cluster.folder / "missing"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.shout(steps.fails_until(str(missing)))

    run = pipeline().submit(store=cluster.url)
    cluster.start("coordinator")
    cluster.worker("cpu")

    with pytest.raises(dagkit.errors.TaskFailed, match="FileNotFoundError"):
        run.result(timeout=60)
    missing.touch()
    assert cluster.json("retry", run.id)["reset"] == 2
    assert run.result(timeout=60) == "REPAIRED"
    assert dagkit.attach(run.id, store=cluster.url).rerun("shout") == 1
    run.wait(timeout=60)
    assert run.result() == "REPAIRED"


def test_cancel_stops_just_that_runs_tasks(cluster: Cluster) -> None:
    go, beats = cluster.folder / "go", [cluster.folder / name for name in ("one", "two")]
    runs = []
    for beat in beats:

        @workflow(default_queue="cpu")
        def pipeline(beat: str = str(beat)) -> Any:
            return steps.waits_for(str(go), beat)

        runs.append(pipeline().submit(store=cluster.url))
    cluster.start("coordinator")
    cluster.worker("cpu", "--slots", "2")
    wait_until(lambda: all(map(lines, beats)), "both tasks run")

    cluster.call("cancel", runs[0].id)
    runs[0].wait(timeout=30)
    go.touch()

    assert runs[1].result(timeout=30) == "done"
    assert str(runs[0].status) == "cancelled"
    assert runs[0].task("waits_for").state == "cancelled"


def test_a_worker_that_is_killed_costs_a_redelivery_and_no_attempt(cluster: Cluster) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.waits_for(str(go), str(beat))

    run = pipeline().submit(store=cluster.url)
    cluster.start("coordinator")
    victim = cluster.worker("cpu")
    wait_until(lambda: lines(beat) == 1, "the task runs")

    victim.send_signal(signal.SIGKILL)
    cluster.worker("cpu")
    wait_until(lambda: lines(beat) == 2, "the task runs again")
    go.touch()

    assert run.result(timeout=30) == "done"
    assert run.task("waits_for").attempt == 1


def test_a_killed_coordinator_is_replaced_by_the_one_that_stands_by(cluster: Cluster) -> None:
    go, beat = cluster.folder / "go", cluster.folder / "beat"

    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.fails_until(steps.waits_for(str(go), str(beat)))

    (cluster.folder / "done").touch()
    run = pipeline().submit(store=cluster.url)
    first = cluster.start("coordinator")
    cluster.worker("cpu")
    wait_until(lambda: lines(beat) == 1, "the task runs")
    second = cluster.start("coordinator")

    first.send_signal(signal.SIGKILL)
    go.touch()

    assert run.result(timeout=60) == "repaired"
    assert lines(beat) == 1
    second.send_signal(signal.SIGTERM)
    _, told = second.communicate(timeout=30)
    assert second.returncode == 0
    assert "standing by" in told or "stopped" in told


def test_a_wide_fan_in_of_large_outputs_needs_no_option(cluster: Cluster, azurite_account: Account) -> None:
    """More parents than a message has room for: the refs travel by way of the store."""
    parents = [{"name": f"measure-{number:05}", "kwargs": {"cmd": "true"}} for number in range(3_600)]
    store = open_store(cluster.url)
    from dagkit.executors.queued import QueuedExecutor
    from dagkit.model.messages import TaskMessage

    upstream = {parent["name"]: f"blob:w/{parent['name']}.json" for parent in parents}
    executor = QueuedExecutor(store, open_transport(cluster.url))
    executor.submit([TaskMessage("w", "join", 1, 0, "cpu", {"cmd": "true"}, upstream)])

    transport = open_transport(cluster.url)
    (delivery,) = transport.open("cpu").receive(1, 1, 30)
    message = TaskMessage.from_text(delivery.text, store.get_output, "cpu")
    assert message.upstream == upstream
    for closing in (executor, transport, store):
        closing.close()


def test_purge_leaves_nothing_in_the_account(cluster: Cluster, azurite_account: Account) -> None:
    @workflow(default_queue="cpu")
    def pipeline() -> Any:
        return steps.read(steps.model("text"))

    run = pipeline().submit(store=cluster.url)
    cluster.start("coordinator")
    cluster.worker("cpu")
    run.wait(timeout=60)

    cluster.call("purge", "-y")

    with BlobServiceClient.from_connection_string(azurite_account.connection_string) as client:
        left = [
            blob.name
            for container in client.list_containers()
            for blob in client.get_container_client(container.name).list_blobs()
        ]
    assert not [name for name in left if run.id in name]
    assert cluster.json("list") == []


def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    azurite = installed_azurite() or require("azurite")
    (tmp_path / "tools").mkdir()
    for name, command in (("python", ""), ("dagkit", "-m dagkit.cli")):
        (tmp_path / "tools" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (tmp_path / "tools" / name).chmod(0o755)
    (tmp_path / "tools" / "azurite").symlink_to(azurite)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
    ports = dict(zip(("BLOB_PORT", "QUEUE_PORT", "TABLE_PORT"), map(str, free_ports(3)), strict=True))

    done = subprocess.run(
        [TESTS.parent / "examples/azure/run-local.sh"],
        cwd=tmp_path,
        env={**clean, **ports, "PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert '{"degree": 8, "loss": 0.' in done.stdout
    assert "simulated 2000 steps" in done.stdout
    assert "completed" in done.stdout
    wait_until(lambda: not is_listening(int(ports["BLOB_PORT"])), "Azurite is stopped")
