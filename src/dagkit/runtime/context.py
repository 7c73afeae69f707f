"""What the code of a task may ask about itself: its parents' outputs, its own output, whether it is cancelled.

Reads environment variables and files only (facts: jobq, sections 9 and 11), so that it works in a Python task, in a
script that a shell task starts, and where an event loop runs. Everything is synchronous and cheap.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.runtime.environment import ATTEMPT, OUTPUT_FILE, STORE, TASK, UPSTREAM_REFS, WORKFLOW_ID

if TYPE_CHECKING:
    from dagkit.runtime.storage import Storage

__all__ = [
    "TaskContext",
    "get_real_upstream_tasks",
    "get_upstream_output",
    "get_upstream_outputs",
    "is_cancelled",
    "set_output",
    "workflow_context",
]

_LOOK_AGAIN_S: Final = 1.0


@dataclass(frozen=True)
class TaskContext:
    """Which attempt of which task of which run this is."""

    workflow_id: str
    task: str
    attempt: int | None


def workflow_context() -> TaskContext:
    """The attempt that runs here. `ValueError` outside a task, naming the variable that is not set."""
    attempt = os.environ.get(ATTEMPT, "")
    return TaskContext(_needed(WORKFLOW_ID), _needed(TASK), int(attempt) if attempt.isdigit() else None)


def set_output(value: Any) -> None:
    """Make `value` (JSON) this task's output; the last call wins, and a Python task's return value wins over it.

    `RuntimeError` outside a task.
    """
    path = os.environ.get(OUTPUT_FILE)
    if not path:
        raise RuntimeError(f"set_output works inside a task only: {OUTPUT_FILE} is not set")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    Path(beside).replace(path)


def get_upstream_output(name: str) -> Any:
    """The output of a parent; None if it has none. `KeyError` for what is no parent, `ValueError` outside a task."""
    refs = _upstream_refs()
    if name not in refs:
        raise KeyError(f"{name!r} is no parent of task {_needed(TASK)!r}; its parents: {', '.join(refs) or 'none'}")
    return _storage().output(refs[name])


def get_upstream_outputs() -> dict[str, Any]:
    """The output of every direct parent by name; None for one without output."""
    storage, refs = _storage(), _upstream_refs()
    storage.expect(refs.values())
    return {name: storage.output(ref) for name, ref in refs.items()}


def get_real_upstream_tasks() -> list[str]:
    """Names of the direct parents as the workflow was written, sorted."""
    return sorted(_upstream_refs())


def is_cancelled() -> bool:
    """Whether somebody asked for this run to be cancelled. Looks at the store at most once a second."""
    workflow_id = _needed(WORKFLOW_ID)
    known, at = _cancelled.get(workflow_id, (False, -_LOOK_AGAIN_S))
    now = time.monotonic()
    if known or now - at < _LOOK_AGAIN_S:
        return known
    answer = _storage().is_cancelled(workflow_id)
    _cancelled.clear()
    _cancelled[workflow_id] = (answer, now)
    return answer


_cancelled: dict[str, tuple[bool, float]] = {}
_opened: dict[str, Storage] = {}
_served: Callable[[], Storage | None] = lambda: None  # noqa: E731


def serve_from(storage: Storage, is_inside: Callable[[], bool]) -> None:
    """For the worker process: read through its own storage while a task runs in it."""
    global _served

    def served() -> Storage | None:
        return storage if is_inside() else None

    _served = served


def is_in_task() -> bool:
    """Whether a Python task runs in this process now."""
    return _served() is not None


def _storage() -> Storage:
    served = _served()
    if served is not None:
        return served
    from dagkit.runtime.storage import Storage

    url = os.environ.get(STORE) or "memory:"
    return _opened.setdefault(url, Storage(url, _nobody_to_ask))


def _nobody_to_ask(what: str, about: Any) -> Any:
    if what == "cancelled":
        return False
    raise RuntimeError(
        f"{about} is in a store that lives in the memory of another process (memory:). "
        f"Use a store with a place on disk, such as the default one, to read large outputs from a script."
    )


def _upstream_refs() -> dict[str, str | None]:
    _needed(WORKFLOW_ID)
    path = _needed(UPSTREAM_REFS)
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


def _needed(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise ValueError(f"this works inside a task only: {variable} is not set")
    return value
