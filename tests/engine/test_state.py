"""What a run does beyond the shared cases: limits, delays, clocks, fail-fast, unreadable outputs, second thoughts."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError, RunBusy, UnknownTask
from dagkit.model.messages import AttemptKey, Completion, Started
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.states import FailureKind, RunStatus

T0 = 1_000_000.0


def run_of(*tasks: dict[str, Any], started: bool = False, read_output: Any = None, **fields: Any) -> WorkflowState:
    free = fields.pop("free_attempts", 5)
    spec = WorkflowSpec.from_dict({"name": "w", "tasks": list(tasks), **fields})
    return WorkflowState.create(
        spec, "w", T0, read_output=read_output, starts_reported=lambda queue: started, free_attempts=free
    )


def task(name: str, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "depends_on": list(parents), **fields}


def go(state: WorkflowState, now: float = T0, **room: int) -> list[str]:
    return [item.name for item in state.dispatch(now, room or None)]


def ok(state: WorkflowState, name: str, output: str | None = None, now: float = T0) -> bool:
    return state.apply(Completion("w", name, True, output), now)


def fail(
    state: WorkflowState, name: str, kind: FailureKind | None = None, now: float = T0, error: str = "boom"
) -> bool:
    return state.apply(Completion("w", name, False, None, error, kind=kind), now)


def states(state: WorkflowState) -> dict[str, str]:
    return {name: state.state_of(index).value for name, index in state.index.items()}


def error_of(state: WorkflowState, name: str) -> str:
    return str(state.entry(state.index[name])["error"])


# --- who goes first, and how many


def test_priority_comes_before_definition_order_over_all_queues() -> None:
    state = run_of(task("a"), task("b", queue="q", priority=1), task("c", priority=2), max_parallelism=2)

    assert go(state) == ["c", "b"]
    ok(state, "b")
    assert go(state) == ["a"]


def test_a_queue_without_room_does_not_hold_up_the_others() -> None:
    state = run_of(task("a", queue="x"), task("b", queue="x"), task("c", queue="y"))

    assert go(state, x=1) == ["a", "c"]
    assert go(state, x=0) == []
    assert [item.name for item in state.dispatch(T0, lambda queue: None)] == ["b"]


def test_a_template_runs_no_more_tasks_than_its_limit_and_a_freed_place_is_filled() -> None:
    fits = [task(f"fit-{n}", template="fit") for n in range(3)]
    state = run_of(*fits, task("other"), concurrency={"fit": 1})

    assert go(state) == ["fit-0", "other"]
    assert go(state) == []
    fail(state, "fit-0")
    assert go(state) == ["fit-1"]


def test_what_an_executor_did_not_take_is_as_it_was() -> None:
    state = run_of(task("a", timeout_s=5), task("b"))
    before = state.document()
    taken_back = state.dispatch(T0)

    state.undo(taken_back)

    assert state.document() == before
    assert state.status is RunStatus.PENDING
    assert state.next_due() is None
    assert [(item.name, item.attempt) for item in state.dispatch(T0)] == [("a", 1), ("b", 1)]


def test_undo_leaves_alone_what_has_moved_on() -> None:
    state = run_of(task("a"))
    dispatched = state.dispatch(T0)
    ok(state, "a")

    state.undo(dispatched)

    assert states(state) == {"a": "completed"}


# --- attempts


def test_preemptions_are_free_up_to_the_bound_and_charged_beyond_it() -> None:
    state = run_of(task("a"), free_attempts=2)
    for _ in range(3):
        assert go(state) == ["a"]
        fail(state, "a", FailureKind.NODE)

    assert states(state) == {"a": "failed"}
    assert state.entry(0)["uncharged"] == 2
    assert state.retries_remaining(0) == 0


def test_a_delayed_attempt_waits_and_says_until_when() -> None:
    state = run_of(task("a", num_retries=2, retry_delay_s=[5, 60]), task("b"), max_parallelism=1)
    go(state)
    fail(state, "a")

    assert go(state, T0 + 4) == ["b"]
    ok(state, "b", now=T0 + 4)
    assert state.next_due() == T0 + 5
    assert go(state, T0 + 5) == ["a"]
    assert "not_before" not in state.entry(0)
    fail(state, "a", now=T0 + 6)
    assert state.next_due() == T0 + 66


def test_a_completion_without_an_attempt_is_taken_for_one_of_a_lost_coordinator() -> None:
    state = run_of(task("a"))

    assert ok(state, "a")
    assert state.entry(0)["attempt_no"] == 1


def test_an_early_failure_of_a_ready_task_counts_as_its_attempt() -> None:
    state = run_of(task("a", num_retries=1, retry_delay_s=5))

    assert state.apply(Completion("w", "a", False, error="x", attempt=1), T0)

    assert go(state) == []
    assert [item.attempt for item in state.dispatch(T0 + 5)] == [2]


def test_an_early_failure_of_a_pending_task_does_not_let_it_run_before_its_parents_are_known() -> None:
    state = run_of(task("a"), task("b", "a", num_retries=1))
    go(state)

    assert state.apply(Completion("w", "b", False, error="x", attempt=1), T0)

    assert states(state)["b"] == "pending"
    assert go(state) == []
    ok(state, "a")
    assert [(item.name, item.attempt) for item in state.dispatch(T0)] == [("b", 2)]


def test_the_last_words_of_a_failed_attempt_are_gone_after_a_success() -> None:
    state = run_of(task("a", num_retries=1))
    go(state)
    fail(state, "a", FailureKind.USER)
    go(state)
    ok(state, "a", "1")

    entry = state.entry(0)

    assert "error" not in entry
    assert "kind" not in entry
    assert entry["output_ref"] == "1"


def test_completions_of_other_runs_and_unknown_tasks_change_nothing() -> None:
    state = run_of(task("a"))
    go(state)
    state.take_changes()

    assert not state.apply(Completion("other", "a", True, attempt=1), T0)
    assert not state.apply(Completion("w", "ghost", True, attempt=1), T0)
    assert not state.started(Started("other", "a", 0, 1, T0), T0)
    assert not state.started(Started("w", "ghost", 0, 1, T0), T0)
    assert not state.has_changes


def test_a_failure_without_words_gets_some() -> None:
    state = run_of(task("a"))
    go(state)
    fail(state, "a", error="")

    assert error_of(state, "a") == "the task failed without a message"


# --- clocks


def test_each_attempt_has_the_full_time_and_the_expired_one_is_named() -> None:
    state = run_of(task("a", timeout_s=60, num_retries=1))
    go(state)
    assert state.next_due() == T0 + 60
    assert state.expire(T0 + 59) == []

    assert state.expire(T0 + 60) == [AttemptKey("w", "a", 0, 1)]

    assert go(state, T0 + 60) == ["a"]
    assert state.expire(T0 + 119) == []
    assert state.expire(T0 + 120) == [AttemptKey("w", "a", 0, 2)]
    assert state.entry(0)["kind"] == "timeout"


def test_a_timeout_survives_a_restart_by_the_written_start() -> None:
    state = run_of(task("a", timeout_s=60))
    go(state)

    loaded = WorkflowState.load(state.spec, state.document())

    assert loaded.next_due() == T0 + 60


def test_where_starts_are_reported_the_clock_waits_for_them_also_after_a_restart() -> None:
    state = run_of(task("a", timeout_s=60), started=True)
    go(state)
    assert state.next_due() is None
    loaded = WorkflowState.load(state.spec, state.document(), starts_reported=lambda queue: True)

    assert loaded.started(Started("w", "a", 0, 1, T0 + 500), T0 + 500)

    assert loaded.next_due() == T0 + 560


@pytest.mark.parametrize(("reported", "counts_from"), [(T0 - 3600, T0), (T0 + 7200, T0 + 10), (T0 + 5, T0 + 5)])
def test_a_start_by_a_wrong_clock_is_bounded_by_ours(reported: float, counts_from: float) -> None:
    state = run_of(task("a", timeout_s=60), started=True)
    go(state)

    state.started(Started("w", "a", 0, 1, reported), T0 + 10)

    assert state.next_due() == counts_from + 60


def test_a_start_of_another_attempt_is_ignored() -> None:
    state = run_of(task("a", timeout_s=60), started=True)
    go(state)

    assert not state.started(Started("w", "a", 0, 2, T0), T0)
    assert not state.started(Started("w", "a", 1, 1, T0), T0)
    ok(state, "a")
    assert not state.started(Started("w", "a", 0, 1, T0), T0)


def test_the_start_that_only_the_usage_tells_is_written_down() -> None:
    state = run_of(task("a"), started=True)
    go(state)

    state.apply(Completion("w", "a", True, attempt=1, usage={"started_at": T0 + 1}), T0 + 2)

    assert state.entry(0)["started_at"] < state.entry(0)["completed_at"]


# --- failures upstream, fail-fast


def test_the_reason_names_the_task_where_it_began() -> None:
    state = run_of(task("train-17"), task("b", "train-17"), task("c", "b"))
    go(state)
    fail(state, "train-17")

    assert error_of(state, "b") == error_of(state, "c") == "upstream train-17 failed"
    assert state.document()["error"] == "train-17: boom"


def test_a_chain_of_a_hundred_thousand_is_given_up_in_one_step() -> None:
    n = 100_000
    tasks = [TaskSpec.trusted(f"t{i}", depends_on=(f"t{i - 1}",) if i else ()) for i in range(n)]
    state = WorkflowState.create(WorkflowSpec.trusted("w", tasks), "w", T0)
    go(state)
    fail(state, "t0")

    assert state.counts.upstream_failed == n - 1
    assert state.status is RunStatus.FAILED
    assert error_of(state, f"t{n - 1}") == "upstream t0 failed"


def test_fail_fast_starts_nothing_more_and_lets_what_runs_end() -> None:
    tasks = [task("a"), task("b", num_retries=3), task("c"), task("d", "b")]
    state = run_of(*tasks, max_parallelism=2, fail_fast=True)
    go(state)
    fail(state, "a")

    assert states(state) == {"a": "failed", "b": "running", "c": "cancelled", "d": "cancelled"}
    assert error_of(state, "c") == "fail fast"
    assert go(state) == []
    fail(state, "b")
    assert states(state)["b"] == "failed"
    assert state.status is RunStatus.FAILED


def test_fail_fast_waits_for_the_last_attempt() -> None:
    state = run_of(task("a", num_retries=1), task("b", "a"), fail_fast=True)
    go(state)
    fail(state, "a")

    assert states(state) == {"a": "ready", "b": "pending"}


@pytest.mark.parametrize(
    ("kind", "scales", "trips"),
    [("memory", True, False), ("timeout", True, False), ("user", True, True), ("memory", False, True)],
)
def test_running_out_of_what_can_be_scaled_does_not_stop_a_fail_fast_run(kind: str, scales: bool, trips: bool) -> None:
    scaled = {"resources": {"memory": "1G"}, "resource_scales": {"memory": 2}} if scales else {}
    state = run_of(task("a", **scaled), task("b"), max_parallelism=1, fail_fast=True)
    go(state)
    fail(state, "a", FailureKind(kind))

    assert (states(state)["b"] == "cancelled") is trips


def test_a_fail_fast_run_is_failed_even_where_only_sinks_matter() -> None:
    tasks = [task("a"), task("b"), task("x", "a", "b", dep_policy="any")]
    state = run_of(*tasks, fail_fast=True, result_policy="all_sinks_succeed")
    for name in ("a", "x"):
        go(state)
        ok(state, name)
    fail(state, "b")

    assert states(state)["x"] == "completed"
    assert state.status is RunStatus.FAILED
    assert WorkflowState.load(state.spec, state.document()).status is RunStatus.FAILED


def test_a_user_retry_arms_fail_fast_again() -> None:
    state = run_of(task("a"), task("b", "a"), fail_fast=True)
    go(state)
    fail(state, "a")
    state.user_retry(T0)

    assert go(state) == ["a"]
    ok(state, "a")
    assert go(state) == ["b"]


# --- conditions


def test_a_condition_reads_only_what_it_needs_and_each_output_once() -> None:
    read: list[str] = []

    def read_output(ref: str) -> Any:
        read.append(ref)
        return {"x": 1}

    state = run_of(
        task("a"),
        task("b"),
        task("c", "a", "b", condition="inputs.a.x > 0"),
        task("d", "a", "b", condition="inputs.a.x > 0"),
        read_output=read_output,
    )
    go(state)
    ok(state, "a", "blob:w/a.json")
    ok(state, "b", "blob:w/b.json")

    assert go(state) == ["c", "d"]
    assert read == ["blob:w/a.json"]


def test_an_output_that_cannot_be_read_now_is_read_later_and_holds_up_no_other_condition() -> None:
    available: dict[str, Any] = {"blob:w/b.json": True}

    def read_output(ref: str) -> Any:
        if ref not in available:
            raise BackendError(f"{ref}: no answer")
        return available[ref]

    state = run_of(
        task("a"), task("b"), task("c", "a", condition="inputs.a"), task("d", "b", condition="inputs.b"),
        read_output=read_output,
    )  # fmt: skip
    go(state)
    ok(state, "a", "blob:w/a.json")
    ok(state, "b", "blob:w/b.json")
    with pytest.raises(BackendError, match="no answer"):
        state.dispatch(T0)
    assert states(state) == {"a": "completed", "b": "completed", "c": "pending", "d": "ready"}
    assert state.user_retry(T0).still_pending == 1

    available["blob:w/a.json"] = True

    assert go(state) == ["c", "d"]


def test_a_stored_output_without_a_store_is_an_error_rather_than_a_skip() -> None:
    state = run_of(task("a"), task("b", "a", condition="inputs.a"))
    go(state)
    ok(state, "a", "blob:w/a.json")

    with pytest.raises(BackendError, match="no store"):
        state.dispatch(T0)


def test_an_output_that_can_never_be_decoded_skips_with_a_reason_that_names_it() -> None:
    def read_output(ref: str) -> Any:
        raise ModuleNotFoundError("No module named 'mine'")

    state = run_of(task("a"), task("b", "a", condition="inputs.a.x > 0"), read_output=read_output)
    go(state)
    ok(state, "a", "blob:w/a.pkl")

    assert go(state) == []
    assert states(state)["b"] == "skipped"
    assert "inputs.a" in error_of(state, "b")
    assert "mine" in error_of(state, "b")


def test_reasons_of_skips() -> None:
    state = run_of(task("a"), task("b", "a", condition="inputs.a.go"), task("c", "a", condition="inputs.a.mae < 1"))
    go(state)
    ok(state, "a", '{"go": false}')
    go(state)

    assert error_of(state, "b") == "condition false"
    assert error_of(state, "c").startswith("condition unknown: inputs.a.mae")


def test_a_condition_waits_only_for_parents_that_matter() -> None:
    parents = ["a", "y", "z"]
    state = run_of(*[task(name) for name in parents], task("b", *parents, dep_policy="any", condition="inputs.z.x > 0"))
    go(state)
    ok(state, "a")
    go(state)
    ok(state, "y")
    go(state)
    assert states(state)["b"] == "pending"

    fail(state, "z")

    assert go(state) == []
    assert states(state)["b"] == "skipped"


def test_a_condition_that_waits_goes_on_waiting_after_a_restart() -> None:
    state = run_of(task("a"), task("z"), task("b", "a", "z", dep_policy="any", condition="inputs.z"))
    go(state)
    ok(state, "a")
    go(state)

    loaded = WorkflowState.load(state.spec, state.document())

    assert go(loaded) == []
    ok(loaded, "z", "true")
    assert go(loaded) == ["b"]


def test_a_failed_parent_s_output_is_seen_by_conditions_but_not_handed_on() -> None:
    state = run_of(task("a"), task("z"), task("b", "a", "z", dep_policy="all_settled", condition="inputs.a.partial"))
    go(state)
    ok(state, "z", "1")
    state.apply(Completion("w", "a", False, '{"partial": true}', "boom", 1), T0)

    assert go(state) == ["b"]
    assert state.upstream(2) == {"a": None, "z": "1"}


# --- second thoughts


def test_retrying_a_given_up_task_retries_what_keeps_it_from_running_and_nothing_else() -> None:
    state = run_of(
        task("a"), task("b"), task("c", "a"), task("d", "b"), task("e", "c"), task("f"),
    )  # fmt: skip
    go(state)
    for name in ("a", "b", "f"):
        fail(state, name)

    counts = state.user_retry(T0, ["c"])

    assert (counts.reset, counts.now_ready, counts.still_pending) == (3, 1, 2)
    assert states(state) == {
        "a": "ready", "b": "failed", "c": "pending", "d": "upstream_failed", "e": "pending", "f": "failed",
    }  # fmt: skip
    assert go(state) == ["a"]


def test_retrying_one_of_two_failed_parents_leaves_the_child_given_up() -> None:
    state = run_of(task("a"), task("b"), task("c", "a", "b"))
    go(state)
    fail(state, "a")
    fail(state, "b")

    state.user_retry(T0, ["b"])

    assert states(state) == {"a": "failed", "b": "ready", "c": "upstream_failed"}
    assert error_of(state, "c") == "upstream a failed"


def test_retrying_part_of_a_cancelled_run_leaves_the_rest_cancelled() -> None:
    state = run_of(task("a"), task("b"), task("c", "a", "b", dep_policy="any"), task("d", "b"))
    state.request_cancel(T0)

    counts = state.user_retry(T0, ["a"])

    assert counts.reset == 2
    assert states(state) == {"a": "ready", "b": "cancelled", "c": "pending", "d": "cancelled"}
    assert not state.cancel_requested


def test_a_child_of_a_cancelled_task_says_so() -> None:
    state = run_of(task("a"), task("b"), task("c", "a", "b"))
    state.request_cancel(T0)

    state.user_retry(T0, ["a"])

    assert error_of(state, "c") == "upstream b cancelled"


def test_retrying_a_task_the_run_does_not_have_suggests_one() -> None:
    state = run_of(task("train"))

    with pytest.raises(UnknownTask, match="'train'"):
        state.user_retry(T0, ["trian"])


def test_a_retry_while_tasks_run_leaves_them_alone() -> None:
    state = run_of(task("a"), task("b"))
    go(state)
    fail(state, "a")

    state.user_retry(T0)

    assert states(state) == {"a": "ready", "b": "running"}
    assert state.status is RunStatus.RUNNING
    assert ok(state, "b")


def test_a_rerun_takes_everything_that_depends_on_it_along() -> None:
    state = run_of(task("a"), task("b", "a"), task("c", "b"), task("x"))
    for _ in range(3):
        for name in go(state):
            ok(state, name)
    assert state.status is RunStatus.COMPLETED

    assert state.rerun(["b"], T0) == 2

    assert states(state) == {"a": "completed", "b": "ready", "c": "pending", "x": "completed"}
    assert [(item.name, item.attempt, item.generation) for item in state.dispatch(T0)] == [("b", 1, 1)]
    assert not state.apply(Completion("w", "b", True, attempt=1, generation=0), T0)


def test_a_rerun_of_something_that_runs_is_refused_and_changes_nothing() -> None:
    state = run_of(task("a"), task("b", "a"))
    go(state)
    ok(state, "a")
    go(state)
    before = state.document()

    with pytest.raises(RunBusy, match="b is running"):
        state.rerun(["a"], T0)

    assert state.document() == before


@pytest.mark.parametrize("ask", [lambda state: state.user_retry(T0), lambda state: state.rerun(["a"], T0)])
def test_nothing_is_run_again_while_a_cancelled_run_still_stops(ask: Any) -> None:
    state = run_of(task("a"))
    go(state)
    state.request_cancel(T0)

    with pytest.raises(RunBusy, match="wait until its 1 running"):
        ask(state)


def test_kept_outputs_complete_tasks_without_running_them() -> None:
    state = run_of(task("a"), task("b", "a"), task("c", "b"), task("r"))
    go(state, default=0)

    state.keep({0: "1", 1: "2"}, T0)

    assert states(state) == {"a": "completed", "b": "completed", "c": "ready", "r": "ready"}
    assert state.status is RunStatus.PENDING
    assert "attempt_no" not in state.entry(0)
    assert state.upstream(2) == {"b": "2"}


def test_kept_outputs_do_not_touch_what_runs_or_has_ended() -> None:
    state = run_of(task("a"), task("b"))
    go(state)
    ok(state, "b", "1")

    state.keep({0: "0", 1: "0"}, T0)

    assert states(state) == {"a": "running", "b": "completed"}
    assert state.output_ref(1) == "1"


def test_what_waits_for_a_delay_is_cancelled_and_leaves_no_alarm() -> None:
    state = run_of(task("a", num_retries=1, retry_delay_s=60))
    go(state)
    fail(state, "a")

    state.request_cancel(T0)

    assert state.status is RunStatus.CANCELLED
    assert state.next_due() is None
    assert "not_before" not in state.entry(0)


def test_a_condition_that_could_not_be_read_is_not_decided_once_its_policy_no_longer_holds() -> None:
    answers: list[Any] = []

    def read_output(ref: str) -> Any:
        if not answers:
            raise BackendError("no answer")
        return answers[0]

    state = run_of(
        task("a"), task("z"), task("b", "a", "z", dep_policy="all_settled", condition="inputs.a"),
        read_output=read_output,
    )  # fmt: skip
    go(state)
    ok(state, "a", "blob:w/a.json")
    fail(state, "z")
    with pytest.raises(BackendError):
        state.dispatch(T0)

    state.user_retry(T0)
    answers.append(True)

    assert go(state) == ["z"]
    assert states(state)["b"] == "pending"
    ok(state, "z")
    assert go(state) == ["b"]


def test_a_condition_that_waited_before_a_rerun_is_evaluated_afresh_after_it() -> None:
    tasks = [task("a"), task("y"), task("z"), task("b", "a", "y", "z", dep_policy=2, condition="inputs.z or inputs.y")]
    state = run_of(*tasks)
    go(state)
    ok(state, "a")
    ok(state, "y", "false")
    go(state)
    assert states(state)["b"] == "pending"  # waits for z alone
    state.rerun(["y"], T0)
    fail(state, "z")
    assert go(state) == ["y"]

    ok(state, "y", "true")

    assert go(state) == ["b"]
