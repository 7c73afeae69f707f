"""dagkit: trace Python functions into a DAG and run it durably, here or on a supercomputer.

Names are imported when first used, so that `import dagkit` stays cheap.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagkit import errors
    from dagkit.errors import DagkitError, TaskFailed
    from dagkit.launch import attach, runs, submit_many
    from dagkit.model.spec import TaskSpec, WorkflowSpec
    from dagkit.run import Run
    from dagkit.runtime.context import (
        get_real_upstream_tasks,
        get_upstream_output,
        get_upstream_outputs,
        is_cancelled,
        set_output,
        workflow_context,
    )
    from dagkit.runtime.files import File
    from dagkit.runtime.notice import checkpoint_dir, on_preempt
    from dagkit.task import shell, task
    from dagkit.trace import all_of, almost_all, any_of, count_of
    from dagkit.workflow import Flow, workflow

__version__ = "0.1.0"

__all__ = [
    "DagkitError",
    "File",
    "Flow",
    "Run",
    "TaskFailed",
    "TaskSpec",
    "WorkflowSpec",
    "all_of",
    "almost_all",
    "any_of",
    "attach",
    "checkpoint_dir",
    "count_of",
    "errors",
    "get_real_upstream_tasks",
    "get_upstream_output",
    "get_upstream_outputs",
    "is_cancelled",
    "on_preempt",
    "runs",
    "set_output",
    "shell",
    "submit_many",
    "task",
    "workflow",
    "workflow_context",
]

_HOMES = {
    "dagkit.errors": ("DagkitError", "TaskFailed"),
    "dagkit.model.spec": ("TaskSpec", "WorkflowSpec"),
    "dagkit.launch": ("attach", "runs", "submit_many"),
    "dagkit.run": ("Run",),
    "dagkit.runtime.context": (
        "get_real_upstream_tasks",
        "get_upstream_output",
        "get_upstream_outputs",
        "is_cancelled",
        "set_output",
        "workflow_context",
    ),
    "dagkit.runtime.files": ("File",),
    "dagkit.runtime.notice": ("checkpoint_dir", "on_preempt"),
    "dagkit.task": ("shell", "task"),
    "dagkit.trace": ("all_of", "almost_all", "any_of", "count_of"),
    "dagkit.workflow": ("Flow", "workflow"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "errors":
        return importlib.import_module("dagkit.errors")
    if name in ("load_ipython_extension", "unload_ipython_extension"):  # `%load_ext dagkit`
        return getattr(importlib.import_module("dagkit.notebook.magic"), name)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dagkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _Package(ModuleType):
    """Keeps `dagkit.task` and `dagkit.workflow` the decorators: importing the modules would replace them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOME_OF and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
