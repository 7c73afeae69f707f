"""Resources of a run's tasks: retried with more, on another queue, kept through restarts."""

from __future__ import annotations

from typing import Any

from dagkit.engine.scaling import QueueLimits
from dagkit.engine.state import Dispatch, WorkflowState
from dagkit.model.messages import Completion, Started
from dagkit.model.resources import parse_memory
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, TaskState

LIMITS = {"small": QueueLimits(memory_bytes=parse_memory("50G")), "large": QueueLimits(memory_bytes=parse_memory("1T"))}
TASK = {
    "name": "fit",
    "kwargs": {"cmd": "fit"},
    "queue": "small",
    "num_retries": 3,
    "resources": {"memory": "40G", "runtime": "1h"},
    "fallback_queues": ["large"],
}


def a_run(*tasks: dict[str, Any], limits: Any = None, **options: Any) -> WorkflowState:
    spec = WorkflowSpec.from_dict({"name": "w", "tasks": list(tasks)})
    return WorkflowState.create(spec, "run", 0.0, limits=LIMITS if limits is None else limits, **options)


def fail(run: WorkflowState, item: Dispatch, kind: FailureKind, now: float = 1.0) -> None:
    failed = Completion("run", item.name, False, error="it died\ntraceback", kind=kind)
    failed.attempt, failed.generation = item.attempt, item.generation
    assert run.apply(failed, now)


def one(run: WorkflowState, now: float = 1.0, room: Any = None) -> Dispatch:
    (item,) = run.dispatch(now, room)
    return item


def test_out_of_memory_is_followed_by_more_memory_on_a_queue_that_has_it() -> None:
    run = a_run(TASK)
    first = one(run)
    assert (first.queue, first.resources) == ("small", None)

    fail(run, first, FailureKind.MEMORY)
    second = one(run)

    assert (second.queue, second.attempt) == ("large", 2)
    assert second.resources == {"memory": "60G", "runtime": "1h"}
    error = run.entry(0)["error"]
    assert error.splitlines()[0] == "it died; next attempt: memory 40G -> 60G, queue small -> large"


def test_each_attempt_asks_for_more_than_the_one_before() -> None:
    run = a_run(TASK)
    found = []
    for _ in range(4):
        item = one(run)
        found.append((run.resources(0) or {})["memory"])
        fail(run, item, FailureKind.MEMORY)
    assert found == ["40G", "60G", "90G", "135G"]
    assert run.state_of(0) is TaskState.FAILED


def test_a_failure_of_another_kind_keeps_what_was_asked_for() -> None:
    run = a_run(TASK)
    fail(run, one(run), FailureKind.MEMORY)
    fail(run, one(run), FailureKind.USER)
    third = one(run)
    assert (third.queue, (third.resources or {})["memory"]) == ("large", "60G")


def test_siblings_grow_alone() -> None:
    """Elsewhere five failures of siblings raised one shared request five times: 40 GiB became 305 GiB."""
    run = a_run(TASK, {**TASK, "name": "other"})
    mine, other = run.dispatch(1.0)
    fail(run, mine, FailureKind.MEMORY)
    fail(run, other, FailureKind.USER)
    assert [(item.resources or {}).get("memory") for item in run.dispatch(2.0)] == ["60G", None]


def test_the_grown_request_survives_a_restart() -> None:
    run = a_run(TASK)
    fail(run, one(run), FailureKind.MEMORY)
    document = run.document()
    assert document["tasks"]["fit"]["resources"] == {"memory": "60G", "runtime": "1h"}
    assert document["tasks"]["fit"]["queue"] == "large"

    again = WorkflowState.load(run.spec, document, limits=LIMITS)
    item = one(again)
    assert (item.queue, item.resources) == ("large", {"memory": "60G", "runtime": "1h"})
    assert again.document()["tasks"]["fit"]["queue"] == "large"

    fail(again, item, FailureKind.MEMORY)
    assert (one(again).resources or {})["memory"] == "90G"


def test_the_room_of_the_new_queue_counts() -> None:
    run = a_run(TASK)
    fail(run, one(run), FailureKind.MEMORY)
    assert run.dispatch(1.0, {"small": 9, "large": 0}) == []
    assert one(run, room={"small": 0, "large": 1}).queue == "large"


def test_a_user_retry_begins_with_the_definition() -> None:
    run = a_run({**TASK, "num_retries": 1})
    fail(run, one(run), FailureKind.MEMORY)
    fail(run, one(run), FailureKind.MEMORY)
    run.user_retry(3.0)

    item = one(run, room={"small": 1, "large": 0})

    assert (item.queue, item.resources) == ("small", None)
    assert "resources" not in run.entry(0)


def test_undoing_a_dispatch_keeps_the_grown_request() -> None:
    run = a_run(TASK)
    fail(run, one(run), FailureKind.MEMORY)
    run.undo([one(run)])
    assert one(run).queue == "large"


def test_a_runtime_is_a_limit_where_the_start_is_known_and_grows_when_it_was_too_short() -> None:
    run = a_run({**TASK, "resources": {"runtime": 100}}, starts_reported=lambda queue: True)
    item = one(run, now=0.0)
    assert run.expire(1000.0) == []  # it has not begun
    run.started(Started("run", "fit", 0, 1, 1000.0), 1000.0)
    assert run.next_due() == 1100.0

    (expired,) = run.expire(1100.0)
    assert (expired.task, expired.attempt) == ("fit", item.attempt)
    assert run.entry(0)["error"].startswith("timed out after 100 s; next attempt: runtime 100 -> 150")

    one(run, now=1100.0)
    run.started(Started("run", "fit", 0, 2, 1200.0), 1200.0)
    assert run.next_due() == 1350.0


def test_the_shorter_of_timeout_and_runtime_holds() -> None:
    run = a_run({**TASK, "resources": {"runtime": 100}, "timeout_s": 30}, starts_reported=lambda queue: True)
    one(run, now=0.0)
    run.started(Started("run", "fit", 0, 1, 1.0), 1.0)
    assert run.next_due() == 31.0


def test_waiting_in_a_queue_does_not_use_up_a_runtime() -> None:
    run = a_run({**TASK, "resources": {"runtime": 100}}, starts_reported=lambda queue: False)
    one(run, now=0.0)
    assert run.next_due() is None


def test_runs_without_resources_keep_nothing_of_all_this() -> None:
    run = a_run({"name": "a", "kwargs": {"cmd": "x"}, "num_retries": 1}, limits={})
    fail(run, one(run), FailureKind.MEMORY)
    assert set(run.entry(0)) == {"state", "attempt_no", "error", "kind"}


def test_a_user_retry_asks_for_what_the_definition_says_or_for_more_than_it_last_had() -> None:
    tasks = [{"name": "a", "resources": {"memory": "40G"}, "fallback_queues": ["large"], "kwargs": {"cmd": "x"}}]
    limits = {"default": QueueLimits(memory_bytes=50 << 30)}

    def fails(run: WorkflowState) -> None:
        (item,) = run.dispatch(1.0)
        attempt, generation = item.attempt, item.generation
        run.apply(Completion("run", "a", False, None, "oom", attempt, generation, FailureKind.MEMORY), 1.0)

    run = WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), "run", 0.0, limits=limits)
    fails(run)
    run.user_retry(2.0, increase_resources=True)
    assert (run.resources(0), run.queue_of(0)) == ({"memory": "60G"}, "large")
    again = WorkflowState.load(run.spec, run.document(), limits=limits)
    (item,) = again.dispatch(3.0)
    assert (item.resources, item.queue) == ({"memory": "60G"}, "large")

    fails(run)
    run.user_retry(4.0, increase_resources=True)
    assert run.resources(0) == {"memory": "90G"}

    fails(run)
    run.user_retry(5.0)
    assert (run.resources(0), run.queue_of(0)) == ({"memory": "40G"}, "default")


def test_only_what_ran_out_of_something_asks_for_more() -> None:
    tasks = [{"name": "a", "resources": {"memory": "40G"}, "kwargs": {"cmd": "x"}}]
    run = WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), "run", 0.0)
    run.dispatch(1.0)
    run.apply(Completion("run", "a", False, None, "no", 1, 0, FailureKind.USER), 1.0)
    run.user_retry(2.0, increase_resources=True)
    assert run.resources(0) == {"memory": "40G"}


def test_what_earlier_attempts_had_and_used_is_remembered_through_a_restart() -> None:
    tasks = [{"name": "a", "resources": {"memory": "40G"}, "num_retries": 20, "kwargs": {"cmd": "x"}}]
    run = WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), "run", 0.0)
    used = {"wall_s": 3.0, "peak_rss_bytes": 7, "host": "n1", "exit_code": 1, "signal": "SIGKILL"}
    for attempt, kind in ((1, FailureKind.MEMORY), (2, FailureKind.USER)):
        run.dispatch(1.0)
        run.apply(Completion("run", "a", False, None, "no", attempt, 0, kind, dict(used)), 1.0)

    entry = WorkflowState.load(run.spec, run.document()).entry(0)
    assert entry["past"] == [
        {"attempt": 1, "kind": "memory", **used},
        {"attempt": 2, "kind": "user", "resources": {"memory": "60G"}, **used},
    ]
    assert "usage" not in entry

    for attempt in range(3, 16):
        run.dispatch(1.0)
        run.apply(Completion("run", "a", False, None, "no", attempt, 0, FailureKind.USER, dict(used)), 1.0)
    assert [past["attempt"] for past in run.entry(0)["past"]] == list(range(6, 16))

    run.dispatch(1.0)
    run.apply(Completion("run", "a", False, None, "no", 16, 0, FailureKind.CONFIG), 1.0)
    run.user_retry(2.0)
    assert "past" not in run.entry(0)


def test_an_attempt_whose_time_was_up_is_remembered_with_how_long_it_ran() -> None:
    tasks = [{"name": "a", "resources": {"runtime": 10}, "num_retries": 1, "kwargs": {"cmd": "x"}}]
    spec = WorkflowSpec.from_dict({"name": "w", "tasks": tasks})
    run = WorkflowState.create(spec, "run", 0.0, starts_reported=lambda queue: True)
    run.dispatch(1.0)
    run.started(Started("run", "a", 0, 1, 2.0), 2.0)
    assert [key.attempt for key in run.expire(12.5)] == [1]
    assert run.entry(0)["past"] == [{"attempt": 1, "kind": "timeout", "wall_s": 10.5}]
