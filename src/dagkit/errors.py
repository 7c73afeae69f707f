"""Every exception dagkit raises on purpose.

DagkitError
  UsageError                   the caller's arguments, code or file; nothing has run
    DefinitionError            a workflow definition with one or more problems, all of them listed
    ConditionError             a condition that does not parse or may not be used like that
    ConfigError                a setting or a configuration file
    TracingError               a node used as if it were a value
    WrongCall                  a call, or an option, that a task or a decorator does not take
    NotPicklable               a captured value that cannot travel
    PayloadTooLarge            an argument that a message cannot carry
    PayloadMismatch            a payload written by another Python or cloudpickle
    MissingPart                a part of a task's output that is not there
    MissingExtra               an optional dependency is not installed
    UnknownRun, UnknownTask    no such run in the store, no such task in the run
    WorkflowExists             the id is taken
    RunBusy                    the run is in a state that does not allow this
  TaskFailed                   a task of the user's ended without success
  RunCancelled                 the run was cancelled before the value asked for existed
  RunTimeout                   a wait reached its limit; the run goes on
  BackendError                 a service or a file system; trying again may help
    AccessDenied               a service lets us not do this
    StateConflict              somebody else wrote the state first
    LeaseLost                  another coordinator has taken over
  CorruptState                 stored data that cannot be trusted or read
    NewerFormat                written by a later version of dagkit
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "AccessDenied",
    "BackendError",
    "ConditionError",
    "ConfigError",
    "CorruptState",
    "DagkitError",
    "DefinitionError",
    "LeaseLost",
    "MissingExtra",
    "MissingPart",
    "NewerFormat",
    "NotPicklable",
    "PayloadMismatch",
    "PayloadTooLarge",
    "Problem",
    "RunBusy",
    "RunCancelled",
    "RunTimeout",
    "StateConflict",
    "TaskFailed",
    "TracingError",
    "UnknownRun",
    "UnknownTask",
    "UsageError",
    "WorkflowExists",
    "WrongCall",
]


class DagkitError(Exception):
    """Base of every exception that dagkit raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a cell: the user's lines and the message. `%dagkit traceback` has every frame."""
        lines: list[str] = importlib.import_module("dagkit.notebook.traceback").render(self)
        return lines


def shown_short(error: BaseException) -> None:
    """Let an error that is not ours be shown in a cell as ours are: the frames of dagkit help nobody there."""
    error._render_traceback_ = functools.partial(DagkitError._render_traceback_, error)  # type: ignore[attr-defined,arg-type]


# --- the caller's mistake -----------------------------------------------------------------------------------------


class UsageError(DagkitError):
    """The call, the code or the file is wrong; nothing has run."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a definition, and where.

    Attributes:
        message: What was found and what is allowed, starting with the field's name.
        field: The field concerned (`depends_on`), or "" for the document as a whole.
        task: Name of the task concerned, if it has one.
        index: Position of the task in `tasks`, from 0.
        line: Line in the file, from 1, where the format gives one.
    """

    message: str
    field: str = ""
    task: str | None = None
    index: int | None = None
    line: int | None = None

    def where(self) -> str:
        """Text such as `line 14  tasks[3] (compare)`; empty for the document as a whole."""
        parts = [f"line {self.line}"] if self.line is not None else []
        if self.index is not None:
            parts.append(f"tasks[{self.index}]" + (f" ({self.task})" if self.task else ""))
        elif self.task:
            parts.append(self.task)
        return "  ".join(parts)

    def __str__(self) -> str:
        where = self.where()
        return f"{where}  {self.message}" if where else self.message


class DefinitionError(UsageError, ValueError):
    """A workflow definition has problems; all of them are in `problems`."""

    def __init__(self, problems: Sequence[Problem], source: str | None = None) -> None:
        self.problems, self.source = tuple(problems), source
        count = f"{len(self.problems)} problem" + ("" if len(self.problems) == 1 else "s")
        head = f"{source}: {count}" if source else f"workflow definition: {count}"
        super().__init__("\n  ".join([head, *map(str, self.problems)]))


class ConditionError(UsageError, ValueError):
    """A condition that does not parse, or refers to what it may not."""

    def __init__(self, expression: str, message: str, position: int | None = None) -> None:
        self.expression, self.detail, self.position = expression, message, position
        shown = expression if len(expression) <= 120 else expression[:117] + "..."
        super().__init__(f"{shown}: {message}")


class ConfigError(UsageError, ValueError):
    """A setting, an environment variable or a configuration file is wrong."""


class TracingError(UsageError, TypeError):
    """A node was used as if it were the value it stands for."""


class WrongCall(UsageError, TypeError):
    """A task or a decorator was called with something that it does not take."""


class NotPicklable(UsageError, TypeError):
    """Something a task needs cannot travel to a worker."""

    def __init__(self, task: str, what: str, reason: str, hint: str = "") -> None:
        self.task, self.what, self.reason = task, what, reason
        super().__init__(f"{task}: {what} cannot travel to a worker ({reason}). {hint}".rstrip())


class PayloadTooLarge(UsageError, ValueError):
    """An argument cannot travel inside a message."""

    def __init__(self, task: str, argument: str, size: int, limit: int) -> None:
        self.task, self.argument, self.size, self.limit = task, argument, size, limit
        super().__init__(
            f"{task}: argument {argument!r} is {size:,} bytes, over the {limit:,} a message can carry. "
            f"Pass a path or a dagkit.File, or choose a store that can hold it (store=...)."
        )


class PayloadMismatch(UsageError):
    """A payload was written by another Python or cloudpickle than the one that should run it."""

    def __init__(self, found: str, here: str) -> None:
        self.found, self.here = found, here
        super().__init__(
            f"this payload was made with {found}, and this worker runs {here}. Start the worker with the same "
            f"Python minor version and cloudpickle major version, or put the function in an installed module."
        )


class MissingExtra(UsageError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra, self.purpose = package, extra, purpose
        super().__init__(f"{purpose} needs {package}, which is not installed. Run: pip install 'dagkit[{extra}]'")


class MissingPart(UsageError, LookupError):
    """A task asked for a part of another task's output that is not there."""

    def __init__(self, task: str, path: Sequence[str | int], reason: str) -> None:
        self.task, self.path, self.reason = task, tuple(path), reason
        part = task + "".join(f"[{step!r}]" for step in self.path)
        super().__init__(f"{part} does not exist: {reason}")


class UnknownRun(UsageError, LookupError):
    """The store has no run of this id."""

    def __init__(self, workflow_id: str, store: str = "", similar: Iterable[str] = ()) -> None:
        self.workflow_id, self.store, self.similar = workflow_id, store, tuple(similar)
        where = f" in {store}" if store else ""
        hint = f" Did you mean {' or '.join(self.similar)}?" if self.similar else " `dagkit list` shows what is there."
        super().__init__(f"no run {workflow_id!r}{where}.{hint}")


class UnknownTask(UsageError, LookupError):
    """The run has no task of this name."""

    def __init__(self, task: str, workflow_id: str, similar: Iterable[str] = ()) -> None:
        self.task, self.workflow_id, self.similar = task, workflow_id, tuple(similar)
        hint = f" Did you mean {' or '.join(map(repr, self.similar))}?" if self.similar else ""
        super().__init__(f"run {workflow_id} has no task {task!r}.{hint}")


class WorkflowExists(UsageError):
    """The id is taken by another run."""

    def __init__(self, workflow_id: str, detail: str = "") -> None:
        self.workflow_id = workflow_id
        super().__init__(
            f"a run with the id {workflow_id!r} exists already{': ' + detail if detail else ''}. "
            f"Choose another id, look at it with dagkit.attach({workflow_id!r}), or go on with run(..., resume=True)."
        )


class RunBusy(UsageError):
    """The run is in a state that does not allow what was asked."""


# --- the user's task ----------------------------------------------------------------------------------------------


class TaskFailed(DagkitError):
    """A task ended without success.

    Attributes:
        workflow_id, task: Which one.
        error: One line, the task's own words where it has any.
        traceback: The traceback in the worker, or "".
        log_tail: The last lines that the task wrote, or "".
        attempts: How many attempts were made; `max_attempts` how many were allowed.
        kind: The failure kind (`user`, `timeout`, `memory`, ...).
        others: How many other tasks of the run failed too.
    """

    def __init__(
        self,
        task: str,
        error: str,
        *,
        workflow_id: str = "",
        kind: str = "user",
        traceback: str = "",
        log_tail: str = "",
        attempts: int = 1,
        max_attempts: int = 1,
        others: int = 0,
    ) -> None:
        self.task, self.error, self.workflow_id, self.kind = task, error, workflow_id, kind
        self.traceback, self.log_tail = traceback, log_tail
        self.attempts, self.max_attempts, self.others = attempts, max_attempts, others
        lines = [f"{task} failed (attempt {attempts} of {max_attempts}, {kind}): {error}"]
        if traceback:
            lines += ["", "In the worker:", traceback.rstrip()]
        if log_tail:
            lines += ["", "Last lines of its log:", log_tail.rstrip()]
        if others:
            lines += ["", f"{others} more task{'s' * (others > 1)} failed: run.errors()"]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_task_failed, (self.task, self.error, dict(self.__dict__))


def _rebuild_task_failed(task: str, error: str, fields: dict[str, object]) -> TaskFailed:
    keywords = {key: value for key, value in fields.items() if key not in ("task", "error")}
    return TaskFailed(task, error, **keywords)  # type: ignore[arg-type]


class RunCancelled(DagkitError):
    """The run was cancelled before the value asked for existed."""


class RunTimeout(DagkitError, TimeoutError):
    """A wait reached its limit; what was submitted goes on."""


# --- services and stored data -------------------------------------------------------------------------------------


class BackendError(DagkitError):
    """A service or a file system did not do what was asked; trying again may help."""


class AccessDenied(BackendError):
    """A service knows who asks, and lets them not do this."""


class StateConflict(BackendError):
    """Somebody else wrote the state of this run since it was read."""

    def __init__(self, workflow_id: str) -> None:
        self.workflow_id = workflow_id
        super().__init__(f"the state of run {workflow_id} was changed by another writer since it was read")


class LeaseLost(BackendError):
    """Another coordinator has taken over."""


class CorruptState(DagkitError):
    """Stored data cannot be read or contradicts itself; nothing was changed."""


class NewerFormat(CorruptState):
    """The data were written by a later version of dagkit."""
