"""What keeps a definition from being read elsewhere (facts: jobq 1.3), and what in it may surprise."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit.model.spec import WorkflowSpec

PORTABLE: dict[str, Any] = {
    "name": "w",
    "result_policy": "all_tasks_succeed",
    "tasks": [
        {"name": "a", "kwargs": {"cmd": "true"}},
        {"name": "b", "depends_on": ["a"], "condition": "inputs.a.x > 1", "kwargs": {"cmd": "true"}},
    ],
}


def found(**changes: Any) -> list[str]:
    data = {**PORTABLE, **changes}
    return [str(problem) for problem in WorkflowSpec.from_dict(data).portable_problems()]


def with_b(**fields: Any) -> list[str]:
    return found(tasks=[PORTABLE["tasks"][0], {**PORTABLE["tasks"][1], **fields}])


def test_a_definition_of_standard_fields_is_portable() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"fail_fast": True}, "fail_fast"),
        ({"concurrency": {"a": 1}}, "concurrency"),
        ({"result": {"$ref": "a"}}, "result"),
        ({"result_policy": None}, "result_policy"),
        ({"$schema": "x"}, "$schema"),
    ],
)
def test_what_others_refuse_in_a_workflow_is_named(changes: dict[str, Any], field: str) -> None:
    (problem,) = found(**changes)

    assert problem.startswith(f"{field}:")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"template": "b"}, "template"),
        ({"resources": {"cores": 1}}, "resources"),
        ({"resource_scales": {"cores": 1}}, "resource_scales"),
        ({"fallback_queues": ["x"]}, "fallback_queues"),
        ({"retry_delay_s": 1}, "retry_delay_s"),
        ({"expected_outputs": ["x"]}, "expected_outputs"),
        ({"priority": 1}, "priority"),
        ({"kwargs": {}}, "kwargs"),
        ({"kwargs": {"cmd": 3}}, "kwargs"),
        ({"kwargs": {"cmd": "dagkit exec", "call": {}}}, "kwargs"),
        ({"name": "b*"}, "name"),
        ({"condition": "inputs.a.x > -1"}, "condition"),
    ],
)
def test_what_others_refuse_in_a_task_is_named(fields: dict[str, Any], field: str) -> None:
    (problem,) = with_b(**fields)

    assert problem.startswith(f"tasks[1] ({fields.get('name', 'b')})  {field}: ")


def test_a_schema_for_editors_is_no_surprise_otherwise() -> None:
    assert WorkflowSpec.from_dict({**PORTABLE, "$schema": "x"}).hints == []


def test_a_portable_text_says_the_policy_outright() -> None:
    spec = WorkflowSpec.from_dict({**PORTABLE, "result_policy": None})

    assert "result_policy" not in spec.to_yaml()
    assert WorkflowSpec.from_yaml(spec.to_yaml(portable=True)).portable_problems() == []


def test_a_limit_of_a_template_that_no_task_has_is_hinted_at() -> None:
    tasks = [{"name": "fit-1", "template": "fit"}, {"name": "prep"}]

    spec = WorkflowSpec.from_dict({"name": "w", "tasks": tasks, "concurrency": {"fit": 1, "prep": 1, "pre": 1}})

    assert [str(hint) for hint in spec.hints] == ['concurrency: no task has the template "pre". Did you mean "prep"?']
