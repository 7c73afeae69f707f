"""State documents: compact, of dagkit or of ai4s-jobq, read again, and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import CorruptState, NewerFormat
from dagkit.model.messages import Completion
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, RunStatus, TaskState

DEMO = {"name": "demo", "tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"], "num_retries": 1}]}
MIDNIGHT = 1_777_939_200.0  # 2026-05-05T00:00:00+00:00
HEAD = {
    "v": 1,
    "workflow_id": "wf1",
    "workflow_state": "pending",
    "cancel_requested": False,
    "updated_at": "2026-05-05T00:00:00+00:00",
    "error": None,
}


def demo() -> WorkflowSpec:
    return WorkflowSpec.from_dict(DEMO)


def states(state: WorkflowState) -> dict[str, str]:
    return {name: state.state_of(task).value for name, task in state.index.items()}


def entry_of_ai4s_jobq(state: str, **fields: Any) -> dict[str, Any]:
    entry = {"state": state, "completed_parents": 0, "failed_parents": 0, "output_ref": None, "error": None}
    return {**entry, "started_at": None, "completed_at": None, "attempt_no": 0, **fields}


def test_a_new_run_is_written_as_the_worked_example_has_it() -> None:
    state = WorkflowState.create(demo(), "wf1", MIDNIGHT)

    assert state.document() == {**HEAD, "tasks": {"a": {"state": "ready"}}}


def test_a_document_of_ai4s_jobq_with_every_key_is_read() -> None:
    document = {
        **HEAD,
        "workflow_state": "running",
        "tasks": {"a": entry_of_ai4s_jobq("ready"), "b": entry_of_ai4s_jobq("pending")},
    }

    state = WorkflowState.load(demo(), document)

    assert states(state) == {"a": "ready", "b": "pending"}
    assert state.status is RunStatus.RUNNING
    assert [item.name for item in state.dispatch(MIDNIGHT)] == ["a"]


def test_the_worked_example_from_submit_to_the_user_retry() -> None:
    state = WorkflowState.create(demo(), "wf1", MIDNIGHT)
    state.dispatch(MIDNIGHT)
    state.apply(Completion("wf1", "a", True, '{"x": 1}', attempt=1), MIDNIGHT + 1)
    state.dispatch(MIDNIGHT + 1)
    assert state.entry(1) == {
        "state": "running",
        "completed_parents": 1,
        "started_at": "2026-05-05T00:00:01+00:00",
        "attempt_no": 1,
    }
    state.apply(Completion("wf1", "b", False, error="boom", attempt=1), MIDNIGHT + 2)
    assert state.entry(1) == {"state": "ready", "completed_parents": 1, "attempt_no": 1, "error": "boom"}
    state.dispatch(MIDNIGHT + 2)
    state.apply(Completion("wf1", "b", False, error="boom", attempt=2, kind=FailureKind.USER), MIDNIGHT + 3)
    assert state.document()["error"] == "b: boom"
    assert state.counts.grouped()["failed"] == 1
    state.user_retry(MIDNIGHT + 4)
    assert state.entry(1) == {"state": "ready", "completed_parents": 1, "generation": 1}

    (item,) = state.dispatch(MIDNIGHT + 5)

    assert (item.name, item.attempt, item.generation) == ("b", 1, 1)
    assert not state.apply(Completion("wf1", "b", True, attempt=2, generation=0), MIDNIGHT + 6)
    assert state.apply(Completion("wf1", "b", True, attempt=1, generation=1), MIDNIGHT + 6)
    assert state.status is RunStatus.COMPLETED


def test_the_reserved_ninth_state_is_treated_as_ready() -> None:
    document = {**HEAD, "tasks": {"a": {"state": "ready_pending_budget"}}}

    state = WorkflowState.load(demo(), document)

    assert state.state_of(0) is TaskState.READY
    assert [item.name for item in state.dispatch(MIDNIGHT)] == ["a"]


def test_counts_of_parents_are_recomputed_rather_than_believed() -> None:
    tasks = {"a": {"state": "completed"}, "b": entry_of_ai4s_jobq("pending", completed_parents=7, failed_parents=3)}

    state = WorkflowState.load(demo(), {**HEAD, "tasks": tasks})

    assert state.entry(1) == {"state": "ready", "completed_parents": 1}


def test_a_pending_task_that_another_writer_left_behind_is_examined() -> None:
    spec = WorkflowSpec.from_dict(
        {"name": "w", "tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"], "condition": "inputs.a.go"}]}
    )
    document = {**HEAD, "tasks": {"a": {"state": "completed", "output_ref": '{"go": true}'}}}

    state = WorkflowState.load(spec, document)

    assert [item.name for item in state.dispatch(MIDNIGHT)] == ["b"]


def test_what_a_load_decides_is_saved_with_the_next_changes() -> None:
    state = WorkflowState.load(demo(), {**HEAD, "tasks": {"a": {"state": "failed"}}})

    assert states(state)["b"] == "upstream_failed"
    assert [(name, entry["state"]) for _, name, entry in state.take_changes().tasks] == [("b", "upstream_failed")]


def test_everything_of_an_entry_survives_a_restart() -> None:
    spec = WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a", "num_retries": 3, "retry_delay_s": 10}]})
    state = WorkflowState.create(spec, "w", MIDNIGHT)
    for kind in (FailureKind.PREEMPTED, FailureKind.MEMORY):
        (item,) = state.dispatch(state.next_due() or MIDNIGHT)
        usage = {"wall_s": 1.5}
        state.apply(Completion("w", "a", False, error="x", attempt=item.attempt, kind=kind, usage=usage), MIDNIGHT + 20)

    document = json.loads(json.dumps(state.document()))
    loaded = WorkflowState.load(spec, document)

    assert document["tasks"]["a"] == {
        "state": "ready",
        "attempt_no": 2,
        "uncharged": 1,
        "kind": "memory",
        "error": "x",
        "not_before": "2026-05-05T00:00:30+00:00",
        "past": [
            {"attempt": 1, "kind": "preempted", "wall_s": 1.5},
            {"attempt": 2, "kind": "memory", "wall_s": 1.5},
        ],
    }
    assert loaded.document() == document
    assert loaded.next_due() == MIDNIGHT + 30
    assert loaded.dispatch(MIDNIGHT + 29) == []
    assert [item.attempt for item in loaded.dispatch(MIDNIGHT + 30)] == [3]


def test_unknown_keys_of_later_versions_are_ignored() -> None:
    document = {**HEAD, "later": 1, "tasks": {"a": {"state": "ready", "colour": "red"}}}

    assert WorkflowState.load(demo(), document).state_of(0) is TaskState.READY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": None}, "no known format"),
        ({"v": "1"}, "no known format"),
        ({"v": 0}, "no known format"),
        ({"v": True}, "no known format"),
        ({"workflow_state": "resting"}, "resting"),
        ({"workflow_id": None}, "workflow_id"),
        ({"tasks": []}, "tasks"),
        ({"tasks": {"stranger": {"state": "ready"}}}, "stranger"),
        ({"tasks": {"a": "ready"}}, "'a'"),
        ({"tasks": {"a": {"state": "asleep"}}}, "asleep"),
        ({"tasks": {"a": {"attempt_no": "two"}}}, "'a'"),
        ({"tasks": {"a": {"kind": "bad luck"}}}, "bad luck"),
        ({"tasks": {"a": {"output_ref": 7}}}, "text belongs"),
        ({"tasks": {"a": {"state": "ready", "not_before": "soon"}}}, "soon"),
    ],
)
def test_documents_that_cannot_be_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CorruptState, match=words) as refusal:
        WorkflowState.load(demo(), {**HEAD, "tasks": {}, **change})

    assert not isinstance(refusal.value, NewerFormat)


def test_a_document_of_a_later_format_asks_for_an_upgrade() -> None:
    with pytest.raises(NewerFormat, match="Upgrade dagkit"):
        WorkflowState.load(demo(), {**HEAD, "v": 2, "tasks": {}})


def test_a_cancel_request_found_in_the_document_is_followed_by_the_next_step() -> None:
    document = {**HEAD, "cancel_requested": True, "tasks": {"a": {"state": "running", "attempt_no": 1}}}
    state = WorkflowState.load(demo(), document)

    assert state.status is RunStatus.CANCELLING
    assert state.dispatch(MIDNIGHT) == []
    assert states(state) == {"a": "running", "b": "cancelled"}


def test_a_cancel_request_that_came_after_the_end_does_not_touch_the_run() -> None:
    tasks = {"a": {"state": "completed"}, "b": {"state": "completed"}}
    document = {**HEAD, "workflow_state": "completed", "cancel_requested": True, "tasks": tasks}

    state = WorkflowState.load(demo(), document)

    assert state.status is RunStatus.COMPLETED
    assert not state.cancel_requested


def test_changes_name_only_what_changed_and_carry_the_whole_entry() -> None:
    state = WorkflowState.create(demo(), "wf1", MIDNIGHT)
    assert [name for _, name, _ in state.take_changes().tasks] == ["a"]
    assert not state.has_changes

    state.dispatch(MIDNIGHT)
    changes = state.take_changes()

    assert [(index, name, entry["attempt_no"]) for index, name, entry in changes.tasks] == [(0, "a", 1)]
    assert changes.head["workflow_state"] == "running"
    assert changes.counts.running == 1


def test_a_task_that_was_put_back_keeps_nothing_but_its_generation() -> None:
    spec = WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"]}]})
    state = WorkflowState.create(spec, "w", MIDNIGHT)
    state.keep({0: None}, MIDNIGHT)
    state.rerun(["a"], MIDNIGHT)
    state.take_changes()
    state.keep({0: None}, MIDNIGHT)
    state.rerun(["a"], MIDNIGHT)

    changes = {name: entry for _, name, entry in state.take_changes().tasks}

    assert changes["b"] == {"generation": 2}


def test_the_document_of_earlier_changes_is_not_touched_by_later_ones() -> None:
    state = WorkflowState.create(demo(), "wf1", MIDNIGHT)
    state.dispatch(MIDNIGHT)
    expected, changes = state.document(), state.take_changes()
    state.apply(Completion("wf1", "a", True, attempt=1), MIDNIGHT + 1)
    state.dispatch(MIDNIGHT + 1)
    state.take_changes()

    assert changes.document() == expected


def test_a_store_that_asks_for_a_document_late_in_the_day_gets_the_present_one() -> None:
    state = WorkflowState.create(demo(), "wf1", MIDNIGHT)
    for _ in range(200):
        changes = state.take_changes()

    assert changes.document() == state.document()
