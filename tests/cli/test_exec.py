"""`dagkit exec`: what a shell worker runs for a Python task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPT = """\
from dagkit import task, workflow

@task
def add(x, y):
    return x + y

@task
def total(numbers):
    return {"sum": sum(numbers)}

@task
def shape(x):
    return {1, 2}

@workflow
def sums():
    return total([add(1, 1), add(2, 2)]), shape(1)
"""


@pytest.fixture
def run(project, monkeypatch: pytest.MonkeyPatch) -> str:
    """A submitted run, and the environment of a worker that takes its tasks."""
    project.write("flows.py", SCRIPT)
    project.call("submit", "flows.py:sums", "--id", "w")
    monkeypatch.setenv("JOBQ_WORKFLOW_ID", "w")
    monkeypatch.setenv("JOBQ_OUTPUT_FILE", str(project.folder / "output"))
    return "w"


def output(folder: Path) -> object:
    return json.loads((folder / "output").read_text())


def test_the_call_is_read_from_the_store_and_its_value_becomes_the_output(project, run, monkeypatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_TASK", "add-1")

    assert project.call("exec").stdout == ""
    assert output(project.folder) == 4


def test_outputs_of_parents_are_read_through_their_refs(project, run, monkeypatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_TASK", "total")
    refs = project.write("refs.json", '{"add": "2", "add-1": "40"}')
    monkeypatch.setenv("JOBQ_WORKFLOW_UPSTREAM_REFS", str(refs))

    project.call("exec")
    assert output(project.folder) == {"sum": 42}


def test_a_value_that_a_shell_worker_cannot_report_is_an_error(project, run, monkeypatch) -> None:
    monkeypatch.setenv("JOBQ_WORKFLOW_TASK", "shape")

    assert "set is none" in project.call("exec", code=2).stderr


def test_a_message_can_be_tried_by_hand(project) -> None:
    message = json.dumps({"cmd": "dagkit exec", "call": {"function": "math:sqrt", "args": [16]}})

    assert project.call("exec", "-", stdin=message).stdout == "4.0\n"
    envelope = json.dumps({"version": 1, "kwargs": message, "num_retries": 0, "id": "x"})
    project.write("message.json", envelope)
    assert project.call("exec", "message.json").stdout == "4.0\n"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"function": "math:sqrt", "args": [-1]}, "ValueError: "),
        ({"function": "math:nope", "args": []}, "AttributeError: "),
        ({"args": []}, "neither `function` nor `pickle`"),
    ],
)
def test_what_the_task_raises_is_one_error_and_exit_code_1(project, call, said) -> None:
    stderr = project.call("exec", "-", stdin=json.dumps({"call": call}), code=1).stderr

    assert "error: task: " in stderr
    assert said in stderr


@pytest.mark.parametrize("message", ["{}", "[]", "not json", '{"cmd": "ls"}'])
def test_what_is_no_call_is_wrong_use(project, message: str) -> None:
    assert project.call("exec", "-", stdin=message, code=2).stderr.startswith("error: ")


def test_outside_a_worker_it_says_what_is_missing(project) -> None:
    assert "JOBQ_WORKFLOW_ID and JOBQ_WORKFLOW_TASK not set" in project.call("exec", code=2).stderr
