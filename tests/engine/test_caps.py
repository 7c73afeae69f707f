"""How many tasks run at a time, changed while the run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.engine.state import WorkflowState
from dagkit.errors import CorruptState, UsageError
from dagkit.model.messages import Completion
from dagkit.model.spec import WorkflowSpec


def a_run(count: int = 6, **more: Any) -> WorkflowState:
    tasks = [{"name": f"t-{n}", "template": "train" if n % 2 else "test", "kwargs": {"cmd": "x"}} for n in range(count)]
    return WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": tasks, **more}), "run", 0.0)


def names(run: WorkflowState) -> list[str]:
    return [item.name for item in run.dispatch(1.0)]


def finish(run: WorkflowState, name: str) -> None:
    assert run.apply(Completion("run", name, True, attempt=1), 2.0)


def test_a_lowered_limit_stops_nothing_and_lets_nothing_start() -> None:
    run = a_run()
    run.set_limit(3, None, 0.5)
    assert names(run) == ["t-0", "t-1", "t-2"]

    run.set_limit(1, None, 1.0)
    finish(run, "t-0")
    assert names(run) == []
    finish(run, "t-1")
    finish(run, "t-2")
    assert names(run) == ["t-3"]


def test_0_pauses_and_none_goes_back_to_the_definition() -> None:
    run = a_run(max_parallelism=2)
    run.set_limit(0, None, 0.5)
    assert names(run) == []
    run.set_limit(None, None, 0.6)
    assert names(run) == ["t-0", "t-1"]


def test_a_template_that_had_no_limit_gets_one_while_its_tasks_run() -> None:
    run = a_run()
    run.set_limit(4, None, 0.5)
    assert names(run) == ["t-0", "t-1", "t-2", "t-3"]  # two of each template

    run.set_limit(None, None, 1.0)
    run.set_limit(2, "train", 1.0)
    assert names(run) == ["t-4"]
    finish(run, "t-1")
    assert names(run) == ["t-5"]


@pytest.mark.parametrize(("workflow", "template", "count"), [(10_000, 2, 2), (2, 10_000, 2), (2, 3, 2), (3, 2, 2)])
def test_the_smallest_room_counts(workflow: int, template: int, count: int) -> None:
    tasks = [{"name": f"t-{n}", "template": "a", "kwargs": {"cmd": "x"}} for n in range(3)]
    run = WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": tasks}), "run", 0.0)
    run.set_limit(workflow, None, 0.0)
    run.set_limit(template, "a", 0.0)
    assert len(run.dispatch(1.0)) == count


def test_changed_limits_survive_a_restart_and_are_written_only_when_changed() -> None:
    run = a_run()
    assert "limits" not in run.document()
    run.set_limit(2, None, 0.5)
    run.set_limit(0, "test", 0.5)
    changes = run.take_changes()
    assert changes.head["limits"] == {"max_parallelism": 2, "concurrency": {"test": 0}}

    again = WorkflowState.load(run.spec, run.document())

    assert names(again) == ["t-1", "t-3"]
    again.set_limit(None, "test", 2.0)
    again.set_limit(None, None, 2.0)
    assert "limits" not in again.document()
    assert names(again) == ["t-0", "t-2", "t-4", "t-5"]


def test_mistakes_are_named() -> None:
    run = a_run()
    with pytest.raises(UsageError, match=r"no template 'trian'; did you mean train\?"):
        run.set_limit(1, "trian", 0.0)
    for wrong in (-1, "3", 1.5, True):
        with pytest.raises(UsageError, match="a number of tasks, and 0 pauses"):
            run.set_limit(wrong, None, 0.0)  # type: ignore[arg-type]
    with pytest.raises(CorruptState):
        WorkflowState.load(run.spec, {**run.document(), "limits": {"concurrency": 3}})


@given(st.lists(st.tuples(st.sampled_from([None, "train", "test"]), st.none() | st.integers(0, 4)), max_size=12))
def test_no_limit_is_ever_passed_and_everything_runs_in_the_end(changes):
    run = a_run(8)
    running: list[str] = []
    for template, most in [*changes, (None, None), ("train", None), ("test", None)]:
        run.set_limit(most, template, 1.0)
        running += names(run)
        caps = run.caps
        started = {"train": 0, "test": 0}
        for name in running:
            started["train" if int(name[2:]) % 2 else "test"] += 1
        assert run._table.busy == {name: started[name] for name in caps.limited}
        if running:
            finish(run, running.pop(0))
    while not run.is_over:
        running += names(run)
        finish(run, running.pop(0))
    assert run.counts.completed == 8
