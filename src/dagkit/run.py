"""The handle on a run: wait for it, read it, change its course; from the process that started it or from any other."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dagkit import tables
from dagkit.config import Settings
from dagkit.driver import Driver
from dagkit.engine.state import RetryCounts
from dagkit.errors import (
    RunCancelled,
    TaskFailed,
    UnknownTask,
    UsageError,
    shown_short,
)
from dagkit.gc_pause import no_gc
from dagkit.model.names import fold_id
from dagkit.model.records import Counts, RunRow
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FAILED_STATES, TERMINAL, RunStatus, TaskState
from dagkit.prediction import suggestions
from dagkit.progress import Progress, format_counts, progress_for
from dagkit.rows import TaskRow, task_row
from dagkit.runtime import values
from dagkit.stores.base import Store

if TYPE_CHECKING:
    from dagkit.trace import Node

__all__ = ["Run"]

T = TypeVar("T")

_LOG_TAIL_BYTES = 2000
_CHANGE_TRIES = 20
_LOOK_AT_DRIVER_S = 1.0


class Run:
    """One submitted execution of a workflow. Everything it says is read from the store.

    Get one from `flow.run()`, `flow.submit()` or `dagkit.attach(id)`. Thread-safe.
    """

    def __init__(
        self, store: Store, workflow_id: str, settings: Settings, *, flow: Any = None, spec: WorkflowSpec | None = None
    ) -> None:
        self.store, self.id, self._flow, self._spec = store, workflow_id, flow, spec
        self.driver = Driver(store, workflow_id, settings)

    # --- what it is

    @property
    def spec(self) -> WorkflowSpec:
        """The definition that this run executes."""
        if self._spec is None:
            self._spec = WorkflowSpec.from_definition(self.store.load_definition(self.id))
        return self._spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def status(self) -> RunStatus:
        return RunStatus(self.row().status)

    @property
    def counts(self) -> Counts:
        return self.row().counts

    def row(self) -> RunRow:
        """The run at a glance; cheap, whatever its size."""
        return self.store.row(self.id)

    def tasks(self, state: str | TaskState | None = None, prefix: str = "", queue: str | None = None) -> list[TaskRow]:
        """Every task in definition order, or those in a state, with a name prefix, on a queue."""
        entries = self.store.task_entries(self.id)
        wanted = TaskState(state) if state is not None else None
        rows = (task_row(self.spec, index, entries.get(task.name, {})) for index, task in enumerate(self.spec.tasks))
        return [
            row
            for row in rows
            if (wanted is None or row.state is wanted)
            and row.name.startswith(prefix)
            and (queue is None or row.queue == queue)
            and not row.name.startswith("__merge_")
        ]

    def task(self, task: str | Node[Any]) -> TaskRow:
        """One task as it stands; `UnknownTask` if the run has none of this name."""
        name = self._name_of(task)
        entry = self.store.task_entries(self.id, [name]).get(name, {})
        return task_row(self.spec, self.spec.index[name], entry)

    def table(self) -> Any:
        """One row a task: a `pandas.DataFrame` if pandas is installed, else a list of dicts that shows as a table."""
        rows = self.tasks()
        asks = any(row.resources for row in rows)
        table = tables.Table(
            {
                "task": row.name,
                "state": row.state.words,
                "try": f"{row.attempt}/{row.max_attempts}",
                "time_s": row.duration_s,
                "queue": row.queue,
                **({"asks_for": row.asks_for} if asks else {}),
                "message": _first_line(row.error),
            }
            for row in rows
        )
        return table.to_frame() if tables.has_pandas() else table

    def usage(self, where: Mapping[str, Any] | None = None) -> tables.Table:
        """Per template: tasks, attempts, and minimum, median, mean, maximum of wall time (s) and peak memory (MiB).

        `where={"lr": 0.1}` counts only tasks that were called with it.
        """
        return tables.usage_table(self.tasks_where(where or {}))

    def tasks_where(self, where: Mapping[str, Any]) -> list[TaskRow]:
        """The tasks that were called with these arguments: an equal value, its text, or the name of the task behind it.

        Of commands, variables of their `env`.
        """
        rows = self.tasks()
        if not where:
            return rows
        from dagkit.arguments import Arguments, matches

        arguments = Arguments(self._get)
        return [row for row in rows if matches(arguments.of(self.spec.tasks[self.spec.index[row.name]]), where)]

    def errors(self, limit: int | None = None) -> list[TaskFailed]:
        """The failures of tasks, newest first, each with its remote traceback and the tail of its log."""
        failed = [row for row in self.tasks() if row.state is TaskState.FAILED]
        failed.sort(key=lambda row: row.completed_at or 0.0, reverse=True)
        return tables.Failures(self._failure(row) for row in failed[:limit])

    def error_groups(self) -> tables.Table:
        """The failures of tasks by what they have in common, the most frequent first, each with one task as example."""
        return tables.error_groups(row for row in self.tasks() if row.state is TaskState.FAILED)

    def summary(self) -> dict[str, Any]:
        """Final status, elapsed seconds, counts by state and the names of failed tasks.

        `previously_completed` counts those of the completed tasks that a resumed run took over.
        """
        row, tasks = self.row(), self.tasks()
        begun = datetime.fromisoformat(self.store.load_definition(self.id)["created_at"]).timestamp()
        done = [task.completed_at for task in tasks if task.state is TaskState.COMPLETED and task.completed_at]
        return {
            "workflow_id": self.id,
            "name": row.name,
            "status": str(row.status),
            "elapsed_s": row.updated_at - row.created_at,
            **row.counts.grouped(),
            "previously_completed": sum(at < begun for at in done),
            "failed_tasks": [task.name for task in tasks if task.state is TaskState.FAILED],
        }

    # --- waiting and results

    def wait(self, timeout: float | None = None, *, progress: bool | None = False) -> RunStatus:
        """Return the final status, once the run is over.

        Args:
            timeout: Seconds; then `RunTimeout`. What was submitted goes on.
            progress: True for a bar or lines on stderr, None to decide by the terminal, False for silence.

        Raises `BackendError` if what drives the run in this process had to stop, and says how to go on.
        `KeyboardInterrupt` stops a run that this process drives: it is saved, and the message says how to go on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            with self._progress(progress) as shown:
                return self.driver.wait(deadline, shown.update)
        except KeyboardInterrupt as interrupt:
            self.driver.let_go()
            shown_short(interrupt)
            raise

    def result(self, timeout: float | None = None) -> Any:
        """What the workflow returns, once the run is over.

        Raises `TaskFailed` for the first task that failed (the others are in `errors()`), `RunCancelled`, `RunTimeout`.
        """
        status = self.wait(timeout)
        if status is RunStatus.CANCELLED:
            raise RunCancelled(
                f"run {fold_id(self.id)} ({self.name}) was cancelled; run.retry() makes its tasks eligible again"
            )
        if status is RunStatus.FAILED:
            raise self._first_failure()
        return self._result_value()

    def __getitem__(self, task: str | Node[Any]) -> Any:
        """Output of one task, once it has one; waits while the run goes on. None for a task that was skipped.

        Raises `TaskFailed`, `RunCancelled`, `UnknownTask`.
        """
        name = self._name_of(task)
        row = self.task(name)
        while row.state not in TERMINAL:
            if self.status.is_over:
                row = self.task(name)
                break
            self.driver.pause(0.05)
            row = self.task(name)
        if row.state in FAILED_STATES:
            raise self._failure(row) if row.state is TaskState.FAILED else self._not_run(row)
        return values.load_output(row.output_ref, self.store.get_output)

    def outputs(self) -> dict[str, Any]:
        """Output of every completed task by name."""
        done = self.tasks(state=TaskState.COMPLETED)
        return {row.name: values.load_output(row.output_ref, self.store.get_output) for row in done}

    def __await__(self) -> Generator[Any, None, Any]:
        """`await run` is `run.result()` without blocking the event loop."""
        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()

    def logs(self, task: str | Node[Any], *, attempt: int | None = None, follow: bool = False) -> Any:
        """What a task wrote to stdout and stderr in its last attempt (or the one asked for), as text.

        With `follow=True` an iterator of pieces of text that ends when the attempt does.
        """
        name = self._name_of(task)
        return self._follow(name) if follow else self._read_log(self.task(name), attempt)

    # --- changing its course

    def cancel(self) -> None:
        """Ask for an end: nothing more starts, what runs is stopped. Does nothing to a run that is over."""
        self.driver.cancel(self.spec)

    def retry(self, tasks: Iterable[str] | None = None, *, increase_resources: bool = False) -> RetryCounts:
        """Make failed, upstream-failed and cancelled tasks (all, or those named) eligible again, and go on.

        With `increase_resources`, what ended for want of memory or time asks for more than it last had.
        `RunBusy` while a cancelled run is still stopping its tasks.
        """
        names = None if tasks is None else [self._name_of(task) for task in tasks]
        counts = self._retry(names, increase_resources)
        self.driver.go_on()
        return counts

    def _retry(self, names: list[str] | None, increase_resources: bool) -> RetryCounts:
        return self.driver.change(
            self.spec,
            lambda state: state.user_retry(self.store.now(), names, increase_resources=increase_resources),
            clear_cancel=True,
        )

    def rerun(self, from_: str | Node[Any] | Iterable[str | Node[Any]]) -> int:
        """Run tasks and everything that descends from them again, completed or not; returns how many tasks that is."""
        several = [from_] if isinstance(from_, str) or not isinstance(from_, Iterable) else list(from_)
        names = [self._name_of(task) for task in several]
        count = self.driver.change(self.spec, lambda state: state.rerun(names, self.store.now()), clear_cancel=True)
        self.driver.go_on()
        return count

    def set_status(self, tasks: Iterable[str | Node[Any]], status: str) -> int:
        """Take tasks for `completed` (just those, without an output) or for `pending` (with all that descends from
        them); returns how many changed. For work that was done, or undone, by other means than this run.

        `RunBusy` if one of them is running, or while a cancelled run is still stopping its tasks.
        """
        if status not in ("completed", "pending"):
            raise UsageError(f"a task can be set to completed or pending, not to {status!r}")
        names = [self._name_of(task) for task in tasks]
        if status == "pending":
            return self.rerun(list(names))
        count = self.driver.change(self.spec, lambda state: state.settle(names, self.store.now()), clear_cancel=True)
        self.driver.go_on()
        return count

    def reset(self) -> int:
        """Put every task back to pending, completed ones too, and go on; returns how many tasks there are."""
        return self.rerun([task.name for task in self.spec.tasks if not task.name.startswith("__merge_")])

    def resources(self, *, margin: float = 0.1, percentile: float = 99.0) -> dict[str, dict[str, Any]]:
        """Suggested resources by template, from what its tasks used: `{"train": {"memory": "40G", "runtime": "2h"}}`.

        The percentile of what the attempts of completed tasks used, and `margin` (a share) more, rounded up to sizes
        that read well. Only what was measured.
        """
        return suggestions(self.tasks(), margin=margin, percentile=percentile)

    def limit(self, most: int | None, template: str | None = None) -> None:
        """Change how many tasks may run at a time, of the run or of one template, for as long as the run lives.

        0 pauses; None goes back to what the workflow says. Nothing that runs is stopped. Whoever drives the run follows
        within seconds. `UsageError` for a template that the run does not have.
        """
        self.driver.change(self.spec, lambda state: state.set_limit(most, template, self.store.now()))

    def resume(
        self, how: Literal["hot", "cold"] = "hot", *, increase_resources: bool = False, timeout: float | None = 60.0
    ) -> Run:
        """Go on with a run that nobody drives any more; what failed or was cancelled is tried afresh. Returns self.

        It is driven in this process, unless it was submitted and a coordinator lives. With another definition it is
        `flow.run(id=..., resume=True)`.

        Args:
            how: `hot` adopts tasks that still run somewhere; `cold` stops them first and runs them again.
            increase_resources: What ended for want of memory or time asks for more than it last had.
            timeout: Seconds that stopping may take; then `RunTimeout`, and the run is left as one that was cancelled.

        Raises `RunBusy` if somebody drives the run.
        """
        if how not in ("hot", "cold"):
            raise UsageError(f"resume is hot (adopt what still runs) or cold (stop it first), not {how!r}")
        self.driver.refuse_if_driven()
        if how == "cold" and self.counts.running:
            self.driver.stop_what_runs(self.spec, None if timeout is None else time.monotonic() + timeout)
        self._retry(None, increase_resources)
        self.driver.go_on_here()
        return self

    def reproduce(self, task: str | Node[Any]) -> Any:
        """Run a Python task's function in this process, with the very arguments that it had in the run.

        Returns its value. For debugging: exceptions arrive as they are, breakpoints work, nothing is recorded.
        """
        from dagkit.runtime.call import Caller
        from dagkit.runtime.storage import Storage

        name = self._name_of(task)
        spec = self.spec.tasks[self.spec.index[name]]
        call = spec.kwargs.get("call")
        if call is None:
            raise UsageError(
                f"{name} is a shell task; reproduce runs Python tasks. Its command: {spec.kwargs.get('cmd')}"
            )
        entries = self.store.task_entries(self.id, spec.depends_on)
        upstream = {parent: entries.get(parent, {}).get("output_ref") for parent in spec.depends_on}
        reads = {"output": self.store.get_output, "payload": self._get}
        storage = Storage("memory:", lambda what, about: reads[what](about))
        return Caller(storage, lambda running: None).run(call, upstream)

    # --- display

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self._drawing().text(self, self._states())}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle: dict[str, str] = self._face("show").bundle(self)
        return bundle

    def _ipython_display_(self) -> None:
        """The live view; IPython takes the other displays outside of notebooks."""
        face = self._face("show")
        if not face.is_notebook():
            raise NotImplementedError
        face.show(self)

    def _progress(self, wanted: bool | None) -> Progress:
        """In a notebook the live view, unless nothing is wanted; elsewhere a bar or lines."""
        face = self._face("show") if wanted is not False and "ipykernel" in sys.modules else None
        shown: Progress = face.progress(self) if face is not None and face.is_notebook() else progress_for(wanted)
        return shown

    def _headline(self) -> str:
        row = self.row()
        done = f"{row.counts.ended} of {row.counts.total}"
        return f"{row.name}  {fold_id(self.id)}  {row.status}  {done}  {format_counts(row.counts)}"

    def _states(self) -> dict[str, TaskState]:
        return {task.name: task.state for task in self.tasks()}

    def _drawing(self) -> Any:
        return self._face("graph")

    def _face(self, module: str) -> Any:
        return importlib.import_module(f"dagkit.notebook.{module}")  # by name: the faces lie above this layer

    # --- inside

    def _name_of(self, task: str | Node[Any]) -> str:
        name = task if isinstance(task, str) else self._name_of_node(task)
        if name not in self.spec.index:
            raise UnknownTask(name, fold_id(self.id), difflib.get_close_matches(name, self.spec.index, n=2))
        return name

    def _name_of_node(self, node: Node[Any]) -> str:
        if self._flow is None:
            raise UsageError(f"{node!r}: this handle does not know the flow that it was traced in; use the task's name")
        return str(self._flow.name_of(node))

    def _get(self, key: str) -> bytes:
        """A payload, or a file that a task of some run has stored."""
        return self.store.get_output(key) if key.startswith("blob:") else self.store.get_payload(key)

    def _read_output(self, ref: str) -> Any:
        return values.load_output(ref, self.store.get_output)

    def _result_value(self) -> Any:
        entries = self.store.task_entries(self.id)

        def output(task: str) -> Any:
            return values.load_output(entries.get(task, {}).get("output_ref"), self.store.get_output)

        result = self.spec.result
        with no_gc():
            if result is not None:
                return values.decode(result, resolve=output, get=self._get)
            sinks = [self.spec.tasks[index].name for index in self.spec.graph.sinks]
            return output(sinks[0]) if len(sinks) == 1 else {name: output(name) for name in sinks}

    def _first_failure(self) -> TaskFailed:
        rows = self.tasks()
        failed = [row for row in rows if row.state is TaskState.FAILED]
        if not failed:
            first = next((row for row in rows if row.state in FAILED_STATES), rows[0])
            return self._not_run(first)
        failed.sort(key=lambda row: row.completed_at or 0.0)
        return self._failure(failed[0], len(failed) - 1)

    def _failure(self, row: TaskRow, others: int = 0) -> TaskFailed:
        first, _, traceback = row.error.partition("\n")
        tail = self.store.read_log(self.id, row.name, row.log_key, -_LOG_TAIL_BYTES)
        return TaskFailed(
            row.name,
            first or "failed without a message",
            workflow_id=self.id,
            kind=row.kind or "user",
            traceback=traceback,
            log_tail=tail.decode(errors="replace"),
            attempts=row.attempt,
            max_attempts=row.max_attempts,
            others=others,
        )

    def _not_run(self, row: TaskRow) -> TaskFailed:
        return TaskFailed(
            row.name,
            f"did not run: {row.error or row.state.words}",
            workflow_id=self.id,
            kind=row.state.value,
            attempts=0,
        )

    def _read_log(self, row: TaskRow, attempt: int | None) -> str:
        key = row.log_key if attempt is None else f"{row.generation}.{attempt}"
        return self.store.read_log(self.id, row.name, key).decode(errors="replace")

    def _follow(self, name: str) -> Iterator[str]:
        row, key, offset = self.task(name), "", 0
        while True:
            ended = row.state in TERMINAL or self.status.is_over
            if row.log_key != key:
                key, offset = row.log_key, 0
            data = self.store.read_log(self.id, name, key, offset)
            if data:
                offset += len(data)
                yield data.decode(errors="replace")
            elif ended:
                return
            if not ended:
                self.driver.pause(0.1)
            row = self.task(name)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
