"""Runs that older versions of ai4s-jobq stored as one blob, `W.json`: definition and state in one (facts: jobq 7.3)."""

from __future__ import annotations

from typing import Any, Final

from dagkit.stores import documents

__all__ = ["RUN", "name_of", "split"]

RUN: Final = "single"
"""Stands where other runs have a number: a save of such a run writes two new blobs."""

_HEAD: Final = ("v", "workflow_id", "workflow_state", "cancel_requested", "updated_at", "error")
_ENTRY: Final = frozenset(
    ("state", "completed_parents", "failed_parents", "output_ref", "error", "started_at", "completed_at", "attempt_no")
)


def name_of(workflow_id: str) -> str:
    return f"{workflow_id}.json"


def split(data: bytes, workflow_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definition and the state in such a blob."""
    whole = documents.unpack(data, f"run {workflow_id}")
    tasks = whole.get("tasks", {}).items()
    definition = {key: value for key, value in whole.items() if key not in _HEAD or key in ("v", "workflow_id")}
    definition["tasks"] = {
        name: {key: value for key, value in task.items() if key not in _ENTRY} for name, task in tasks
    }
    state = {key: whole.get(key) for key in _HEAD}
    state["tasks"] = {name: {key: value for key, value in task.items() if key in _ENTRY} for name, task in tasks}
    return definition, state
