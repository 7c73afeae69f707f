"""The cases of a queue worker (tests/cases/cancel.yaml and outputs.yaml): real commands, real processes."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.executors.queued import completion_queue_name
from dagkit.model.envelope import envelope
from dagkit.model.messages import Completion, TaskMessage
from dagkit.model.spec import WorkflowSpec
from dagkit.queues import open_transport
from dagkit.queues.base import OutMessage, Transport
from dagkit.runtime import values
from dagkit.settings import WorkerSettings
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.worker import Worker


def cases(file: str, shape: str) -> list[Any]:
    document = yaml.safe_load((Path(__file__).parent / "cases" / file).read_text(encoding="utf-8"))
    return [pytest.param(case, id=case["id"]) for case in document["cases"] if shape in case]


@contextmanager
def place(folder: Path) -> Iterator[tuple[Store, Transport]]:
    store, transport = open_store(folder), open_transport(folder)
    yield store, transport
    transport.close()
    store.close()


@contextmanager
def serving(store: Store, transport: Transport, **settings: Any) -> Iterator[Worker]:
    worker = Worker("q", store, transport, WorkerSettings(**settings))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(20)


def create(store: Store, run: str) -> None:
    """A stored run whose task is under way."""
    spec = WorkflowSpec.from_dict({"name": "case", "tasks": [{"name": "A"}]})
    definition = spec.definition(run, "2026-01-01T00:00:00+00:00")
    head = {"v": 1, "workflow_id": run, "workflow_state": "running", "cancel_requested": False, "error": None}
    store.create(run, definition, {**head, "updated_at": "2026-01-01T00:00:00+00:00", "tasks": {}})


def send(transport: Transport, message: TaskMessage) -> None:
    transport.open("q").send_batch([OutMessage(message.id, message.to_text())])


class Inbox:
    """The completions that were reported, by `run/task`."""

    def __init__(self, store: Store, transport: Transport) -> None:
        self._queue = transport.open(completion_queue_name(store.url))
        self.found: dict[str, list[Completion]] = {}

    def look(self) -> None:
        for delivery in self._queue.receive(10, 0.05, 30):
            completion = Completion.from_text(delivery.text)
            self.found.setdefault(f"{completion.workflow_id}/{completion.task}", []).append(completion)

    def wait_for(self, names: set[str], deadline: float) -> None:
        while not names <= set(self.found):
            assert time.monotonic() < deadline, f"only {sorted(self.found)} were reported"
            self.look()


def wait_until(condition: Callable[[], bool], deadline_s: float = 20.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("case", cases("cancel.yaml", "worker"))
def test_cases_of_cancelling(case: dict[str, Any], tmp_path: Path) -> None:
    told, expected = case["worker"], case["expect"]
    with place(tmp_path) as (store, transport):
        for run in {task["run"] for task in told["tasks"]}:
            create(store, run)
        for task in told["tasks"]:
            send(transport, TaskMessage(task["run"], task["task"], 1, 0, "q", {"cmd": task["cmd"]}))
        inbox = Inbox(store, transport)
        with serving(store, transport, **{"slots": len(told["tasks"]), **told.get("settings", {})}):
            began = time.monotonic()
            for event in told["events"]:
                wait_until(lambda: time.monotonic() >= began + event["at_s"])  # noqa: B023
                store.request_cancel(event["cancel"])
            limit_s = max(outcome.get("within_s", 20) for outcome in expected.values())
            inbox.wait_for(set(expected), time.monotonic() + limit_s)
    for name, outcome in expected.items():
        assert_reported(inbox.found[name], outcome, store)


@pytest.mark.parametrize("case", cases("outputs.yaml", "run"))
def test_cases_of_outputs(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, expected = case["run"], case["expect"]
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with place(tmp_path / "store") as (store, transport):
        create(store, "w")
        if told.get("output_store") == "down":
            break_outputs(tmp_path / "store")
        inbox = Inbox(store, transport)
        with serving(store, transport) as worker:
            kwargs = {"cmd": told["cmd"].replace("$SET", set_output_command())}
            if told.get("workflow") is False:
                transport.open("q").send_batch([OutMessage("job", envelope(kwargs, "job"))])
                wait_until(lambda: worker.counters["succeeded"] + worker.counters["failed"] > 0)
            else:
                send(transport, TaskMessage("w", "A", told.get("attempt", 1), 0, "q", kwargs))
                inbox.wait_for({"w/A"}, time.monotonic() + expected.get("within_s", 20))
        inbox.look()
        assert_reported(inbox.found.get("w/A", []), expected, store)


def set_output_command() -> str:
    code = "import json, sys; from dagkit import set_output; set_output(json.loads(sys.argv[1]))"
    return shlex.join([sys.executable, "-c", code])


def break_outputs(root: Path) -> None:
    """Make it impossible to store an output, for root too."""
    outputs = root / "outputs"
    if outputs.is_dir():
        outputs.rmdir()
    outputs.write_text("in the way")


def assert_reported(found: list[Completion], expected: dict[str, Any], store: Store) -> None:
    assert len(found) == expected.get("completions", 1)
    for completion in found:
        assert completion.success is expected["success"]
        assert completion.attempt == expected.get("attempt", 1)
        for word in expected.get("error", []):
            assert word in (completion.error or "")
        if "kind" in expected:
            assert str(completion.kind) == expected["kind"]
        if "output" in expected:
            assert values.load_output(completion.output_ref, store.get_output) == expected["output"]
        if "stored" in expected:
            assert (completion.output_ref or "").startswith("blob:") is expected["stored"]
