"""The JSON that commands print (facts: jobq, section 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dagkit.model.records import RunRow
from dagkit.model.states import FAILED_STATES, SATISFIED, TaskState
from dagkit.wording import iso

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec
    from dagkit.rows import TaskRow

__all__ = ["dependencies", "driver_words", "run_document", "status_document", "store_summary", "task_document"]


def run_document(row: RunRow) -> dict[str, Any]:
    """A run at a glance."""
    document = {
        "workflow_id": row.workflow_id,
        "name": row.name,
        "status": str(row.status),
        **row.counts.grouped(),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "driven_by": driver_words(row),
    }
    return {**document, "error": row.error} if row.error else document


def driver_words(row: RunRow) -> str | None:
    """Who drives a run, without the marks by which processes are told apart."""
    return row.driven_by.split(" #", 1)[0] if row.driven_by else None


def status_document(row: RunRow, spec: WorkflowSpec, tasks: Iterable[TaskRow]) -> dict[str, Any]:
    """A run with all its tasks."""
    rows = {task.name: task for task in tasks}
    return {**run_document(row), "tasks": [task_document(spec, task, rows) for task in rows.values()]}


def task_document(spec: WorkflowSpec, task: TaskRow, rows: Mapping[str, TaskRow]) -> dict[str, Any]:
    """One task; `rows` are those of its run, for what it depends on."""
    defined = spec.tasks[spec.index[task.name]]
    done, failed, _ = dependencies(defined, rows)
    return {
        "name": task.name,
        "status": task.state.value,
        "depends_on": list(defined.depends_on),
        "dep_policy": defined.dep_policy,
        "completed_deps": done,
        "failed_deps": failed,
        "queue": task.queue,
        "error": task.error or None,
        "started_at": iso(task.started_at),
        "completed_at": iso(task.completed_at),
        "retries_remaining": _retries_remaining(task),
        "output_ref": task.output_ref,
        "attempt_no": task.attempt,
        "task_timeout_s": spec.timeout_of(defined),
    }


def dependencies(task: TaskSpec, rows: Mapping[str, TaskRow]) -> tuple[int, int, int]:
    """How many of a task's dependencies are satisfied, how many failed, and how many there are."""
    states = [rows[name].state for name in task.depends_on if name in rows]
    return sum(s in SATISFIED for s in states), sum(s in FAILED_STATES for s in states), len(task.depends_on)


def store_summary(rows: Iterable[RunRow]) -> dict[str, Any]:
    """Runs by status and tasks by state, over all runs."""
    workflows: dict[str, int] = {}
    tasks = dict.fromkeys(("total", "completed", "running", "failed", "pending", "skipped"), 0)
    for row in rows:
        workflows[str(row.status)] = workflows.get(str(row.status), 0) + 1
        for name, number in row.counts.grouped().items():
            tasks[name] += number
    return {"workflows": workflows, **{f"{name}_tasks": number for name, number in tasks.items()}}


def _retries_remaining(task: TaskRow) -> int:
    failures = task.attempt - (task.state in (TaskState.RUNNING, TaskState.COMPLETED))
    return max(0, task.max_attempts - 1 - failures)
