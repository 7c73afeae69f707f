"""Workflows: `@workflow` functions and `with workflow(...)` blocks collect nodes into a `Flow`."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from dagkit.errors import TracingError, WrongCall
from dagkit.flow import Flow, flow_of, warn_uncalled
from dagkit.trace import Trace, active
from dagkit.tracing.signature import Signature
from dagkit.tracing.workflow_options import checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dagkit.tracing.workflow_options import WorkflowOptions

__all__ = ["Flow", "Workflow", "flow_of", "workflow"]

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A function that makes a workflow. Calling it traces it and returns a `Flow`; called while another workflow is
    traced, its tasks become part of that one under a `name/` prefix, and it returns what the function returns."""

    __name__: str

    def __init__(self, fn: Callable[P, R], name: str, options: Mapping[str, Any]) -> None:
        self.fn, self.name, self.options = fn, name, dict(options)
        self._fields, self._strict = checked(name, options)
        self._signature = Signature(fn)
        functools.update_wrapper(self, fn)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Flow:
        self._signature.check(self.name, len(args) + len(kwargs), tuple(kwargs))
        outer = active.get()
        if outer is not None:
            return self._inlined(outer, args, kwargs)  # type: ignore[no-any-return]
        flow = Flow(self.name, self.options)
        with _traced(flow._trace):
            flow.result = self.fn(*args, **kwargs)
        warn_uncalled(flow._trace, 3)
        return flow

    def _inlined(self, trace: Trace, args: Any, kwargs: Any) -> Any:
        if ignored := sorted(self._fields.keys() - {"default_queue", "concurrency"}):
            warnings.warn(
                f"workflow {self.name} is inlined in another; its {', '.join(ignored)} do not apply", stacklevel=3
            )
        for template, limit in self._fields.get("concurrency", {}).items():
            trace.concurrency[template] = min(limit, trace.concurrency.get(template, limit))
        outer = trace.scope
        trace.scope = outer.inner(self.name, self._fields.get("default_queue"), self._strict)
        try:
            return self.fn(*args, **kwargs)
        finally:
            trace.scope = outer

    def __repr__(self) -> str:
        return f"<workflow {self.name}{inspect.signature(self.fn)}: calling it traces it>"

    def __enter__(self) -> Any:
        raise TracingError(f"{self.name} is a workflow function: call it, flow = {self.name}(...)")

    def __exit__(self, *details: object) -> None:
        return None


@contextmanager
def _traced(trace: Trace) -> Iterator[None]:
    token = active.set(trace)
    try:
        yield
    finally:
        active.reset(token)


class _Maker(Flow):
    """What `workflow("name", ...)` returns: a flow to be opened by `with`, or a decorator."""

    def __init__(self, name: str | None, options: Mapping[str, Any]) -> None:
        super().__init__(name or "workflow", options)
        self._given_name, self._options = name, options

    def __call__(self, fn: Callable[P, R]) -> Workflow[P, R]:
        return _declared(fn, self._given_name, self._options)


@overload
def workflow(fn: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(name: str | None = None, /, **options: Unpack[WorkflowOptions]) -> _Maker: ...
@overload
def workflow(*, name: str, **options: Unpack[WorkflowOptions]) -> _Maker: ...
def workflow(fn: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Declare a workflow: `@workflow`, `@workflow(default_queue="cpu")`, or `with workflow("name") as flow:`.

    Args:
        name: What it is called; default is the function's name.
        default_queue: Queue of tasks that name none.
        max_parallelism: How many tasks may run at the same time.
        result_policy: `all_tasks_succeed` (default) or `all_sinks_succeed`.
        fail_fast: Stop launching when the first task has failed for good.
        concurrency: How many tasks of a template may run at the same time: `{"train": 2}`.
        timeout: Limit for one attempt of tasks that have none of their own: seconds, or `"2h"`.
        strict: An argument whose declared type does not fit is an error rather than a warning.
    """
    if fn is None or isinstance(fn, str):
        return _Maker(fn or name, options)
    return _declared(fn, name, options)


def _declared(fn: Any, name: str | None, options: Mapping[str, Any]) -> Workflow[Any, Any]:
    if isinstance(fn, Workflow):
        raise WrongCall(f"{fn.name} is a workflow already")
    if not inspect.isroutine(fn) or inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise WrongCall(
            f"@workflow on {getattr(fn, '__name__', repr(fn))}: a workflow is made from a plain function, which runs "
            f"once while the workflow is traced (tasks themselves may be async)"
        )
    return Workflow(fn, name or fn.__name__.strip("<>"), options)
