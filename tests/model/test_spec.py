"""Definitions: every case of the facts, all problems of one together, each with its place."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.errors import DefinitionError, UsageError
from dagkit.model.spec import TaskSpec, WorkflowSpec
from model.cases import load_cases


def read(case: dict[str, Any]) -> WorkflowSpec:
    if "json" in case:
        return WorkflowSpec.from_json(case["json"])
    return WorkflowSpec.from_dict(case["definition"])


def problems(data: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        WorkflowSpec.from_dict(data)
    return [str(problem) for problem in caught.value.problems]


def with_task(**fields: Any) -> dict[str, Any]:
    """A definition whose second task has these fields."""
    return {"name": "w", "tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"], **fields}]}


# --- the cases of definitions.yaml


@pytest.mark.parametrize("case", [c for c in load_cases("definitions", "valid") if c.values[0]["valid"]])
def test_a_valid_definition_is_read_as_meant(case: dict[str, Any]) -> None:
    spec = read(case)

    for name, expected in case.get("effective", {}).items():
        task = spec.tasks[spec.index[name]]
        found = {"queue": spec.queue_of(task), "timeout_s": spec.timeout_of(task), "max_attempts": task.num_retries + 1}
        assert found == expected
    assert {field: getattr(spec, field) for field in case.get("workflow", {})} == case.get("workflow", {})
    if structure := case.get("structure"):
        names = [task.name for task in spec.tasks]
        children = {names[task]: [names[child] for child in below] for task, below in enumerate(spec.graph.children)}
        assert [names[task] for task in spec.graph.roots] == structure["roots"]
        assert [names[task] for task in spec.graph.sinks] == structure["sinks"]
        assert children == structure["children"]


@pytest.mark.parametrize("case", [c for c in load_cases("definitions", "valid") if c.values[0]["valid"]])
def test_a_valid_definition_survives_yaml_and_json(case: dict[str, Any]) -> None:
    spec = read(case)
    text = spec.to_yaml()

    assert WorkflowSpec.from_yaml(text) == spec
    assert WorkflowSpec.from_yaml(text).to_yaml() == text
    assert WorkflowSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("case", [c for c in load_cases("definitions", "valid") if not c.values[0]["valid"]])
def test_an_invalid_definition_is_refused_with_every_problem(case: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        read(case)

    assert [word for word in case["mentions"] if word not in str(caught.value)] == []


# --- one problem, in words

WORDS = [
    # (fields of task b, its problem)
    ({"retries": 3}, 'retries: unknown field. Did you mean "num_retries"?'),
    ({"timeout": 3}, 'timeout: unknown field. Did you mean "timeout_s"?'),
    (
        {"timeout_s": "01:30:00"},
        'timeout_s: found "01:30:00"; allowed: a whole number of seconds from 1, or null. Write 5400',
    ),
    ({"timeout_s": "soon"}, 'timeout_s: found "soon"; allowed: a whole number of seconds from 1, or null'),
    ({"timeout_s": True}, "timeout_s: found true; allowed: a whole number of seconds from 1, or null"),
    ({"num_retries": None}, "num_retries: found null; allowed: a whole number from 0"),
    ({"num_retries": 3.0}, "num_retries: found 3.0; allowed: a whole number from 0"),
    ({"num_retries": 10**40}, None),
    ({"depends_on": None}, "depends_on: found null; allowed: a list of task names"),
    ({"depends_on": "a"}, 'depends_on: found "a"; allowed: a list of task names. Write [a]'),
    ({"depends_on": ["a", 3]}, "depends_on[1]: found 3; allowed: a list of task names. Quotes make it text"),
    ({"depends_on": {"a": 1}}, "depends_on: found a mapping; allowed: a list of task names"),
    ({"depends_on": ["aa"]}, 'depends_on: "aa" is not a task.'),
    ({"dep_policy": None}, "dep_policy: found null; allowed: all, any, all_settled, or a whole number from 1"),
    ({"dep_policy": "1"}, 'dep_policy: found "1"; allowed: all, any, all_settled, or a whole number from 1'),
    ({"dep_policy": 1.0}, "dep_policy: found 1.0; allowed: all, any, all_settled, or a whole number from 1"),
    ({"dep_policy": True}, "dep_policy: found true; allowed: all, any, all_settled, or a whole number from 1"),
    (
        {"dep_policy": 2},
        "dep_policy: found 2 with 1 dependency; allowed: all, any, all_settled, or a whole number from 1 to 1",
    ),
    ({"depends_on": [], "dep_policy": 1}, "dep_policy: found 1 with 0 dependencies; allowed: all, any, all_settled"),
    ({"depends_on": [], "dep_policy": "any"}, None),
    (
        {"depends_on": [], "condition": "inputs.a.x > 1"},
        "condition: a task without depends_on has no inputs to look at",
    ),
    ({"condition": ""}, 'condition: found ""; allowed: an expression, or no such field'),
    ({"condition": "inputs.c.x < 1"}, 'condition: inputs.c.x < 1: "c" is not in depends_on [a]'),
    ({"queue": ""}, 'queue: found ""; allowed: the name of a queue, or null for the default'),
    ({"queue": 3}, "queue: found 3; allowed: the name of a queue, or null for the default. Quotes make it text"),
    ({"kwargs": None}, "kwargs: found null; allowed: a mapping with text keys and JSON values"),
    ({"kwargs": []}, "kwargs: found an empty list; allowed: a mapping with text keys and JSON values"),
    ({"kwargs": {1: 2}}, "kwargs: the key 1 is not text. Quotes make it text"),
    ({"kwargs": {"x": {"y": (1, 2)}}}, "kwargs.x.y: a tuple is not JSON. Use a list"),
    ({"kwargs": {"x": [0, float("nan")]}}, "kwargs.x[1]: nan is not a JSON number"),
    ({"kwargs": {"x": "\ud800"}}, "kwargs.x: text that is not valid Unicode"),
    ({"kwargs": {"x": {None: 1}}}, "kwargs.x: the key null is not text. Quotes make it text"),
    ({"kwargs": {"x": object()}}, "kwargs.x: an object is not JSON"),
    ({"kwargs": {"x": b"x"}}, "kwargs.x: bytes are not JSON"),
    ({"name": "__b"}, 'name: "__b" may not start with __, which is reserved'),
    ({"name": "a"}, None),
    ({"resources": {"memory": "lots"}}, "resources.memory: 'lots' is no amount of memory. Accepted: 512M, 40G"),
    ({"resources": {"memory": {"$ref": "z"}}}, 'resources: "z" is not in depends_on'),
    ({"resources": {"memory": {"$ref": "a", "path": ["mem"]}, "cores": 2}}, None),
    ({"resource_scales": {"memory": -1}}, "resource_scales.memory: found -1"),
    ({"retry_delay_s": -1}, "retry_delay_s: found -1; allowed: a number of seconds from 0, or a list of them"),
    ({"retry_delay_s": []}, "retry_delay_s: found an empty list; allowed: at least one number"),
    ({"retry_delay_s": [1, True]}, "retry_delay_s"),
    ({"priority": 1.5}, "priority: found 1.5; allowed: a whole number"),
    ({"expected_outputs": "x"}, 'expected_outputs: found "x"; allowed: a list of texts. Write [x]'),
    ({"fallback_queues": [""]}, 'fallback_queues[0]: found ""; allowed: a list of queue names'),
]


@pytest.mark.parametrize(("fields", "text"), [case for case in WORDS if case[1]])
def test_a_problem_says_field_found_and_allowed(fields: dict[str, Any], text: str) -> None:
    (problem,) = problems(with_task(**fields))

    assert problem.startswith(f"tasks[1] ({fields.get('name', 'b')})  {text}")


def test_a_task_with_a_blank_name_is_known_by_its_position() -> None:
    assert problems(with_task(name="  ")) == ['tasks[1]  name: found "  "; allowed: text that is not blank']


@pytest.mark.parametrize("fields", [fields for fields, text in WORDS if text is None and "name" not in fields])
def test_what_looks_odd_and_is_legal_is_taken(fields: dict[str, Any]) -> None:
    assert WorkflowSpec.from_dict(with_task(**fields)).tasks[1].name == "b"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": " "}, 'name: found " "; allowed: text that is not blank'),
        ({"name": True}, "name: found true; allowed: text that is not blank"),
        ({"default_queue": None}, "default_queue: found null; allowed: the name of a queue"),
        (
            {"default_task_timeout_s": 0},
            "default_task_timeout_s: found 0; allowed: a whole number of seconds from 1, or null",
        ),
        ({"fail_fast": 1}, "fail_fast: found 1; allowed: true, false"),
        (
            {"concurrency": {"train": 0}},
            "concurrency.train: found 0; allowed: a mapping from a template to a whole number from 1",
        ),
        ({"result": {"$ref": "c"}}, 'result: "c" is not a task.'),
        ({"result": {"$ref": ["a"]}}, "result: a list is not a task."),
        ({"result": [1, {"x": float("inf")}]}, "result[1].x: inf is not a JSON number"),
        ({"$schema": 3}, "$schema: found 3; allowed: text"),
        ({3: 1}, "3: unknown field."),
        ({"task": []}, 'task: unknown field. Did you mean "tasks"?'),
    ],
)
def test_a_problem_of_the_workflow_has_no_task(fields: dict[Any, Any], text: str) -> None:
    (problem,) = problems({"name": "w", "tasks": [{"name": "a"}], **fields})

    assert problem.startswith(text)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_what_is_no_mapping_is_refused(data: Any) -> None:
    (problem,) = problems(data)

    assert "allowed: a mapping with name and tasks" in problem


def test_tasks_that_are_no_mappings_are_refused_one_by_one() -> None:
    found = problems({"name": "w", "tasks": [{"name": "a"}, "b", None, 3]})

    assert [problem.partition(";")[0] for problem in found] == [
        'tasks[1]  found "b"',
        "tasks[2]  found null",
        "tasks[3]  found 3",
    ]


def test_problems_of_fields_and_of_the_graph_come_together_in_order() -> None:
    tasks = [
        {"name": "a", "timeout_s": 0, "depends_on": ["c"]},
        {"name": "b", "depends_on": ["nope", "b", "a"], "num_retries": -1},
        {"name": "c", "depends_on": ["a"], "zzz": 1},
        {"name": "c"},
    ]

    found = problems({"name": "w", "tasks": tasks, "max_parallelism": 0})

    assert [problem[:34] for problem in found] == [
        "max_parallelism: found 0; allowed:",
        "tasks[0] (a)  timeout_s: found 0; ",
        "tasks[1] (b)  num_retries: found -",
        'tasks[1] (b)  depends_on: "nope" i',
        'tasks[1] (b)  depends_on: "b" is t',
        "tasks[2] (c)  zzz: unknown field. ",
        'tasks[3] (c)  name: "c" is the nam',
    ]


def test_a_dependency_listed_twice_counts_once() -> None:
    spec = WorkflowSpec.from_dict(with_task(depends_on=["a", "a"]))

    assert spec.tasks[1].depends_on == ("a",)
    assert problems(with_task(depends_on=["a", "a"], dep_policy=2)) != []


def test_a_long_cycle_is_named_by_its_first_members() -> None:
    tasks = [{"name": f"t{n}", "depends_on": [f"t{(n - 1) % 1000}"]} for n in range(1000)]

    (problem,) = problems({"name": "w", "tasks": tasks})

    assert "these 1000 tasks depend on each other: t0 -> t999" in problem
    assert "(980 more) -> t0" in problem


def test_thousands_of_problems_are_reported_in_bounded_time() -> None:
    tasks = [{"name": f"t{n}", "depends_on": [f"x{n}"]} for n in range(20_000)]

    assert len(problems({"name": "w", "tasks": tasks})) == 20_000


def test_a_chain_of_a_hundred_thousand_tasks_is_validated() -> None:
    tasks = [TaskSpec(name=f"t{n}", depends_on=(f"t{n - 1}",) if n else ()) for n in range(100_000)]

    assert WorkflowSpec(name="chain", tasks=tasks).graph.order[-1] == 99_999


# --- as Python objects


def test_one_task_is_checked_by_itself() -> None:
    with pytest.raises(DefinitionError) as caught:
        TaskSpec(name="t", num_retries=-1, dep_policy=3)

    assert str(caught.value).startswith('task "t": 2 problems')
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, ValueError)


def test_tasks_and_mappings_may_be_mixed() -> None:
    spec = WorkflowSpec(name="w", tasks=[TaskSpec(name="a"), {"name": "b", "depends_on": ["a"]}])

    assert [task.name for task in spec.tasks] == ["a", "b"]


def test_a_spec_cannot_be_changed_and_a_copy_derives_its_graph_anew() -> None:
    spec = WorkflowSpec.from_dict(with_task())
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"  # type: ignore[misc]

    changed = spec.model_copy(update={"tasks": spec.tasks[:1]})

    assert spec.graph.children == [[1], []]
    assert changed.graph.children == [[]]
    assert changed.index == {"a": 0}


def test_a_spec_survives_pickle_and_deepcopy() -> None:
    spec = WorkflowSpec.from_dict(with_task(kwargs={"cmd": "x", "env": {"A": "1"}}))

    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec


def test_pydantics_own_door_checks_as_much() -> None:
    with pytest.raises(ValueError, match="is not a task"):
        WorkflowSpec.model_validate(with_task(depends_on=["zz"]))

    assert WorkflowSpec.model_validate(with_task()) == WorkflowSpec.from_dict(with_task())


def test_only_what_differs_from_its_default_is_written() -> None:
    data = {
        "name": "w",
        "default_queue": "cpu",
        "result_policy": "all_sinks_succeed",
        "fail_fast": True,
        "concurrency": {"fit": 2},
        "tasks": [
            {"name": "a"},
            {
                "name": "b",
                "depends_on": ["a"],
                "dep_policy": 1,
                "condition": "inputs.a.x > 1",
                "queue": "gpu",
                "timeout_s": 5,
                "num_retries": 2,
                "template": "fit",
                "resources": {"memory": "40G"},
                "resource_scales": {"memory": 0.5},
                "fallback_queues": ["long"],
                "retry_delay_s": [1, 2.5],
                "expected_outputs": ["x.csv"],
                "priority": -1,
                "kwargs": {"cmd": "true"},
            },
        ],
        "result": {"$ref": "b", "path": ["x", 0]},
    }

    spec = WorkflowSpec.from_dict(data)

    assert spec.to_dict() == data
    assert list(spec.to_dict()["tasks"][1]) == list(data["tasks"][1])
    assert WorkflowSpec.from_dict(with_task(timeout_s=None, priority=0, queue=None)).to_dict() == with_task()


def test_values_are_resolved_against_the_workflow() -> None:
    spec = WorkflowSpec.from_dict(
        with_task(queue="gpu", timeout_s=5) | {"default_queue": "cpu", "default_task_timeout_s": 9}
    )

    assert [(spec.queue_of(task), spec.timeout_of(task)) for task in spec.tasks] == [("cpu", 9), ("gpu", 5)]


# --- files


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ".YAML"])
def test_a_file_is_read_by_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"flow{suffix}"
    spec = WorkflowSpec.from_dict(with_task())
    path.write_text(spec.to_json() if suffix == ".json" else spec.to_yaml(), encoding="utf-8")

    assert WorkflowSpec.from_file(path) == spec


def test_a_file_is_written_as_its_text(tmp_path: Path) -> None:
    spec = WorkflowSpec.from_dict(with_task(kwargs={"cmd": "écho"}))

    text = spec.to_yaml(tmp_path / "flow.yaml")

    assert (tmp_path / "flow.yaml").read_bytes() == text.encode()
    assert yaml.safe_load(text) == spec.to_dict()


@pytest.mark.parametrize(
    ("name", "content", "mentions"),
    [
        ("flow.toml", b"", "allowed: .yaml, .yml, .json"),
        ("flow", b"", "suffix"),
        ("flow.yaml", None, "No such file"),
        ("flow.yaml", b"", "is empty"),
        ("flow.yaml", b"# only a comment\n", "is empty"),
        ("flow.yaml", b"name: \xff\n", "UTF-8"),
        ("flow.json", b"{,}", "not JSON"),
        ("flow.json", b"", "not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_definition_error_with_its_name(
    tmp_path: Path, name: str, content: bytes | None, mentions: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DefinitionError, match=mentions) as caught:
        WorkflowSpec.from_file(path)

    assert str(caught.value).startswith(f"{path}: 1 problem")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").mkdir()

    with pytest.raises(DefinitionError, match="cannot be read"):
        WorkflowSpec.from_file(tmp_path / "flow.yaml")


def test_values_nested_too_deep_are_refused_with_a_short_place() -> None:
    value: Any = 1
    for _ in range(101):
        value = [value]

    (problem,) = problems(with_task(kwargs={"x": value}))

    assert "is nested more than 100 deep" in problem
    assert len(problem) < 120


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]

    assert "deep" in problems(with_task(kwargs={"x": loop}))[0]
