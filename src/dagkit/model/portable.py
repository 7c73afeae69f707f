"""What keeps a definition from being read elsewhere, and what in it may surprise (facts: jobq, section 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagkit.errors import Problem
from dagkit.model.condition import Condition
from dagkit.model.definition import OWN_TASK_FIELDS, OWN_WORKFLOW_FIELDS
from dagkit.model.problems import Finding, shown, suggestion

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["concurrency_hints", "problems", "schema_findings"]


def problems(spec: WorkflowSpec) -> list[Problem]:
    """Everything that ai4s-jobq would refuse, or understand otherwise."""
    found = [
        Problem(f"{field}: is dagkit's own field", field)
        for field, default in OWN_WORKFLOW_FIELDS.items()
        if getattr(spec, field) != default
    ]
    if "result_policy" not in spec.model_fields_set:
        found.append(
            Problem("result_policy: must be said outright, because readers differ in the default", "result_policy")
        )
    for position, task in enumerate(spec.tasks):
        found += [Problem(text, field, task.name, position) for field, text in _task_problems(task)]
    return found


def _task_problems(task: TaskSpec) -> list[tuple[str, str]]:
    found = [
        (field, f"{field}: is dagkit's own field")
        for field, default in OWN_TASK_FIELDS.items()
        if getattr(task, field) != default
    ]
    if not isinstance(task.kwargs.get("cmd"), str):
        found.append(("kwargs", "kwargs: has no cmd, which a shell worker needs"))
    if "call" in task.kwargs:
        found.append(("kwargs", "kwargs: a Python call needs workers that have dagkit"))
    if not {"*", "?", "["}.isdisjoint(task.name):
        found.append(("name", f"name: {shown(task.name)} contains one of * ? ["))
    if task.condition and Condition.parse(task.condition, None).has_negative_number:
        found.append(("condition", "condition: a negative number is not understood elsewhere"))
    return found


def schema_findings(data: Mapping[Any, Any]) -> list[Finding]:
    """`$schema` is dropped when a definition is read; this remembers that it was there."""
    return [Finding(("$schema",), "$schema: is refused elsewhere; use a comment")] if "$schema" in data else []


def concurrency_hints(spec: WorkflowSpec) -> list[Problem]:
    """Limits of templates that no task has: legal, and most likely a typo."""
    if not spec.concurrency:
        return []
    templates = {task.template or task.name for task in spec.tasks}
    return [
        Problem(f"concurrency: no task has the template {shown(name)}.{suggestion(name, templates)}", "concurrency")
        for name in spec.concurrency
        if name not in templates
    ]
