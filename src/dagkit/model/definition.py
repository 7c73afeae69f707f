"""The definition document that is stored for a run (facts: jobq, section 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import CorruptState, NewerFormat

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["OWN_TASK_FIELDS", "OWN_WORKFLOW_FIELDS", "build", "parse"]

VERSION: Final = 1

#: dagkit's own fields and their defaults, in the order in which they are written; written only when used.
OWN_TASK_FIELDS: Final[dict[str, Any]] = {
    "template": None,
    "resources": None,
    "resource_scales": None,
    "fallback_queues": (),
    "retry_delay_s": None,
    "expected_outputs": (),
    "priority": 0,
}
OWN_WORKFLOW_FIELDS: Final[dict[str, Any]] = {"fail_fast": False, "concurrency": {}, "result": None}


def build(spec: WorkflowSpec, workflow_id: str, created_at_iso: str) -> dict[str, Any]:
    """The document: resolved queues and timeouts, children derived, own fields after the standard ones."""
    names = [task.name for task in spec.tasks]
    children = spec.graph.children
    return {
        "v": VERSION,
        "workflow_id": workflow_id,
        "name": spec.name,
        "default_queue": spec.default_queue,
        "result_policy": spec.result_policy,
        "max_parallelism": spec.max_parallelism,
        "created_at": created_at_iso,
        "tasks": {
            task.name: _task(task, spec, [names[child] for child in children[position]])
            for position, task in enumerate(spec.tasks)
        },
        **_used(spec, OWN_WORKFLOW_FIELDS),
    }


def _task(task: TaskSpec, spec: WorkflowSpec, children: list[str]) -> dict[str, Any]:
    return {
        "parents": list(task.depends_on),
        "children": children,
        "queue": spec.queue_of(task),
        "num_retries": task.num_retries,
        "dep_policy": task.dep_policy,
        "timeout_s": spec.timeout_of(task),
        "condition": task.condition,
        "kwargs": task.kwargs,
        **_used(task, OWN_TASK_FIELDS),
    }


def _used(model: TaskSpec | WorkflowSpec, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = model.__dict__
    return {
        field: list(values[field]) if isinstance(values[field], tuple) else values[field]
        for field, default in defaults.items()
        if values[field] != default
    }


def parse(stored: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(workflow fields, task fields) of a document; `CorruptState` if it is none, `NewerFormat` if it is later."""
    if (version := stored.get("v")) != VERSION or isinstance(version, bool):
        newer = isinstance(version, int) and version > VERSION
        raise (NewerFormat if newer else CorruptState)(
            f"definition of run {stored.get('workflow_id')!r}: format version {version!r}; this dagkit reads {VERSION}"
        )
    try:
        fields = {
            "name": stored["name"],
            "default_queue": stored["default_queue"],
            "result_policy": stored.get("result_policy") or "all_tasks_succeed",
            "max_parallelism": stored.get("max_parallelism"),
            **{field: stored[field] for field in OWN_WORKFLOW_FIELDS if field in stored},
        }
        return fields, [_task_fields(name, task, fields) for name, task in stored["tasks"].items()]
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptState(f"definition of run {stored.get('workflow_id')!r} cannot be read: {error!r}") from error


def _task_fields(name: str, task: Mapping[str, Any], workflow: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        "name": name,
        "depends_on": tuple(task["parents"]),
        "queue": None if task["queue"] == workflow["default_queue"] else task["queue"],
        "num_retries": task["num_retries"],
        "dep_policy": task["dep_policy"],
        "timeout_s": task["timeout_s"],
        "condition": task["condition"],
        "kwargs": task["kwargs"],
    }
    for field, default in OWN_TASK_FIELDS.items():
        if field in task:
            value = task[field]
            fields[field] = (
                tuple(value) if isinstance(value, list) and default in ((), None) and field != "resources" else value
            )
    return fields
