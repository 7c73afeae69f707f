"""A coordinator, workers and a submitter as processes of their own, over one store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PIPELINE = """\
name: pipeline
tasks:
- {name: a, queue: cpu, kwargs: {cmd: "echo '{\\"n\\": 1}' > $JOBQ_OUTPUT_FILE"}}
- {name: b, queue: gpu, depends_on: [a], kwargs: {cmd: "echo $$ >> b.txt; test -e go || sleep 60"}}
- {name: c, queue: cpu, depends_on: [b], kwargs: {cmd: "echo done"}}
"""


class Machine:
    """Processes that work on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagkit.cli", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def call(self, *words: str, code: int | None = 0) -> str:
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=60)
        assert code is None or process.returncode == code, stderr
        return stdout

    def status(self, run: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.call("status", run, "--json"))
        return document

    def ends(self, run: str) -> dict[str, Any]:
        """The run once it is over."""
        self.call("watch", run, "--interval", "0.1", code=None)
        return self.status(run)

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()


def wait_until(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def task(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(task for task in document["tasks"] if task["name"] == name)


def stopped(process: subprocess.Popen[str], number: int) -> str:
    """What a process says on its way out after a signal."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0, stderr
    return stderr


def test_a_worker_that_is_told_to_stop_in_the_middle_costs_the_task_nothing(machine: Machine) -> None:
    (machine.folder / "pipeline.yaml").write_text(PIPELINE)
    coordinator = machine.start("coordinator")
    cpu = machine.start("worker", "cpu")
    gpu = machine.start("worker", "gpu", "--grace", "200ms", "--kill-timeout", "5")
    run = machine.call("submit", "pipeline.yaml").strip()
    wait_until(lambda: lines(machine.folder / "b.txt") == 1)
    assert json.loads(machine.call("doctor", "--json"))["summary"]["fail"] == 0

    assert "SIGTERM" in stopped(gpu, signal.SIGTERM)

    report = json.loads(machine.call("doctor", "--json", code=1))
    (unserved,) = [check for check in report["checks"] if check["status"] == "fail"]
    assert (unserved["name"], unserved["hint"]) == ("queues", "start `dagkit worker gpu`")
    assert task(machine.status(run), "b")["status"] == "running"
    (machine.folder / "go").touch()
    gpu = machine.start("worker", "gpu")
    document = machine.ends(run)
    assert document["status"] == "completed"
    assert (task(document, "b")["attempt_no"], lines(machine.folder / "b.txt")) == (1, 2)
    assert task(document, "a")["output_ref"] == '{"n": 1}'
    assert machine.call("logs", run, "c") == "done\n"
    for process in (coordinator, cpu, gpu):
        stopped(process, signal.SIGINT)


def test_a_worker_that_is_killed_loses_its_lock_and_another_one_runs_the_task(machine: Machine) -> None:
    (machine.folder / "pipeline.yaml").write_text(PIPELINE)
    machine.start("coordinator")
    machine.start("worker", "cpu")
    gpu = machine.start("worker", "gpu", "--lock", "1s")
    run = machine.call("submit", "pipeline.yaml").strip()
    wait_until(lambda: lines(machine.folder / "b.txt") == 1)

    gpu.kill()
    (machine.folder / "go").touch()
    machine.start("worker", "gpu")

    document = machine.ends(run)
    assert document["status"] == "completed"
    assert (task(document, "b")["attempt_no"], lines(machine.folder / "b.txt")) == (1, 2)


def test_a_coordinator_that_is_killed_is_replaced_by_the_one_that_stands_by(machine: Machine) -> None:
    (machine.folder / "pipeline.yaml").write_text(PIPELINE)
    first = machine.start("coordinator")
    machine.start("worker", "cpu")
    machine.start("worker", "gpu")
    run = machine.call("submit", "pipeline.yaml").strip()
    wait_until(lambda: lines(machine.folder / "b.txt") == 1)

    second = machine.start("coordinator")
    assert second.stderr is not None
    wait_until(lambda: "standing by" in second.stderr.readline())

    first.kill()
    first.wait()
    (machine.folder / "go").touch()
    for pid in (machine.folder / "b.txt").read_text().split():
        os.killpg(int(pid), signal.SIGKILL)

    document = machine.ends(run)
    assert document["status"] == "failed"
    assert "SIGKILL" in task(document, "b")["error"]
    assert lines(machine.folder / "b.txt") == 1


def test_a_coordinator_says_that_it_is_alive_while_it_is(machine: Machine) -> None:
    alive = machine.folder / "alive.json"
    coordinator = machine.start("coordinator", "--health", str(alive))
    wait_until(alive.exists)

    document = json.loads(alive.read_text())
    coordinator.send_signal(signal.SIGTERM)
    _, said = coordinator.communicate(timeout=30)

    assert document["alive"] is True
    assert f"alive: {alive}" in said
    assert coordinator.returncode == 0
    assert not alive.exists()


def test_an_interrupted_watch_leaves_the_run_alone(machine: Machine) -> None:
    (machine.folder / "pipeline.yaml").write_text(PIPELINE)
    run = machine.call("submit", "pipeline.yaml").strip()
    watch = machine.start("watch", run, "--interval", "0.1")
    assert watch.stdout is not None
    assert "0 of 3" in watch.stdout.readline()  # it watches
    watch.send_signal(signal.SIGINT)
    _, said = watch.communicate(timeout=30)

    assert watch.returncode == 130
    assert "stopped watching; the run goes on" in said
    assert machine.status(run)["status"] == "pending"
