"""The shared case files, played step by step against the pure engine."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState
from engine.rehearsal import Rehearsal, cases

SHORT = {"pending": "P", "running": "N", "upstream_failed": "U"}


def rehearse(workflow: dict[str, Any], **options: Any) -> Rehearsal:
    return Rehearsal(WorkflowSpec.from_dict(workflow), **options)


def state_of(run: Rehearsal, task: str) -> TaskState:
    return run.state.state_of(run.state.index[task])


def check(run: Rehearsal, step: dict[str, Any], answer: dict[str, Any], before: dict[str, set[str]]) -> None:
    """Everything that a step says must hold."""
    state = run.state
    if "dispatched" in step:
        assert sorted(run.dispatched) == sorted(step["dispatched"])
    for task, expected in step.get("tasks", {}).items():
        assert (task, state_of(run, task).value) == (task, expected)
    for task, expected in step.get("attempts", {}).items():
        assert state.entry(state.index[task]).get("attempt_no", 0) == expected
    for task, words in step.get("reasons", {}).items():
        error = state.entry(state.index[task])["error"]
        assert all(word in error for word in words), error
    for task, expected in step.get("ids", {}).items():
        assert run.sent[task][-1][2] == expected
    for task in step.get("fresh_ids", ()):
        assert run.sent[task][-1][2] not in before[task]
    for task, expected in step.get("outputs", {}).items():
        assert run.decode(state.output_ref(state.index[task])) == expected
    for task, expected in step.get("upstream", {}).items():
        assert run.upstream[task] == expected
    if "workflow" in step:
        assert state.status.value == step["workflow"]
    if "ignored" in step:
        assert run.ignored == step["ignored"]
    if "counters" in step:
        assert answer == step["counters"]
    assert ("refused" in answer) == step.get("refused", False)
    grouped = state.counts.grouped()
    assert {key: grouped[key] for key in step.get("status", {})} == step.get("status", {})


def play(case: dict[str, Any]) -> None:
    run = rehearse(case["workflow"], clock=case.get("clock", "dispatch"))
    for step in case["steps"]:
        before = {task: {sent[2] for sent in run.sent[task]} for task in run.state.names}

        answer = run.play(step)

        check(run, step, answer, before)


@pytest.mark.parametrize("case", [c for c in cases("policies") if "steps" in c.values[0]])
def test_policies(case: dict[str, Any]) -> None:
    play(case)


@pytest.mark.parametrize("case", [c for c in cases("retries") if "steps" in c.values[0]])
def test_retries(case: dict[str, Any]) -> None:
    play(case)


@pytest.mark.parametrize("case", cases("skips"))
def test_skips(case: dict[str, Any]) -> None:
    play(case)


@pytest.mark.parametrize("case", cases("cancel"))
def test_cancel(case: dict[str, Any]) -> None:
    play(case)


@pytest.mark.parametrize("case", cases("duplicates"))
def test_duplicates(case: dict[str, Any]) -> None:
    play(case)


@pytest.mark.parametrize("case", cases("parallelism"))
def test_parallelism(case: dict[str, Any]) -> None:
    play(case)


ROWS = next(c.values[0]["table"] for c in cases("policies") if "table" in c.values[0])


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['policy']}-{row['parents']}" for row in ROWS])
def test_a_child_follows_the_policy_table(row: dict[str, Any]) -> None:
    for policy in ("all_tasks", "all_sinks"):
        run = three_parents(row["policy"], f"{policy}_succeed")

        seen = [after_parent(run, number, outcome) for number, outcome in enumerate(row["parents"])]
        finish_child(run)

        assert "".join(seen) == row["child"]
        assert run.state.status.value == row[policy]


TABLE = {  # facts: jobq, section 4
    "all": "PPN PPU PUU PUU UUU UUU UUU UUU",
    "3": "PPN PPU PUU PUU UUU UUU UUU UUU",
    "any": "NNN NNN NNN NNN PNN PNN PPN PPU",
    "1": "NNN NNN NNN NNN PNN PNN PPN PPU",
    "2": "PNN PNN PPN PPU PPN PPU PUU PUU",
    "all_settled": "PPN PPN PPN PPN PPN PPN PPN PPU",
}


@pytest.mark.parametrize(
    ("policy", "parents", "expected"),
    [
        (policy, "".join(parents), expected)
        for policy, row in TABLE.items()
        for parents, expected in zip(product("SF", repeat=3), row.split(), strict=True)
    ],
)
def test_every_policy_at_every_order_of_ends(policy: str, parents: str, expected: str) -> None:
    run = three_parents(int(policy) if policy.isdigit() else policy, "all_tasks_succeed")

    seen = [after_parent(run, number, outcome) for number, outcome in enumerate(parents)]

    assert "".join(seen) == expected


def three_parents(policy: str | int, result_policy: str) -> Rehearsal:
    tasks: list[dict[str, Any]] = [{"name": f"p{n}"} for n in range(3)]
    tasks.append({"name": "X", "depends_on": ["p0", "p1", "p2"], "dep_policy": policy})
    run = rehearse({"name": "w", "result_policy": result_policy, "tasks": tasks})
    run.step()
    return run


def after_parent(run: Rehearsal, number: int, outcome: str) -> str:
    run.complete([{"ok" if outcome == "S" else "fail": f"p{number}"}])
    run.step()
    return SHORT[state_of(run, "X").value]


def finish_child(run: Rehearsal) -> None:
    if state_of(run, "X") is TaskState.RUNNING:
        run.complete([{"ok": "X"}])
        run.step()


BUDGET = next(c.values[0]["budget"] for c in cases("retries") if "budget" in c.values[0])


@pytest.mark.parametrize("row", BUDGET, ids=str)
def test_a_task_that_always_fails_gets_its_budget_of_attempts(row: dict[str, int]) -> None:
    run = rehearse({"name": "w", "tasks": [{"name": "A", "num_retries": row["num_retries"]}]})
    run.step()

    for _ in range(10):
        run.complete([{"fail": "A", "kind": "user"}])
        run.step()

    assert len(run.sent["A"]) == row["attempts"]
    assert state_of(run, "A") is TaskState.FAILED


def test_the_saved_document_is_what_a_reader_would_find() -> None:
    run = rehearse({"name": "w", "tasks": [{"name": "A"}, {"name": "B", "depends_on": ["A"]}]})
    run.step()
    run.complete([{"ok": "A", "output": {"x": 1}}])
    run.step()

    tasks = json.loads(json.dumps(run.saved))["tasks"]

    assert tasks["A"]["output_ref"] == '{"x": 1}'
    assert tasks["B"]["state"] == "running"
    assert (tasks["B"]["attempt_no"], tasks["B"]["completed_parents"]) == (1, 1)
