"""The stored definition document: exactly the keys of the facts, and read back without another check."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dagkit.errors import CorruptState, NewerFormat
from dagkit.model.spec import TaskSpec, WorkflowSpec

#: Facts: jobq, section 16.
WORKED_EXAMPLE = (
    '{"v": 1, "workflow_id": "wf1", "name": "demo", "default_queue": "cpu", "result_policy": "all_tasks_succeed", '
    '"max_parallelism": null, "created_at": "2026-05-05T00:00:00+00:00", "tasks": {"a": {"parents": [], '
    '"children": ["b"], "queue": "cpu", "num_retries": 0, "dep_policy": "all", "timeout_s": null, "condition": null, '
    '"kwargs": {"cmd": "echo a"}}, "b": {"parents": ["a"], "children": [], "queue": "cpu", "num_retries": 1, '
    '"dep_policy": "all", "timeout_s": 600, "condition": null, "kwargs": {"cmd": "echo b"}}}}'
)

FULL = {
    "name": "w",
    "default_queue": "cpu",
    "default_task_timeout_s": 60,
    "max_parallelism": 4,
    "result_policy": "all_sinks_succeed",
    "fail_fast": True,
    "concurrency": {"fit": 2},
    "tasks": [
        {"name": "a", "kwargs": {"cmd": "true"}},
        {
            "name": "b",
            "depends_on": ["a"],
            "dep_policy": 1,
            "condition": "inputs.a.x > 1",
            "queue": "gpu",
            "timeout_s": 5,
            "num_retries": 2,
            "template": "fit",
            "resources": {"memory": "40G", "extra": {"list": [1]}},
            "resource_scales": {"memory": ["50G", "60G"]},
            "fallback_queues": ["long"],
            "retry_delay_s": [1, 2.5],
            "expected_outputs": ["x.csv"],
            "priority": -1,
            "kwargs": {"cmd": "true"},
        },
    ],
    "result": [{"$ref": "b"}],
}


def stored(data: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(WorkflowSpec.from_dict(data).definition("W", "now")))
    return document


def test_the_worked_example_of_the_facts() -> None:
    spec = WorkflowSpec.from_dict(
        {
            "name": "demo",
            "default_queue": "cpu",
            "tasks": [
                {"name": "a", "kwargs": {"cmd": "echo a"}},
                {"name": "b", "depends_on": ["a"], "num_retries": 1, "timeout_s": 600, "kwargs": {"cmd": "echo b"}},
            ],
        }
    )

    assert json.dumps(spec.definition("wf1", "2026-05-05T00:00:00+00:00")) == WORKED_EXAMPLE


def test_what_is_read_back_is_what_was_stored() -> None:
    spec = WorkflowSpec.from_definition(stored(FULL))

    assert spec.definition("W", "now") == WorkflowSpec.from_dict(FULL).definition("W", "now")
    assert spec.tasks[1] == WorkflowSpec.from_dict(FULL).tasks[1]
    assert spec.timeout_of(spec.tasks[0]) == 60
    assert WorkflowSpec.from_dict(spec.to_dict()) == spec


def test_own_fields_follow_the_standard_ones_and_only_when_used() -> None:
    document = stored(FULL)

    assert list(document)[7:] == ["tasks", "fail_fast", "concurrency", "result"]
    assert list(document["tasks"]["b"])[7:] == [
        "kwargs",
        "template",
        "resources",
        "resource_scales",
        "fallback_queues",
        "retry_delay_s",
        "expected_outputs",
        "priority",
    ]
    assert list(document["tasks"]["a"])[-1] == "kwargs"


def test_a_stored_definition_of_another_writer_is_read() -> None:
    document = json.loads(WORKED_EXAMPLE)
    document["tasks"]["b"] |= {"future": 1}
    document |= {"other": True}
    del document["max_parallelism"]

    assert [task.name for task in WorkflowSpec.from_definition(document).tasks] == ["a", "b"]


def test_merge_nodes_are_read_although_nobody_may_write_them() -> None:
    document = stored({"name": "w", "tasks": [{"name": "a"}, {"name": "b", "depends_on": ["a"]}]})
    document["tasks"]["__merge_b_0"] = {**document["tasks"]["a"], "kwargs": {"__batch_merge": True}}

    spec = WorkflowSpec.from_definition(document)

    assert spec.index["__merge_b_0"] == 2
    assert TaskSpec.trusted("__merge_b_1", depends_on=("a",)).num_retries == 0


def test_a_later_format_and_damage_are_told_apart() -> None:
    document = json.loads(WORKED_EXAMPLE)

    with pytest.raises(NewerFormat, match="format version 2"):
        WorkflowSpec.from_definition(document | {"v": 2})
    for damaged in (
        {},
        document | {"v": True},
        document | {"v": None},
        document | {"tasks": {"a": {}}},
        document | {"tasks": []},
        {key: value for key, value in document.items() if key != "name"},
    ):
        with pytest.raises(CorruptState):
            WorkflowSpec.from_definition(damaged)
