"""Counts by group are true through steps, retries and restarts, and every store of ours keeps them beside the state."""

from __future__ import annotations

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.model.messages import Completion
from dagkit.model.records import Counts
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.states import TaskState
from dagkit.stores import documents, open_store
from dagkit.stores.memory import MemoryStore
from dagkit.stores.sqlite import SQLiteStore
from watched_runs import sweep


@pytest.fixture(params=["memory", "sqlite", pytest.param("azure", marks=pytest.mark.xdist_group("azurite"))])
def store(request, tmp_path):
    if request.param == "azure":
        account = request.getfixturevalue("azurite_account")
        made = open_store(f"azure://{account.name}/Proj")
    else:
        made = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path)
    yield made
    made.close()


def recount(state: WorkflowState) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for place, task in enumerate(state.spec.tasks):
        by_state = counts.setdefault(task.template or task.name, [0] * len(TaskState))
        by_state[list(TaskState).index(state.state_of(place))] += 1
    return counts


def step(state: WorkflowState, *, succeeds: bool = True) -> None:
    for one in state.dispatch(1.0):
        report = Completion("run", one.name, succeeds, attempt=one.attempt, generation=one.generation, error="no")
        state.apply(report, 1.0)


def test_they_are_true_through_steps_retries_and_a_restart(store):
    spec = sweep(5)
    state = WorkflowState.create(spec, "run", 1.0)
    etag = store.create("run", spec.definition("run", "2026-01-01T00:00:00+00:00"), state.document())
    assert store.row("run").extra == {}

    step(state)
    step(state, succeeds=False)
    etag = store.save("run", state.take_changes(), etag)
    assert store.row("run").extra["groups"] == recount(state)
    assert recount(state)["train"][list(TaskState).index(TaskState.FAILED)] == 5

    state.user_retry(1.0)
    again = WorkflowState.load(spec, state.document())
    step(again)
    store.save("run", again.take_changes(), etag)
    assert store.row("run").extra["groups"] == recount(again)


def test_documents_do_not_hold_them(store):
    spec = sweep(2)
    state = WorkflowState.create(spec, "run", 1.0)
    etag = store.create("run", spec.definition("run", "2026-01-01T00:00:00+00:00"), state.document())
    step(state)
    store.save("run", state.take_changes(), etag)

    assert store.load("run").state == state.document()
    assert all(not row.extra for row in store.rows())


def test_groups_that_are_too_many_to_be_told_are_not():
    tasks = [TaskSpec.trusted(f"task-{i}-x") for i in range(301)]
    state = WorkflowState.create(WorkflowSpec.trusted("wide", tasks), "run", 1.0)
    step(state)

    assert state.take_changes().groups == {}


@pytest.mark.parametrize(
    ("counts", "is_true"),
    [(Counts(pending=1, completed=2), True), (Counts(pending=2, completed=2), False), (Counts(pending=2), False)],
)
def test_in_a_row_that_somebody_else_may_have_written_they_hold_only_if_they_add_up(counts, is_true):
    """ai4s-jobq leaves columns alone that it does not know; what they say is then of an earlier state."""
    groups = {"a": [1, 0, 0, 1, 0, 0, 0, 0], "b": [0, 0, 0, 1, 0, 0, 0, 0]}
    text = documents.groups_to_text(groups, 1_000)

    assert documents.groups_from_text(text, counts) == (groups if is_true else {})


def test_what_does_not_fit_a_column_is_left_out():
    assert documents.groups_to_text({"a" * 100: [0] * 8}, 50) == ""
    assert documents.groups_from_text("", Counts()) == {}
