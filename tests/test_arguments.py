"""Choosing tasks by what they were called with."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit import task, workflow
from dagkit.arguments import Arguments, matches
from dagkit.model.spec import TaskSpec


@task
def fit(path: str, lr: float = 1.0, *, seed: int = 0) -> float:
    return lr


def no_payload(name: str) -> bytes:
    raise KeyError(name)


def of(**call: Any) -> dict[str, Any]:
    return Arguments(no_payload).of(TaskSpec(name="t", kwargs={"cmd": "dagkit exec", "call": call}))


def test_positions_have_the_names_of_the_parameters() -> None:
    assert of(function="shutil:move", args=["a"], kwargs={"dst": "b"}) == {"src": "a", "dst": "b"}


def test_where_the_function_cannot_be_loaded_positions_are_numbers() -> None:
    assert of(function="no_such_module:f", args=[1, 2], kwargs={"lr": 3}) == {"0": 1, "1": 2, "lr": 3}
    assert of(pickle="sha256:00", args=[1]) == {"0": 1}


def test_of_a_command_it_is_the_environment() -> None:
    assert Arguments(no_payload).of(TaskSpec(name="t", kwargs={"cmd": "true", "env": {"A": "1"}})) == {"A": "1"}


@pytest.mark.parametrize(
    ("value", "wanted", "is_match"),
    [
        (0.1, "0.1", True),
        (0.1, 0.1, True),
        (1, True, False),  # a bool is not an int
        (True, "True", True),
        ("a", "b", False),
        ({"$ref": "prep"}, "prep", True),
        ([1, 2], "[1, 2]", True),
    ],
)
def test_values(value: Any, wanted: Any, is_match: bool) -> None:
    assert matches({"x": value}, {"x": wanted}) is is_match


def test_an_argument_that_is_not_there_is_no_match() -> None:
    assert not matches({"x": 1}, {"y": 1})


def test_functions_of_a_session_are_known_by_their_payload(tmp_path: Any) -> None:
    @task
    def local(path: str, lr: float = 1.0) -> float:
        return lr

    @workflow
    def flow() -> Any:
        return [local("a", 0.1), local("b", 0.2), fit("c", 0.1)]

    run = flow().run(store=str(tmp_path / "store"), progress=False)

    assert [row.name for row in run.tasks_where({"lr": 0.1})] == ["local", "fit"]
    assert [(row["template"], row["tasks"]) for row in run.usage(where={"path": "b"})] == [("local", 1)]
