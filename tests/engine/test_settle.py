"""Tasks that a person takes for completed."""

from __future__ import annotations

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import RunBusy
from dagkit.model.messages import Completion
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import RunStatus, TaskState

CHAIN = [
    {"name": "a", "kwargs": {"cmd": "x"}},
    {"name": "b", "depends_on": ["a"], "kwargs": {"cmd": "x"}},
    {"name": "c", "depends_on": ["b"], "kwargs": {"cmd": "x"}},
]


def a_run() -> WorkflowState:
    return WorkflowState.create(WorkflowSpec.from_dict({"name": "w", "tasks": CHAIN}), "run", 0.0)


def states(run: WorkflowState) -> list[str]:
    return [run.state_of(task).value for task in range(3)]


def test_a_failed_task_is_taken_for_completed_and_what_was_given_up_goes_on() -> None:
    run = a_run()
    run.dispatch(1.0)
    run.apply(Completion("run", "a", False, error="no", attempt=1), 1.0)
    assert states(run) == ["failed", "upstream_failed", "upstream_failed"]

    assert run.settle(["a"], 2.0) == 1

    assert states(run) == ["completed", "ready", "pending"]
    assert [item.name for item in run.dispatch(3.0)] == ["b"]
    assert WorkflowState.load(run.spec, run.document()).counts == run.counts


def test_just_those_that_are_named_are_completed() -> None:
    run = a_run()
    assert run.settle(["b"], 1.0) == 1
    assert states(run) == ["ready", "completed", "ready"]


def test_what_is_completed_already_stays_and_counts_for_nothing() -> None:
    run = a_run()
    run.dispatch(1.0)
    run.apply(Completion("run", "a", True, "7", attempt=1), 1.0)
    assert run.settle(["a"], 2.0) == 0
    assert run.output_ref(0) == "7"


def test_a_running_task_is_not_settled() -> None:
    run = a_run()
    run.dispatch(1.0)
    with pytest.raises(RunBusy, match="a is running"):
        run.settle(["a", "b"], 1.0)
    assert run.state_of(1) is TaskState.PENDING


def test_a_run_that_had_failed_can_be_settled_to_its_end() -> None:
    run = a_run()
    run.dispatch(1.0)
    run.apply(Completion("run", "a", False, error="no", attempt=1), 1.0)
    run.settle(["a", "b", "c"], 2.0)
    assert run.status is RunStatus.COMPLETED


def test_a_late_report_of_an_attempt_before_is_ignored() -> None:
    run = a_run()
    run.dispatch(1.0)
    run.apply(Completion("run", "a", False, error="no", attempt=1, generation=0), 1.0)
    run.settle(["a"], 2.0)
    assert not run.apply(Completion("run", "a", True, "1", attempt=2, generation=0), 3.0)
