"""What a new run can take over from an old one: unchanged completed tasks, and results remembered by identity."""

from __future__ import annotations

from typing import Any

from dagkit.engine.identity import identities, is_cached
from dagkit.engine.state import WorkflowState
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState
from dagkit.stores.base import Store

__all__ = ["cached_outputs", "carried_over", "keep_cached"]

_KEPT = (TaskState.COMPLETED.value, TaskState.SKIPPED.value, TaskState.RUNNING.value)


def carried_over(old: WorkflowSpec, old_state: dict[str, Any], new: WorkflowSpec) -> dict[str, dict[str, Any]]:
    """State entries with which the new definition of a run starts.

    A task that had completed (or was skipped), or still runs somewhere, and would do the same work again keeps its
    entry. Any other task starts afresh, in a generation that none of its earlier attempts had, so that message ids
    never repeat.
    """
    entries = old_state["tasks"]
    before = {task.name: identity for task, identity in zip(old.tasks, identities(old), strict=True)}
    generation = 1 + max((entry.get("generation", 0) for entry in entries.values()), default=0)
    carried: dict[str, dict[str, Any]] = {}
    for task, identity in zip(new.tasks, identities(new), strict=True):
        entry = entries.get(task.name)
        if entry is None:
            continue
        if entry.get("state") in _KEPT and identity is not None and before[task.name] == identity:
            carried[task.name] = entry
        elif entry.get("attempt_no"):
            carried[task.name] = {"generation": generation}
    return carried


def cached_outputs(spec: WorkflowSpec, store: Store) -> dict[int, str]:
    """Task index -> output ref, for the tasks with `cache=True` whose result is remembered."""
    wanted = {
        identity: index
        for index, (task, identity) in enumerate(zip(spec.tasks, identities(spec), strict=True))
        if identity is not None and is_cached(task)
    }
    if not wanted:
        return {}
    return {wanted[identity]: ref for identity, ref in store.cached(wanted).items()}


def keep_cached(state: WorkflowState, store: Store, now: float) -> int:
    """Mark tasks whose result is remembered as completed; returns how many."""
    outputs = cached_outputs(state.spec, store) if any(map(is_cached, state.spec.tasks)) else {}
    if outputs:
        state.keep(outputs, now)
    return len(outputs)
