"""The top level of a state document: its version and what is known of the run as a whole (facts: jobq 7.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagkit.errors import CorruptState, NewerFormat
from dagkit.model.states import RunStatus

__all__ = ["Head", "head_of"]

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Head:
    """Everything of a state document but its tasks. `error` is the first failure, in a line; `limits` what people have
    changed of how many tasks run at a time."""

    workflow_id: str
    status: RunStatus
    cancel_requested: bool
    updated_at: str | None
    error: str | None
    limits: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Head:
        """Read and check a document's head. Raises `NewerFormat` and `CorruptState`."""
        version = document.get("v")
        if isinstance(version, int) and version > VERSION:
            raise NewerFormat(
                f"the state is in format {version}, and this dagkit reads format {VERSION}. Upgrade dagkit."
            )
        if version != VERSION or isinstance(version, bool):
            raise CorruptState(f"the state has no known format (v: {version!r})")
        workflow_id, updated_at, error = (document.get(key) for key in ("workflow_id", "updated_at", "error"))
        if not isinstance(workflow_id, str) or not isinstance(document.get("tasks"), Mapping):
            raise CorruptState("the state has no workflow_id or no tasks")
        try:
            status = RunStatus(document.get("workflow_state"))
        except ValueError as problem:
            raise CorruptState(f"unknown workflow_state {document.get('workflow_state')!r}") from problem
        cancel_requested = bool(document.get("cancel_requested"))
        return cls(workflow_id, status, cancel_requested, updated_at, error, document.get("limits"))


def head_of(
    workflow_id: str,
    status: RunStatus,
    cancel_requested: bool,
    updated_at: str | None,
    error: str | None,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """The top-level keys of a state document, all but `tasks`."""
    head = {
        "v": VERSION,
        "workflow_id": workflow_id,
        "workflow_state": status.value,
        "cancel_requested": cancel_requested,
        "updated_at": updated_at,
        "error": error,
    }
    return {**head, "limits": limits} if limits else head
