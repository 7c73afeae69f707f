"""The coordinator over a store in memory and an executor whose tasks end when the test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from dagkit.coordinator import Coordinator, Pace
from dagkit.coordinator.ownership import make_owner
from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError, LeaseLost, RunBusy, StateConflict
from dagkit.model.messages import Completion
from dagkit.model.records import StateChanges
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, RunStatus
from dagkit.testing import FakeExecutor, MemoryStore

QUICK = Pace(idle_sleep_s=0.01, cancel_poll_interval_s=0.01, discovery_interval_s=0.01, close_grace_s=0.2)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


def submit(store: MemoryStore, workflow_id: str = "w", **fields: Any) -> WorkflowSpec:
    fields.setdefault("tasks", [{"name": "a"}, {"name": "b", "depends_on": ["a"]}])
    spec = WorkflowSpec.from_dict({"name": "test", **fields})
    state = WorkflowState.create(spec, workflow_id, store.now())
    store.create(workflow_id, spec.definition(workflow_id, datetime.now(timezone.utc).isoformat()), state.document())
    return spec


def settle(coordinator: Coordinator, until: Callable[[], bool], deadline_s: float = 5.0) -> None:
    """Step until something holds; saves end in another thread."""
    end = time.monotonic() + deadline_s
    while not until():
        assert time.monotonic() < end, "the coordinator did not get there"
        coordinator.step(0.001)
        time.sleep(0.0005)


def state_of(store: MemoryStore, task: str, workflow_id: str = "w") -> str:
    return str(store.task_entries(workflow_id).get(task, {}).get("state", "pending"))


def test_a_run_is_driven_to_its_end_and_its_completions_are_acknowledged_after_the_save(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)

    outcome = coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    done = executor.succeed("a", "1")
    settle(coordinator, lambda: executor.tasks_running() == ["b"])
    executor.succeed("b")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.COMPLETED
    assert done in executor.acknowledged
    assert len(executor.acknowledged) == 2
    assert executor.submitted[1].upstream == {"a": "1"}
    assert store.row("w").status == RunStatus.COMPLETED
    assert store.lease("run/w") is None
    coordinator.close()


@pytest.mark.parametrize("created_at", ["", None, "yesterday"])
def test_a_definition_that_does_not_say_when_it_was_made_is_driven_all_the_same(store: MemoryStore, created_at) -> None:
    spec = WorkflowSpec.from_dict({"name": "test", "tasks": [{"name": "a"}]})
    definition = {**spec.definition("w", "2026-01-01T00:00:00+00:00"), "created_at": created_at}
    store.create("w", definition, WorkflowState.create(spec, "w", store.now()).document())
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)

    outcome = coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    executor.succeed("a")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.COMPLETED
    coordinator.close()


def test_a_message_names_the_group_of_its_task_if_there_is_one(store: MemoryStore) -> None:
    """Without one, executors learn how long it takes together with all tasks that run the same."""
    submit(store, tasks=[{"name": "t-0", "template": "t"}, {"name": "alone"}])
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)

    coordinator.drive("w")
    settle(coordinator, lambda: len(executor.submitted) == 2)

    assert [message.template for message in executor.submitted] == ["t", ""]
    coordinator.close()


class FailingStore(MemoryStore):
    """A store whose saves fail as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.saves = 0

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        self.saves += 1
        if self.failures:
            raise self.failures.pop(0)
        return super().save(workflow_id, changes, etag)


def test_nothing_is_acknowledged_when_a_save_fails_for_good_and_the_drive_ends_with_the_reason() -> None:
    store = FailingStore()
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK, save_backoff_s=(0.001,))
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: state_of(store, "a") == "running")

    store.failures = [BackendError("the disk is full")] * 2
    executor.succeed("a")
    settle(coordinator, outcome.done)

    assert isinstance(outcome.exception(), BackendError)
    assert executor.acknowledged == []
    assert state_of(store, "a") == "running"
    assert store.lease("run/w") is None
    coordinator.close()
    store.close()


def test_a_save_that_fails_once_is_tried_again_and_nothing_is_lost() -> None:
    store = FailingStore()
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK, save_backoff_s=(0.001, 0.001))
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: state_of(store, "a") == "running")

    store.failures = [BackendError("no route to host")]
    executor.succeed("a")
    settle(coordinator, lambda: executor.tasks_running() == ["b"])
    executor.succeed("b")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.COMPLETED
    coordinator.close()
    store.close()


def test_a_change_by_another_writer_is_read_and_what_was_not_saved_is_applied_again(store: MemoryStore) -> None:
    submit(store, tasks=[{"name": "a"}, {"name": "b"}, {"name": "c", "depends_on": ["a", "b"], "dep_policy": "any"}])
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: state_of(store, "b") == "running")
    executor.fail("a")
    settle(coordinator, lambda: state_of(store, "a") == "failed")

    stored = store.load("w")
    other = WorkflowState.load(WorkflowSpec.from_definition(stored.definition), stored.state)
    other.user_retry(store.now())
    store.save("w", other.take_changes(), stored.etag)
    executor.succeed("b")
    settle(coordinator, lambda: "a" in executor.tasks_running())
    executor.succeed("a")
    settle(coordinator, lambda: "c" in executor.tasks_running())
    executor.succeed("c")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.COMPLETED
    assert coordinator.counters.conflicts == 1
    assert [message.id for message in executor.submitted if message.task == "a"] == ["w/a/1", "w/a/1.1"]
    coordinator.close()


def test_a_conflict_that_never_ends_stops_the_drive() -> None:
    store = FailingStore()
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    store.failures = [StateConflict("w")] * 50

    outcome = coordinator.drive("w")
    settle(coordinator, outcome.done)

    assert isinstance(outcome.exception(), StateConflict)
    assert store.saves < 10
    coordinator.close()
    store.close()


def test_a_duplicate_is_acknowledged_and_counted_and_changes_nothing(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    done = executor.succeed("a")

    executor.repeat([done, done])
    settle(coordinator, lambda: len(executor.acknowledged) == 3)

    assert coordinator.counters.ignored == 2
    assert [message.task for message in executor.submitted] == ["a", "b"]
    coordinator.close()


def test_a_completion_of_an_unknown_run_is_acknowledged_as_an_orphan(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    orphan = Completion("deleted", "a", True, attempt=1)

    executor.repeat([orphan])
    coordinator.step()

    assert coordinator.counters.orphans == 1
    assert orphan in executor.acknowledged
    coordinator.close()


def test_a_second_coordinator_is_refused_while_the_first_lives_and_told_who_it_is(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    first = Coordinator(store, lambda queue: executor, pace=QUICK, role="notebook")
    first.drive("w")
    second = Coordinator(store, lambda queue: executor, pace=QUICK)

    with pytest.raises(RunBusy, match="notebook"):
        second.drive("w")

    first.close()
    second.drive("w")
    second.close()


def test_the_lease_of_a_dead_process_of_this_host_is_taken_over_at_once(store: MemoryStore) -> None:
    submit(store)
    dead = make_owner("script").partition(" #")[0] + " #4194303.12345.00"
    store.acquire_lease("run/w", dead, 3600)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)

    coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])

    coordinator.close()


def test_a_coordinator_that_lost_its_lease_stops_and_writes_nothing_more(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=Pace(idle_sleep_s=0.01, lease_ttl_s=0.02))
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: state_of(store, "a") == "running")

    store.break_lease("run/w")
    store.acquire_lease("run/w", "somebody else", 60)
    settle(coordinator, outcome.done)

    assert isinstance(outcome.exception(), LeaseLost)
    holder = store.lease("run/w")
    assert holder is not None
    assert holder.owner == "somebody else"
    coordinator.close()


def test_a_completion_of_a_run_that_is_not_over_is_left_to_whoever_takes_it_up(store: MemoryStore) -> None:
    """A coordinator that lost a run to a moment of a service's illness deleted its completions: tasks ran for ever."""
    submit(store, "w")
    submit(store, "driven")
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    coordinator.drive("driven")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    late = Completion("w", "a", True, attempt=1, generation=0)

    executor.repeat([late])
    coordinator.step()

    assert late not in executor.acknowledged
    assert coordinator.counters.orphans == 0
    coordinator.close()


def test_a_worker_that_sees_the_cancel_request_first_does_not_make_the_task_fail(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=Pace(cancel_poll_interval_s=3600))
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    store.request_cancel("w")

    executor.fail("a", "stopped", FailureKind.CANCELLED)
    settle(coordinator, outcome.done)

    assert str(store.row("w").status) == "cancelled"
    assert (state_of(store, "a"), state_of(store, "b")) == ("cancelled", "cancelled")
    coordinator.close()


def test_a_cancel_request_in_the_store_stops_what_runs_and_ends_the_run(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])

    store.request_cancel("w")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.CANCELLED
    assert (state_of(store, "a"), state_of(store, "b")) == ("cancelled", "cancelled")
    coordinator.close()


def test_closing_hands_back_what_runs_at_no_cost_and_a_later_coordinator_goes_on(store: MemoryStore) -> None:
    submit(store)
    executor = FakeExecutor()
    first = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcome = first.drive("w")
    settle(first, lambda: executor.tasks_running() == ["a"])

    first.close()

    assert outcome.cancelled()
    assert state_of(store, "a") == "ready"
    assert store.task_entries("w")["a"]["uncharged"] == 1
    second = Coordinator(store, lambda queue: executor, pace=QUICK)
    second.drive("w")
    settle(second, lambda: executor.tasks_running() == ["a"])
    assert executor.submitted[-1].attempt == 2
    second.close()


def test_after_a_crash_lost_attempts_run_again_and_surviving_ones_are_adopted(store: MemoryStore) -> None:
    submit(store, tasks=[{"name": "a"}, {"name": "b"}])
    executor = FakeExecutor()
    crashed = Coordinator(store, lambda queue: executor, pace=QUICK)
    crashed.drive("w")
    settle(crashed, lambda: state_of(store, "b") == "running")
    store.break_lease("run/w")
    again = FakeExecutor()
    again.survivors = {key for key in executor.running if key.task == "b"}
    coordinator = Coordinator(store, lambda queue: again, pace=QUICK)

    outcome = coordinator.drive("w")
    settle(coordinator, lambda: again.tasks_running() == ["a", "b"])

    assert [(message.task, message.attempt) for message in again.submitted] == [("a", 2)]
    again.succeed("a")
    again.succeed("b")
    settle(coordinator, outcome.done)
    assert outcome.result() is RunStatus.COMPLETED
    assert store.task_entries("w")["b"]["attempt_no"] == 1
    coordinator.close()
    crashed.close()


def test_what_an_executor_has_no_room_for_is_offered_again(store: MemoryStore) -> None:
    submit(store, tasks=[{"name": f"t{k}"} for k in range(5)])
    executor = FakeExecutor(room=2)
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcome = coordinator.drive("w")

    settle(coordinator, lambda: executor.tasks_running() == ["t0", "t1"])
    for k in range(5):
        settle(coordinator, lambda k=k: f"t{k}" in executor.tasks_running())
        executor.succeed(f"t{k}")
    settle(coordinator, outcome.done)

    assert outcome.result() is RunStatus.COMPLETED
    assert [message.attempt for message in executor.submitted] == [1] * 5
    coordinator.close()


class BrokenExecutor(FakeExecutor):
    def submit(self, messages: Any) -> int:
        raise BackendError("the queue service does not answer")


def test_an_executor_that_fails_hurts_only_its_own_run(store: MemoryStore) -> None:
    submit(store, "bad", default_queue="broken")
    submit(store, "good")
    executor, broken = FakeExecutor(), BrokenExecutor()
    coordinator = Coordinator(store, lambda queue: broken if queue == "broken" else executor, pace=QUICK)

    bad, good = coordinator.drive("bad"), coordinator.drive("good")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])
    executor.succeed("a")
    settle(coordinator, lambda: executor.tasks_running() == ["b"])
    executor.succeed("b")
    settle(coordinator, good.done)

    assert good.result() is RunStatus.COMPLETED
    assert not bad.done()
    assert state_of(store, "a", "bad") == "ready"
    coordinator.close()


def test_a_timeout_stops_the_attempt_and_the_next_one_starts_in_the_same_step(store: MemoryStore) -> None:
    submit(store, tasks=[{"name": "a", "timeout_s": 1, "num_retries": 1}])
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    coordinator.drive("w")
    settle(coordinator, lambda: executor.tasks_running() == ["a"])

    coordinator._clock_offset += 2
    settle(coordinator, lambda: len(executor.submitted) == 2)

    assert executor.submitted[1].attempt == 2
    assert coordinator.counters.timed_out == 1
    settle(coordinator, lambda: store.task_entries("w")["a"].get("attempt_no") == 2)
    assert store.task_entries("w")["a"]["kind"] == FailureKind.TIMEOUT
    coordinator.close()


def test_a_service_finds_submitted_runs_and_a_stand_by_takes_over_when_it_goes(store: MemoryStore) -> None:
    executor = FakeExecutor()
    first = Coordinator(store, lambda queue: executor, pace=QUICK, discover=True).start()
    second = Coordinator(store, lambda queue: executor, pace=QUICK, discover=True).start()
    submit(store)

    wait_for(lambda: executor.tasks_running() == ["a"])
    first.close()
    executor_after = len(executor.submitted)
    wait_for(lambda: executor.tasks_running() == ["a"] and len(executor.submitted) > executor_after)
    executor.succeed("a")
    wait_for(lambda: executor.tasks_running() == ["b"])
    executor.succeed("b")
    wait_for(lambda: store.row("w").status == RunStatus.COMPLETED)

    second.close()


def wait_for(until: Callable[[], bool], deadline_s: float = 5.0) -> None:
    end = time.monotonic() + deadline_s
    while not until():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_of_many_leases_those_that_were_taken_over_stop_their_drives_and_no_others(store: MemoryStore) -> None:
    for number in range(9):
        submit(store, f"w{number}")
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcomes = [coordinator.drive(f"w{number}") for number in range(9)]
    settle(coordinator, lambda: len(executor.running) == 9)
    for number in (2, 7):
        store.break_lease(f"run/w{number}")
        store.acquire_lease(f"run/w{number}", "another (elsewhere) #1.2", 60)

    coordinator._renew_leases()

    stopped = [number for number, outcome in enumerate(outcomes) if outcome.done()]
    assert stopped == [2, 7]
    assert isinstance(outcomes[2].exception(), LeaseLost)
    coordinator.close()


def test_how_long_an_attempt_waited_for_its_turn_is_stored(store: MemoryStore) -> None:
    submit(store, tasks=[{"name": "long"}, {"name": "short"}])
    executor = FakeExecutor()
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    outcome = coordinator.drive("w")
    settle(coordinator, lambda: len(executor.running) == 2)
    now = coordinator.now()
    executor.repeat(
        Completion("w", name, True, None, None, 1, 0, usage={"started_at": now + waited, "wall_s": 1.0})
        for name, waited in (("long", 60.0), ("short", 0.01))
    )
    settle(coordinator, outcome.done)

    entries = store.task_entries("w")
    assert entries["long"]["usage"]["wait_s"] == pytest.approx(60.0, abs=1)
    assert "wait_s" not in entries["short"]["usage"]
    coordinator.close()


def test_that_an_attempt_began_is_saved_though_nothing_else_happens(store: MemoryStore) -> None:
    """A view showed no time for a task that ran alone for an hour; after a crash its timeout began anew."""
    submit(store, tasks=[{"name": "long"}])
    executor = FakeExecutor(reports_start=True)
    coordinator = Coordinator(store, lambda queue: executor, pace=QUICK)
    coordinator.drive("w")
    settle(coordinator, lambda: state_of(store, "long") == "running")
    assert "started_at" not in store.task_entries("w")["long"]
    saves = coordinator.counters.saves

    executor.begin("long", coordinator.now())
    settle(coordinator, lambda: "started_at" in store.task_entries("w")["long"])

    assert coordinator.counters.saves == saves + 1
    coordinator.close()
