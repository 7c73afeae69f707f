"""Why a task of a run has not run, and what holds up the most: what blocks what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagkit.coordinator.ownership import owner_words
from dagkit.model.states import TERMINAL, TaskState

if TYPE_CHECKING:
    from dagkit.rows import TaskRow
    from dagkit.run import Run

__all__ = ["explain_run", "explain_task"]

_BLOCKERS = 10
_NAMED = 10
_CANDIDATES = 100
_LOOKED_AT = 20_000
_WAITING = (TaskState.PENDING, TaskState.UPSTREAM_FAILED)


def explain_run(run: Run) -> dict[str, Any]:
    """Counts by state, and the tasks that others wait for, those that hold up most first."""
    row, tasks = run.row(), {task.name: task for task in run.tasks()}
    counts = {state.value: row.counts.of(state) for state in TaskState if row.counts.of(state)}
    blockers = sorted(_blockers(run, tasks), key=lambda blocker: -blocker["blocks"])
    return {
        "workflow_id": run.id,
        "name": row.name,
        "status": str(row.status),
        "driven_by": owner_words(row.driven_by) if row.driven_by else None,
        "counts": counts,
        "blockers": blockers[:_BLOCKERS],
    }


def explain_task(run: Run, name: str) -> dict[str, Any]:
    """One task: its state, why, and what it waits for."""
    tasks = {task.name: task for task in run.tasks()}
    task = tasks[name]
    waits_for = [parent for parent in task.depends_on if parent in tasks and tasks[parent].state not in TERMINAL]
    failed = [p for p in task.depends_on if p in tasks and tasks[p].state not in (*_DONE, *_UNDECIDED)]
    return {
        "workflow_id": run.id,
        "task": name,
        "status": task.state.value,
        "reason": reason(run, task, waits_for),
        "waits_for": waits_for,
        "failed_dependencies": failed,
        "dep_policy": run.spec.tasks[run.spec.index[name]].dep_policy,
        "condition": run.spec.tasks[run.spec.index[name]].condition,
    }


_DONE = (TaskState.COMPLETED, TaskState.SKIPPED)
_UNDECIDED = (TaskState.PENDING, TaskState.READY, TaskState.RUNNING)


def reason(run: Run, task: TaskRow, waits_for: Iterable[str] = ()) -> str:
    """In words, why a task is in its state."""
    if task.state is TaskState.PENDING:
        names = list(waits_for)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"waits for {', '.join(names[:_NAMED])}{more}" if names else "is about to be looked at"
    if task.state is TaskState.READY:
        return f"may run; waits for {_room(run, task)}"
    if task.state is TaskState.RUNNING:
        return f"attempt {task.attempt} of {task.max_attempts}, handed to queue {task.queue}"
    return task.error.partition("\n")[0] or task.state.words


def _room(run: Run, task: TaskRow) -> str:
    """What a ready task lacks."""
    if not run.driver.is_driven():
        return "somebody to drive the run: `dagkit coordinator`"
    limit = run.spec.max_parallelism
    if limit is not None and run.counts.running >= limit:
        return f"room: max_parallelism is {limit}"
    if task.attempt:
        return f"its next attempt, {task.attempt + 1} of {task.max_attempts}"
    return f"room in queue {task.queue}"


def _blockers(run: Run, tasks: dict[str, TaskRow]) -> list[dict[str, Any]]:
    """Tasks that are not waiting themselves and have waiting descendants."""
    spec = run.spec
    blocking = {TaskState.READY, TaskState.RUNNING, TaskState.FAILED, TaskState.CANCELLED}
    found = []
    for task in tasks.values():
        if task.state in blocking and (held := _held_up(spec.graph.children, spec, tasks, task.name)):
            found.append({"task": task.name, "status": task.state.value, "blocks": held, "reason": reason(run, task)})
        if len(found) >= _CANDIDATES:
            break
    return found


def _held_up(children: Any, spec: Any, tasks: dict[str, TaskRow], name: str) -> int:
    """How many waiting tasks descend from one; counted up to a bound."""
    start = spec.index[name]
    reached, seen = [start], {start}
    for index in reached:  # grows while it is gone through
        if len(seen) > _LOOKED_AT:
            break
        for child in children[index]:
            row = tasks.get(spec.tasks[child].name)
            if child not in seen and (row is None or row.state in _WAITING):
                seen.add(child)
                reached.append(child)
    return sum(1 for index in seen if index != start and spec.tasks[index].name in tasks)
