"""What makes two tasks the same work: a digest over a task's own work and everything upstream (DESIGN section 9)."""

from __future__ import annotations

import hashlib
import json

from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["identities", "is_cached"]


def identities(spec: WorkflowSpec) -> list[str | None]:
    """The identity of every task, in definition order; None where something in it has no fingerprint.

    A task that depends on one without an identity has none either: nothing is reused on half a reason.
    """
    found: list[str | None] = [None] * len(spec.tasks)
    graph = spec.graph
    for index in graph.order:
        own = _own_work(spec.tasks[index])
        above = [found[parent] for parent in graph.parents[index]]
        if own is not None and None not in above:
            found[index] = _digest([own, *(part for part in above if part is not None)])
    return found


def is_cached(task: TaskSpec) -> bool:
    """Whether the task asks for its result to be reused in later runs."""
    call = task.kwargs.get("call")
    return isinstance(call, dict) and bool(call.get("cache"))


def _own_work(task: TaskSpec) -> str | None:
    call = task.kwargs.get("call")
    if isinstance(call, dict):
        work = call.get("fingerprint")
        if not isinstance(work, str):
            return None
    else:
        work = json.dumps({key: task.kwargs.get(key) for key in ("cmd", "env", "cwd")}, sort_keys=True)
    return _digest([work, task.condition or "", str(task.dep_policy)])


def _digest(parts: list[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
