"""Tasks: `@task` makes one from a function, `shell(...)` from a command; calling a task returns a node."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from dagkit.errors import TracingError, WrongCall
from dagkit.trace import ATOMS, PROMPT, Node, active, snapshot
from dagkit.tracing import edges
from dagkit.tracing.declaration import Command, Declaration, command_name, declare, plain_name
from dagkit.tracing.name_template import NameTemplate
from dagkit.tracing.options import Options, changed
from dagkit.tracing.promise import Promise

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from dagkit.tracing.options import TaskOptions

__all__ = ["ShellTask", "Task", "shell", "task"]

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A declared unit of work. Calling it returns a `Node` and runs nothing; `.fn` is the plain function.

    Arguments are bound at the call: one that is missing or unknown is a `TypeError`. Small lists, dicts and sets among
    them are copied at the call; anything else is taken as it is when the workflow is compiled.
    """

    __name__: str

    def __init__(
        self, declaration: Declaration, given: Options, fixed: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    ) -> None:
        self.declaration = declaration
        self.given = given
        """The options, checked."""
        self._fixed = fixed
        self._template: NameTemplate | None = None
        if given.name is not None and "{" in given.name:
            self._template = NameTemplate(given.name, declaration.name)

    @property
    def fn(self) -> Callable[P, R]:
        """The plain function, for tests and quick looks."""
        return self.declaration.fn

    @property
    def name(self) -> str:
        """The name its nodes start from."""
        return self.given.name or self.declaration.name

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        if self._fixed[0] or self._fixed[1]:
            args, kwargs = (*self._fixed[0], *args), {**self._fixed[1], **kwargs}  # type: ignore[assignment]
        keywords = tuple(kwargs)
        values = (*args, *kwargs.values()) if keywords else args
        self.declaration.signature.check(self.name, len(values), keywords)
        return self._node(values, keywords, _site(sys._getframe(1)))

    def options(self, **options: Unpack[TaskOptions]) -> Self:
        """A copy of the task with some options changed: those of `@task`, most often `name`, `after` and `when`."""
        return self._copy(changed(self.given, self.name, options), self._fixed)

    def partial(self, /, *args: Any, **kwargs: Any) -> Self:
        """A copy of the task with some arguments fixed, as by `functools.partial`: what all items of a map share."""
        return self._copy(self.given, ((*self._fixed[0], *args), {**self._fixed[1], **kwargs}))

    def map(self, /, *iterables: Iterable[Any], **named: Iterable[Any]) -> list[Node[R]]:
        """A node for each item of the iterables, zipped as the builtin does: `train.map(lr=rates, seed=range(9))`.

        The nodes are named `train-0`, `train-1`, ... in order, or by a template: `train.options(name="train-{lr}")`.
        What is the same for every item is fixed first: `train.partial(features).map(lr=rates)`.
        """
        columns = self._columns("map", iterables, named)
        return self._nodes(zip(*columns), len(iterables), tuple(named), _site(sys._getframe(1)))  # noqa: B905 - as the builtin

    def product(self, /, *iterables: Iterable[Any], **named: Iterable[Any]) -> list[Node[R]]:
        """A node for each combination, the last varying fastest: `train.product(lr=[0.1, 0.01], seed=range(3))`.

        Names are made as by `map`.
        """
        columns = self._columns("product", iterables, named)
        return self._nodes(itertools.product(*columns), len(iterables), tuple(named), _site(sys._getframe(1)))

    def _columns(self, verb: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> list[Iterable[Any]]:
        if not positional and not named:
            raise WrongCall(f"{self.name}.{verb}() needs at least one iterable")
        labelled = [*((f"argument {index}", each) for index, each in enumerate(positional)), *named.items()]
        for label, each in labelled:
            if isinstance(each, (str, bytes)) or not isinstance(each, (Promise, Iterable)):
                raise WrongCall(
                    f"{self.name}.{verb}(): {label} is {each!r:.60}, not a list of items. "
                    f"What is the same for every item is fixed first: {self.name}.partial(...).{verb}(...)"
                )
        return [list(each) for _, each in labelled] if verb == "product" else [iter(each) for _, each in labelled]

    def _nodes(
        self, rows: Iterable[tuple[Any, ...]], count: int, named: tuple[str, ...], site: tuple[str, int]
    ) -> list[Node[R]]:
        before = self._fixed[0]
        between = {key: value for key, value in self._fixed[1].items() if key not in named}
        keywords = (*between, *named)
        self.declaration.signature.check(self.name, len(before) + count + len(keywords), keywords)
        if before or between:
            shared = tuple(between.values())
            rows = ((*before, *row[:count], *shared, *row[count:]) for row in rows)
        return [self._node(row, keywords, site, True) for row in rows]

    def _node(
        self, values: tuple[Any, ...], keywords: tuple[str, ...], site: tuple[str, int], is_item: bool = False
    ) -> Node[R]:
        trace = active.get()
        if trace is None:
            self._check_not_in_a_task()
        scope = PROMPT if trace is None else trace.scope
        is_plain = all([type(value) in ATOMS for value in values])  # noqa: C419 - a list is faster, this is the hot path
        if not is_plain:
            values = tuple([snapshot(value) for value in values])
        if self._template is None:
            name = self.name
        else:
            name, is_item = self._template.fill(self._arguments(values, keywords)), False
        node: Node[R] = Node(self, values, keywords, name, site, scope, is_item)
        if not is_plain:
            edges.check(node)
        if trace is not None:
            trace.nodes.append(node)
        return node

    def _check_not_in_a_task(self) -> None:
        """The body of a task runs where nobody would run the node, and most likely wants the function's value."""
        from dagkit.runtime.context import is_in_task

        if is_in_task():
            raise TracingError(
                f"{self.name} is a task, and was called inside another task, where nothing runs it. For its value "
                f"write {self.name}.fn(...), the plain function; for a workflow within a task use @workflow."
            )

    def _copy(self, given: Options, fixed: tuple[tuple[Any, ...], dict[str, Any]]) -> Self:
        copy = type(self)(self.declaration, given, fixed)
        functools.update_wrapper(copy, self.declaration.fn)
        return copy

    def _arguments(self, values: tuple[Any, ...], keywords: tuple[str, ...]) -> dict[str, Any]:
        return self.declaration.signature.arguments(values, keywords)

    # --- how it looks and travels

    def __repr__(self) -> str:
        return f"<task {self.name}{self.declaration.signature}: calling it makes a node; .fn is the function>"

    def __reduce__(self) -> Any:
        # Function code may refer to other tasks; what their options would mean in a worker is their name and outputs.
        return _rebuilt, (self.declaration.fn, self.given.name, self.given.outputs)

    def __iter__(self) -> Iterator[Any]:
        raise TracingError(f"{self.name} is a task, not a node: call it, {self.name}(...)")


def _rebuilt(fn: Callable[..., Any], name: str | None, outputs: int | None) -> Task[..., Any]:
    return _declared(fn, {"name": name, "outputs": outputs})


def _site(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


@overload
def task(fn: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a task from a function: `@task`, or `@task(queue="gpu", retries=3, memory="40G", runtime="2h")`.

    Args:
        name: Name in the workflow instead of the function's; a template over arguments is allowed: `"fit-{seed}"`.
        queue: Where it runs; default is the workflow's `default_queue`.
        retries: How often a failed task is tried again: 3 is up to 4 attempts.
        retry_delay, backoff: Pause before a retry (seconds, `"10s"`, or a list), and the factor by which it grows.
        timeout: Limit for one attempt, seconds or `"2h"`.
        cores, memory, runtime, gpus, nodes, resources: What it needs (`"40G"`, `"2h"`), or refs to upstream outputs.
        resource_scales, fallback_queues: How a request grows after a failure for lack of it, and queues that hold more.
        cache: Reuse the result of an earlier run that did the same.
        outputs: It returns this many values; `a, b = split(x)` unpacks its node.
        priority: Among ready tasks the higher goes first.
        expected_outputs: Files that must exist when it has succeeded.
        strict: An argument whose declared type does not fit is an error rather than a warning.
        after, when, dep_policy: Order, condition, and how many parents must succeed; usually given by `.options(...)`.
    """
    if fn is None:
        return lambda function: _declared(function, options)
    return _declared(fn, options)


def _declared(fn: Any, options: Mapping[str, Any]) -> Task[..., Any]:
    if isinstance(fn, Task):
        raise WrongCall(f"{fn.name} is a task already; change its options with {fn.name}.options(...)")
    if type(fn).__module__ == "dagkit.workflow":
        raise WrongCall(
            f"{fn.__name__} is a workflow; called inside another workflow it is inlined, so it need not be a task"
        )
    if isinstance(fn, str):
        raise WrongCall(f"@task takes options by name: @task(name={fn!r})")
    declaration = declare(fn, options.get("name"))
    made: Task[..., Any] = Task(declaration, changed(Options(), declaration.name, options))
    functools.update_wrapper(made, declaration.fn)
    return made


# --- commands


class ShellTask(Task[..., Any]):
    """A command as a task. Calling it returns a node: `prep(after=[download], env={"YEAR": "2024"})`."""

    def __call__(self, *, after: Any = None, env: Mapping[str, Any] | None = None, cwd: str | None = None) -> Node[Any]:
        """A node that runs the command, after other nodes, with variables added to its environment."""
        made = self if after is None else self.options(after=[*self.given.after, *_listed(after)])
        arguments = {"env": env, "cwd": cwd}
        given = {**self._fixed[1], **{key: value for key, value in arguments.items() if value is not None}}
        return made._node(tuple(given.values()), tuple(given), _site(sys._getframe(1)))

    def _node(
        self, values: tuple[Any, ...], keywords: tuple[str, ...], site: tuple[str, int], is_item: bool = False
    ) -> Node[Any]:
        checked = [
            _environment(self.name, value) if key == "env" else _folder(value)
            for key, value in zip(keywords, values, strict=True)
        ]
        return super()._node(tuple(checked), keywords, site, is_item)

    def kwargs(self, values: tuple[Any, ...], keywords: tuple[str, ...]) -> dict[str, Any]:
        """The task's kwargs in the YAML model."""
        command = self.declaration.command
        assert command is not None
        given = dict(zip(keywords, values, strict=True))
        env = {**command.env, **given.get("env", {})}
        cwd = given.get("cwd") or command.cwd
        more = {"env": env, "cwd": cwd, "bg_dirsync_to": command.bg_dirsync_to}
        return {"cmd": command.cmd, **{key: value for key, value in more.items() if value}}

    def _arguments(self, values: tuple[Any, ...], keywords: tuple[str, ...]) -> dict[str, Any]:
        kwargs = self.kwargs(values, keywords)
        return {**kwargs.get("env", {}), **{key: kwargs[key] for key in ("cwd",) if key in kwargs}}

    def __repr__(self) -> str:
        assert self.declaration.command is not None
        return f"<task {self.name}: {self.declaration.command.cmd!r:.80}; calling it makes a node>"


def shell(
    cmd: str,
    *,
    env: Mapping[str, Any] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    bg_dirsync_to: str | None = None,
    **options: Unpack[TaskOptions],
) -> ShellTask:
    """Declare a shell command as a task; like any task it is called to make a node: `prep = shell("make data")()`.

    Nothing in `cmd` is expanded by dagkit: values go in by the environment, `shell("fit $LR", env={"LR": 0.1})`. The
    options are those of `@task`. Its name is that of its program or script. The command reads upstream outputs with
    `dagkit.get_upstream_output(name)` or from `$JOBQ_WORKFLOW_UPSTREAM_REFS`, and writes its own to
    `$JOBQ_OUTPUT_FILE`.

    With `bg_dirsync_to` what it writes into the folder `$DAGKIT_SYNC_DIR` is copied there while it runs, and once more
    when it has ended, however it did: `azure://<account>/<container>/<prefix>`, or the path of a folder.
    """
    if not isinstance(cmd, str) or not cmd.strip():
        raise WrongCall(
            f"shell({cmd!r:.60}): a command is text that is not blank; shlex.join([...]) makes one from a list"
        )
    name = options.get("name") or command_name(cmd)
    command = Command(cmd, _environment(name, env or {}), _folder(cwd) if cwd is not None else None, bg_dirsync_to)
    declaration = Declaration(_command, plain_name(options.get("name")) or command_name(cmd), command)
    made = ShellTask(declaration, changed(Options(), name, options))
    trace = active.get()
    if trace is not None:
        trace.shells.append(made)
    return made


def _command(*, env: Mapping[str, Any] | None = None, cwd: str | None = None) -> None:
    raise TracingError("a shell task has no function; run its command in a shell")


def _listed(nodes: Any) -> list[Any]:
    return [nodes] if isinstance(nodes, Promise) or not isinstance(nodes, Iterable) else list(nodes)


def _environment(task: str, env: Any) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise WrongCall(f"{task}: env is a mapping of names to texts, not {env!r:.60}")
    return {str(key): _env_text(task, key, value) for key, value in env.items()}


def _env_text(task: str, key: object, value: object) -> str:
    if isinstance(value, Promise):
        raise TracingError(
            f"{task}: env {key!r} is the output of {value._node._name}, which is not known when the command is "
            f"written. Wait for it with after=[...] and read it in the command: "
            f"dagkit.get_upstream_output({value._node._name!r})."
        )
    if isinstance(value, bool) or not isinstance(value, (str, int, float, os.PathLike)):
        raise WrongCall(f"{task}: env {key!r} is {value!r:.60}; a variable is a text, a number or a path")
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _folder(path: Any) -> str:
    if isinstance(path, Promise) or not isinstance(path, (str, os.PathLike)):
        raise WrongCall(f"cwd is a path, not {type(path).__name__}")
    return os.fspath(path)
