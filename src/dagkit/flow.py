"""Flows: traced workflows, to be looked at, planned, run, submitted and exported."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from contextvars import Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from dagkit.errors import TracingError, UsageError
from dagkit.trace import PROMPT, Node, Scope, Trace, active
from dagkit.tracing.workflow_options import checked

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec
    from dagkit.plan import Plan
    from dagkit.run import Run
    from dagkit.stores.base import Store
    from dagkit.tracing.compile import Compiled

    # Inside another workflow, a workflow returns what its function returns: to a type checker a flow is anything.
    _Anything = Any
else:
    _Anything = object

__all__ = ["Flow", "flow_of", "warn_uncalled"]

#: Draws flows in notebooks and terminals. By name, because this layer lies below that of the faces.
DRAWING: Final = "dagkit.notebook.graph"


class Flow(_Anything):  # type: ignore[misc]
    """A traced workflow: nodes, and what they return. Nothing has run.

    Get one by calling a `@workflow` function, by `with workflow("name") as flow:`, or from a file. It is compiled when
    it is first looked at.

    Attributes:
        name: What the workflow is called.
        nodes: The nodes that were made, in call order.
        result: What `run.result()` gives: a node, or lists, dicts and the like that hold nodes. In a `with` block it
            may be assigned; without one the result is the output of the last task, or a dict of all that nothing
            depends on.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any] | None = None, *, trace: Trace | None = None, result: Any = None
    ) -> None:
        self.name = name
        self.result = result
        self._fields, self._strict = checked(name, options or {})
        self._trace = trace or Trace(Scope(strict=self._strict))
        self._token: Token[Trace | None] | None = None
        self._compiled: Compiled | None = None
        self._read: tuple[WorkflowSpec, dict[str, bytes]] | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> Flow:
        """A flow from a `.yaml` or `.json` file and the payloads beside it, ready to run."""
        from dagkit.model.spec import WorkflowSpec

        spec = WorkflowSpec.from_file(path)
        flow = cls(spec.name)
        flow._read = (
            spec,
            {f"sha256:{file.name}": file.read_bytes() for file in sorted(_payload_folder(path).glob("?" * 64))},
        )
        return flow

    # --- what it is

    @property
    def nodes(self) -> tuple[Node[Any], ...]:
        return tuple(self._trace.nodes)

    @property
    def spec(self) -> WorkflowSpec:
        """The YAML model. Raises `NotPicklable` naming what cannot travel, `DefinitionError`, `ConditionError`."""
        return self._read[0] if self._read else self._compile().spec

    @property
    def payloads(self) -> dict[str, bytes]:
        """Content-addressed bytes that the model refers to: code and values that JSON cannot hold."""
        return self._read[1] if self._read else self._compile().payloads

    def name_of(self, node: Node[Any]) -> str:
        """What a node is called in this workflow. `UsageError` for a node that is not in it."""
        if self._read is None and node._node in (names := self._compile().names):
            return names[node._node]
        raise UsageError(f"{node!r} is not part of workflow {self.name}")

    def _compile(self) -> Compiled:
        from dagkit.tracing.compile import compile_nodes

        if self._token is not None:
            raise TracingError(f"workflow {self.name} is still being traced: leave the `with` block first")
        if self._compiled is None:
            fields = dict(self._fields)
            if limits := {**self._trace.concurrency, **fields.get("concurrency", {})}:
                fields["concurrency"] = limits
            self._compiled = compile_nodes(self.name, self._trace.nodes, self.result, fields)
        return self._compiled

    # --- what can be done with it

    def run(
        self,
        *,
        store: Store | str | Path | None = None,
        target: str | None = None,
        id: str | None = None,  # noqa: A002 - the word users know
        wait: bool = True,
        fail_fast: bool | None = None,
        max_parallelism: int | None = None,
        timeout: float | None = None,
        resume: bool | Literal["hot", "cold"] = False,
        progress: bool | None = None,
        resources: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
    ) -> Run:
        """Run it in this process, durably, and return the handle on the run.

        Args:
            store: Where state is kept: a store, a url or a path; default by configuration, `.dagkit` in the project.
            target: Named target that says which executor serves which queue; default is local processes.
            id: Id of the run; default is a new one. An id whose run is going on is attached to.
            wait: Return when the run is over; False returns at once, and the run goes on in the background.
            fail_fast, max_parallelism: Instead of the workflow's own.
            timeout: Seconds to wait at most; then `RunTimeout`, and the run goes on.
            resume: Go on with the run of this id: what is completed and unchanged is kept. True or "hot" adopts what
                still runs somewhere; "cold" stops it first.
            progress: True for a bar or lines, False for silence, None to show something only while waiting.
            resources: What tasks ask for instead of what they say, by template: a mapping, or a YAML file such as
                `dagkit resources` writes from an earlier run.
        """
        start = importlib.import_module("dagkit.launch").start
        return start(  # type: ignore[no-any-return]
            self.spec,
            self.payloads,
            store=store,
            target=target,
            id=id,
            wait=wait,
            fail_fast=fail_fast,
            max_parallelism=max_parallelism,
            timeout=timeout,
            resume=resume,
            progress=progress,
            resources=resources,
            flow=self,
        )

    def submit(
        self,
        *,
        store: Store | str | Path | None = None,
        id: str | None = None,  # noqa: A002 - the word users know
        max_fan_in: int | None = None,
        resources: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
    ) -> Run:
        """Store it for a coordinator elsewhere to run, and return the handle on the run.

        Args:
            store, id: As in `run`.
            max_fan_in: Cut dependencies of tasks with more than this many into batches.
            resources: As in `run`.
        """
        more = {"max_fan_in": max_fan_in, "resources": resources}
        submit = importlib.import_module("dagkit.launch").submit
        return submit(self.spec, self.payloads, store=store, id=id, flow=self, **more)  # type: ignore[no-any-return]

    def plan(
        self, target: str | None = None, *, store: Store | None = None, cached: Mapping[str, str] | None = None
    ) -> Plan:
        """What would run: tasks per template and queue, sizes, warnings, what is cached and why.

        Args:
            target: Named target, to say where the tasks of each queue would run.
            store: Where results of earlier runs are looked up for tasks with `cache=True`.
            cached: The same as a mapping from identity to output ref.
        """
        from dagkit.plan import make_plan

        return make_plan(self.spec, self.payloads, target=target, store=store, cached=cached)

    def to_yaml(self, path: str | Path | None = None, *, portable: bool = False) -> str:
        """The model as YAML text, written to `path` too if given.

        Functions of installed modules are named; code and values that have no name are put beside the file in
        `<name>.payloads/`, where `Flow.from_file` and the command line find them. `portable` is for ai4s-jobq.
        """
        text = self._written().to_yaml(path, portable=portable)
        if path is not None:
            self._write_payloads(path)
        return text

    def to_json(self, path: str | Path | None = None) -> str:
        """The model as JSON text; otherwise as `to_yaml`."""
        text = self._written().to_json()
        if path is not None:
            Path(path).write_text(text, encoding="utf-8", newline="\n")
            self._write_payloads(path)
        return text

    def _written(self) -> WorkflowSpec:
        """The model without fingerprints, which somebody who edits the file would make wrong."""
        tasks = [_without_fingerprint(task) for task in self.spec.tasks]
        return self.spec.model_copy(update={"tasks": tuple(tasks)})

    def _write_payloads(self, path: str | Path) -> None:
        folder = _payload_folder(path)
        for digest, data in self.payloads.items():
            folder.mkdir(exist_ok=True)
            folder.joinpath(digest.removeprefix("sha256:")).write_bytes(data)

    # --- how it looks

    def __repr__(self) -> str:
        if self._token is not None:
            return f"<flow {self.name}: being traced, {len(self._trace.nodes)} nodes so far>"
        drawing = _drawing()
        return (
            str(drawing.text(self)) if drawing else f"<flow {self.name}: {len(self.spec.tasks)} tasks, nothing has run>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        drawing = _drawing() if self._token is None else None
        return drawing.mimebundle(self) if drawing else {"text/plain": repr(self)}

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    # --- tracing a `with` block

    def __enter__(self) -> Flow:
        if self._token is not None or self._compiled is not None:
            raise TracingError(
                f"workflow {self.name} has been traced already; make another with workflow({self.name!r})"
            )
        outer = active.get()
        if outer is not None:
            raise TracingError(
                f"workflow {self.name} is opened inside another that is being traced. Make it a @workflow function: "
                f"called there it is inlined."
            )
        self._token = active.set(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            active.reset(token)
        if kind is None:
            warn_uncalled(self._trace, 2)


def flow_of(node: Node[Any]) -> Flow:
    """The workflow of a node and everything it depends on, named after the node's task."""
    trace = Trace(PROMPT)
    trace.nodes.append(node)
    return Flow(node._name.rpartition("/")[2], trace=trace, result=node)


def warn_uncalled(trace: Trace, level: int) -> None:
    used = {node._task.declaration for node in trace.nodes}
    for task in trace.shells:
        if task.declaration not in used:
            assert task.declaration.command is not None
            warnings.warn(
                f"shell({task.declaration.command.cmd!r:.60}) was declared in this workflow and never called, so it "
                f"will not run: shell(...)() makes a node",
                stacklevel=level + 1,
            )


def _without_fingerprint(task: TaskSpec) -> TaskSpec:
    call = task.kwargs.get("call")
    if not isinstance(call, dict) or "fingerprint" not in call:
        return task
    plain = {key: value for key, value in call.items() if key != "fingerprint"}
    return task.model_copy(update={"kwargs": {**task.kwargs, "call": plain}})


def _payload_folder(path: str | Path) -> Path:
    return Path(path).with_suffix(".payloads")


def _drawing() -> Any:
    try:
        return importlib.import_module(DRAWING)
    except ImportError:
        return None
