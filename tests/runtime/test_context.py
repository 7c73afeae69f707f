"""The helpers that task code imports, and their cases (tests/cases/outputs.yaml), as in the process of a script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import dagkit
from dagkit.runtime import context
from dagkit.stores import open_store

CASES = yaml.safe_load((Path(__file__).parent.parent / "cases" / "outputs.yaml").read_text())["cases"]
HELPERS = {case["id"]: case for case in CASES if "context" in case or case.get("outside")}
VARIABLES = ("JOBQ_WORKFLOW_ID", "JOBQ_WORKFLOW_TASK", "JOBQ_WORKFLOW_ATTEMPT", "JOBQ_OUTPUT_FILE", "DAGKIT_STORE")


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this process look like a task with the given parents; returns where the store is."""

    def enter(parents: dict[str, Any]) -> Path:
        refs = {name: None if value is None else json.dumps(value) for name, value in parents.items()}
        (tmp_path / "upstream.json").write_text(json.dumps(refs))
        values = ("wf1", "train", "2", str(tmp_path / "output.json"), str(tmp_path / "store"))
        for name, value in zip(VARIABLES, values, strict=True):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("JOBQ_WORKFLOW_UPSTREAM_REFS", str(tmp_path / "upstream.json"))
        context._cancelled.clear()
        return tmp_path / "store"

    for name in (*VARIABLES, "JOBQ_WORKFLOW_UPSTREAM_REFS"):
        monkeypatch.delenv(name, raising=False)
    return enter


@pytest.mark.parametrize("case", HELPERS.values(), ids=HELPERS.keys())
def test_case(case: dict[str, Any], inside: Any) -> None:
    if not case.get("outside"):
        inside(case["context"])
    helper = getattr(dagkit, case["call"])
    arguments = [case["arg"]] if "arg" in case else []

    if "raises" in case:
        kind = {"KeyError": KeyError, "RuntimeError": RuntimeError, "ValueError": ValueError}[case["raises"]]
        with pytest.raises(kind):
            helper(*arguments)
    else:
        assert helper(*arguments) == case["returns"]


def test_outside_a_task_the_missing_variable_is_named(inside: Any) -> None:
    with pytest.raises(RuntimeError, match="JOBQ_OUTPUT_FILE"):
        context.set_output(1)
    for helper in (context.workflow_context, context.get_upstream_outputs, context.is_cancelled):
        with pytest.raises(ValueError, match="JOBQ_WORKFLOW_ID"):
            helper()


def test_a_task_knows_which_attempt_it_is(inside: Any) -> None:
    inside({})

    assert context.workflow_context() == context.TaskContext("wf1", "train", 2)


def test_real_upstream_tasks_are_sorted(inside: Any) -> None:
    inside({"b": 1, "a": None})

    assert context.get_real_upstream_tasks() == ["a", "b"]


def test_the_last_output_wins_and_is_never_half_written(inside: Any, tmp_path: Path) -> None:
    inside({})

    context.set_output({"a": 1})
    with pytest.raises(TypeError):
        context.set_output({"a": object()})
    context.set_output({"a": 2})

    assert json.loads((tmp_path / "output.json").read_text()) == {"a": 2}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["output.json", "upstream.json"]


def test_stored_outputs_are_read_from_the_store(inside: Any, tmp_path: Path) -> None:
    place = inside({})
    store = open_store(place)
    ref = store.put_output("wf1", "big.json", json.dumps("x" * 40_000).encode())
    (tmp_path / "upstream.json").write_text(json.dumps({"big": ref}))

    assert context.get_upstream_output("big") == "x" * 40_000
    store.close()


def test_helpers_work_where_a_loop_runs(inside: Any) -> None:
    inside({"a": 1})

    async def task() -> Any:
        return context.get_upstream_output("a")

    assert asyncio.run(task()) == 1


def test_the_cancel_flag_of_the_store_is_seen(inside: Any) -> None:
    store = open_store(inside({}))
    state = {"v": 1, "workflow_id": "wf1", "workflow_state": "running", "tasks": {}}
    store.create("wf1", {"v": 1, "workflow_id": "wf1", "name": "n", "tasks": {}}, state)
    assert not context.is_cancelled()

    store.request_cancel("wf1")
    context._cancelled.clear()

    assert context.is_cancelled()
    store.close()


def test_what_only_another_process_has_in_memory_is_explained(
    inside: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inside({})
    monkeypatch.setenv("DAGKIT_STORE", "memory:")
    (tmp_path / "upstream.json").write_text(json.dumps({"big": "blob:wf1/big.json"}))

    assert not context.is_cancelled()
    with pytest.raises(RuntimeError, match="memory"):
        context.get_upstream_output("big")
