"""What `dagkit doctor` finds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dagkit.config import Settings, load_settings
from dagkit.coordinator.ownership import make_owner
from dagkit.doctor import Check, Thresholds, examine, report
from dagkit.executors.queued import completion_queue_name
from dagkit.launch import submit
from dagkit.model.spec import WorkflowSpec
from dagkit.queues.base import OutMessage

HERE = "host-that-is-not-this-one"


class Place:
    """A store on disk, and what can be done to it."""

    def __init__(self, folder: Path) -> None:
        self.settings: Settings = load_settings(environ={"HOME": str(folder)}, cwd=folder)
        self.store, self.transport = self.settings.open_store(), self.settings.open_transport()

    def submit(self, workflow_id: str = "w", queue: str = "gpu") -> None:
        spec = WorkflowSpec.from_dict({"name": "demo", "default_queue": queue, "tasks": [{"name": "a"}]})
        submit(spec, store=self.store, id=workflow_id)

    def serve(self, queue: str = "gpu") -> None:
        self.transport.register_worker(queue, "worker", 60)

    def coordinator(self) -> None:
        assert self.store.acquire_lease("coordinator", f"coordinator ({HERE}) #1.0", 60)

    def examine(self, **thresholds: float) -> dict[str, Check]:
        """The checks by name; of several of one name, the worst."""
        order = {"pass": 0, "warn": 1, "fail": 2}
        checks = sorted(examine(self.settings, Thresholds(**thresholds)), key=lambda check: order[check.status])
        return {check.name: check for check in checks}

    def close(self) -> None:
        self.transport.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Place(tmp_path)
    yield place
    place.close()


def test_a_new_store_is_in_order(place: Place) -> None:
    assert {check.status for check in place.examine().values()} == {"pass"}


def test_submitted_runs_without_a_coordinator(place: Place) -> None:
    place.submit()
    place.serve()

    check = place.examine()["coordinator"]

    assert (check.status, check.hint) == ("fail", "start `dagkit coordinator`")
    place.coordinator()
    assert place.examine()["coordinator"].message == f"driven by coordinator ({HERE})"


def test_a_coordinator_that_is_gone_but_holds_its_lease(place: Place) -> None:
    gone = make_owner("coordinator").rpartition("#")[0] + "#999999.1.00"
    assert place.store.acquire_lease("coordinator", gone, 60)
    place.submit()

    check = place.examine()["coordinator"]

    assert check.status == "fail"
    assert "is gone" in check.message


def test_a_queue_that_nobody_serves(place: Place) -> None:
    place.coordinator()
    place.submit()
    assert place.examine()["queues"].status == "warn"

    place.transport.open("gpu").send_batch([OutMessage("1", "x")])

    check = place.examine()["queues"]
    assert (check.status, check.hint) == ("fail", "start `dagkit worker gpu`")
    assert "1 messages wait there" in check.message
    place.serve()
    assert place.examine()["queues"].status == "pass"


def test_failed_jobs_that_are_kept_need_no_worker(place: Place) -> None:
    place.transport.open("gpu-failed").send_batch([OutMessage("1", "x")])

    assert place.examine()["queues"].status == "pass"


def test_completions_that_nobody_takes(place: Place) -> None:
    queue = place.transport.open(completion_queue_name(place.store.url))
    place.transport.clock = queue._clock = lambda: time.time() - 300  # type: ignore[attr-defined]
    queue.send_batch([OutMessage("1", "x")])

    check = place.examine()["completion queue"]

    assert check.status == "fail"
    assert "the oldest for 300 s" in check.message


def test_a_run_that_has_been_pending_for_long(place: Place) -> None:
    place.submit()

    assert place.examine()["pending runs"].status == "pass"
    check = place.examine(pending_s=0.0)["pending runs"]
    assert (check.status, "demo (w)" in check.message) == ("warn", True)


def run_state(place: Place, task: dict[str, Any]) -> None:
    stored = place.store.load("w")
    state = {**stored.state, "workflow_state": "running", "tasks": {"a": task}}
    place.store.replace("w", stored.definition, state, stored.etag)


def test_a_run_that_is_under_way_and_driven_by_nobody(place: Place) -> None:
    place.submit()
    run_state(place, {"state": "running", "attempt_no": 1})

    check = place.examine()["stale runs"]

    assert check.status == "fail"
    assert "demo (w): under way, but nobody drives it" in check.message
    assert place.store.acquire_lease("run/w", f"script ({HERE}) #1.0", 60)
    assert place.examine()["stale runs"].status == "pass"


def test_a_task_that_has_been_running_for_hours(place: Place) -> None:
    place.submit()
    run_state(place, {"state": "running", "attempt_no": 1, "started_at": place.store.now() - 7200})

    assert "w/a" in place.examine()["running tasks"].message
    assert place.examine(running_s=10_000)["running tasks"].status == "pass"


def test_a_task_that_has_been_ready_for_long(place: Place) -> None:
    place.submit()
    run_state(place, {"state": "ready"})

    assert place.examine(ready_s=-1.0)["ready tasks"].status == "warn"
    assert place.examine()["ready tasks"].status == "pass"


def test_a_store_that_cannot_be_used_ends_the_examination(tmp_path: Path) -> None:
    (tmp_path / ".dagkit").write_text("a file")
    settings = load_settings(environ={"HOME": str(tmp_path)}, cwd=tmp_path, store=str(tmp_path / ".dagkit"))

    checks = examine(settings)

    assert "fail" in {check.status for check in checks}
    assert "coordinator" not in {check.name for check in checks}


def test_the_report_counts_by_status() -> None:
    document = report([Check("a", "pass", "fine"), Check("b", "fail", "bad", "do this")])

    assert document == {
        "checks": [
            {"name": "a", "status": "pass", "message": "fine", "hint": ""},
            {"name": "b", "status": "fail", "message": "bad", "hint": "do this"},
        ],
        "summary": {"pass": 1, "warn": 0, "fail": 1},
    }
