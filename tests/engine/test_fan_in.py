"""Cutting wide fan-ins: the shared cases, and that every task ends as it would without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dagkit.engine.fan_in import split
from dagkit.engine.state import WorkflowState
from dagkit.errors import DefinitionError, UsageError
from dagkit.model.messages import Completion
from dagkit.model.spec import WorkflowSpec
from engine.rehearsal import Rehearsal, cases


def stored(spec: WorkflowSpec) -> WorkflowSpec:
    """As a coordinator reads it from the store."""
    document = json.loads(json.dumps(spec.definition("w", "2026-05-05T00:00:00+00:00")))
    return WorkflowSpec.from_definition(document)


@pytest.mark.parametrize("case", cases("fan_in"))
def test_shared_cases(case: dict[str, Any]) -> None:
    spec, expect = WorkflowSpec.from_dict(case["workflow"]), case["expect"]
    if "error" in expect:
        with pytest.raises(UsageError) as caught:
            split(spec, case["max_fan_in"])
        assert all(word in str(caught.value) for word in expect["error"])
        return
    cut = split(spec, case["max_fan_in"])

    assert (cut is spec) == expect.get("unchanged", False)
    if "merge_nodes" in expect:
        assert [task.name for task in cut.tasks if task.name.startswith("__")] == expect["merge_nodes"]
    run, phases = play(stored(cut), case.get("outcomes", {}))
    if "phases" in expect:
        assert [sorted(phase) for phase in phases] == [sorted(phase) for phase in expect["phases"]]
    for task, state in expect.get("final", {}).items():
        assert run.state.state_of(run.state.index[task]).value == state
    if "workflow" in expect:
        assert run.state.status.value == expect["workflow"]
    for task, upstream in expect.get("upstream", {}).items():
        assert run.upstream[task] == upstream
    for task, names in expect.get("real_upstream", {}).items():
        assert sorted(run.upstream[task]) == names


def play(spec: WorkflowSpec, outcomes: dict[str, Any]) -> tuple[Rehearsal, list[list[str]]]:
    """Everything that is dispatched together ends together."""
    run, phases = Rehearsal(spec), []
    run.step()
    while run.dispatched:
        phases.append(run.dispatched)
        run.complete([report_of(name, outcomes.get(name, "ok")) for name in run.dispatched])
        run.step()
    return run, phases


def report_of(name: str, outcome: Any) -> dict[str, Any]:
    if isinstance(outcome, dict):
        return {"ok": name, "output": outcome["ok"]}
    return {outcome: name}


@st.composite
def wide_runs(draw: st.DrawFn) -> tuple[WorkflowSpec, dict[str, str], int]:
    n = draw(st.integers(3, 9))
    tasks: list[dict[str, Any]] = []
    for number in range(n):
        earlier = [f"t{other}" for other in range(number)]
        parents = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        policies: list[Any] = ["all", "any", "all_settled"] + ([draw(st.integers(1, len(parents)))] if parents else [])
        policy = draw(st.sampled_from(policies)) if parents else "all"
        tasks.append({"name": f"t{number}", "depends_on": parents, "dep_policy": policy})
    outcomes = {f"t{number}": draw(st.sampled_from(["ok", "ok", "fail"])) for number in range(n)}
    policy = draw(st.sampled_from(["all_tasks_succeed", "all_sinks_succeed"]))
    return (
        WorkflowSpec.from_dict({"name": "w", "result_policy": policy, "tasks": tasks}),
        outcomes,
        draw(st.integers(2, 3)),
    )


@settings(max_examples=150, deadline=None)
@given(wide_runs())
def test_every_task_ends_as_it_would_without_batches(wide: tuple[WorkflowSpec, dict[str, str], int]) -> None:
    spec, outcomes, most = wide
    try:
        cut = stored(split(spec, most))
    except DefinitionError:  # the order of some depends_on contradicts the graph
        reject()

    plain, _ = play(spec, outcomes)
    batched, _ = play(cut, outcomes)

    ends = {name: plain.state.state_of(plain.state.index[name]) for name in plain.state.names}
    assert {name: batched.state.state_of(batched.state.index[name]) for name in ends} == ends
    assert batched.state.status == plain.state.status
    assert batched.state.counts == plain.state.counts


def test_two_targets_that_order_the_same_parents_oppositely_are_refused_by_name() -> None:
    spec = WorkflowSpec.from_dict(
        {
            "name": "w",
            "tasks": [{"name": name} for name in "abcd"]
            + [{"name": "x", "depends_on": list("abcd")}, {"name": "y", "depends_on": list("cdab")}],
        }
    )

    with pytest.raises(DefinitionError, match="x, y"):
        split(spec, 2)


def test_an_early_parent_that_depends_on_a_later_one_is_refused_by_name() -> None:
    tasks = [{"name": "late"}, {"name": "early", "depends_on": ["late"]}, {"name": "b"}]
    tasks.append({"name": "x", "depends_on": ["early", "b", "late"]})

    with pytest.raises(DefinitionError, match=r"(early|late), (early|late) would wait"):
        split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 2)


def test_a_completion_for_a_merge_node_is_ignored() -> None:
    tasks = [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "x", "depends_on": ["a", "b", "c"]}]
    state = WorkflowState.create(split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 2), "w", 1.0)

    assert not state.apply(Completion("w", "__merge_x_0", True, attempt=1), 2.0)


def test_a_cancelled_run_with_batches_can_be_retried() -> None:
    tasks = [{"name": name} for name in "abcd"] + [{"name": "x", "depends_on": list("abcd")}]
    run = Rehearsal(split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 2))
    run.step()
    run.play({"do": "cancel"})
    run.play({"do": "complete", "with": [{"ok": "a"}, {"fail": "b", "kind": "cancelled"}]})

    answer = run.play({"do": "retry"})

    assert answer == {"reset": 4, "now_ready": 1, "still_pending": 3}
    assert run.dispatched == ["b"]
    run.play({"do": "complete", "with": [{"ok": "b"}]})
    assert sorted(run.dispatched) == ["c", "d"]


def test_twenty_thousand_parents_are_resolved_in_batches() -> None:
    names = [f"p{n}" for n in range(20_000)]
    tasks = [{"name": name} for name in names] + [{"name": "x", "depends_on": names}]
    run, phases = play(split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 5_000), {})

    assert [len(phase) for phase in phases] == [5_000] * 4 + [1]
    assert len(run.upstream["x"]) == 20_000


def test_a_merge_node_that_another_writer_left_pending_is_resolved_when_the_run_is_loaded() -> None:
    tasks = [{"name": name} for name in "abc"] + [{"name": "x", "depends_on": list("abc")}]
    spec = split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 2)
    state = WorkflowState.create(spec, "w", 1.0)
    ended = {name: {"state": "completed"} for name in "ab"}

    loaded = WorkflowState.load(spec, {**state.document(), "tasks": ended})

    assert [item.name for item in loaded.dispatch(2.0)] == ["c"]


def test_a_barrier_that_has_opened_stays_open_after_a_restart() -> None:
    tasks: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}, {"name": "slow"}]
    tasks += [{"name": "c", "depends_on": ["slow"]}, {"name": "x", "depends_on": ["a", "b", "c"]}]
    run = Rehearsal(split(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), 2))
    run.step()
    run.play({"do": "complete", "with": [{"ok": "a"}, {"ok": "b"}]})

    run.play({"do": "restart"})
    run.play({"do": "complete", "with": [{"ok": "slow"}]})

    assert run.dispatched == ["c"]
