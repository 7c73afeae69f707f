"""Nodes and refs: what calling a task returns while tracing, and the trace that collects them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from dagkit.tracing.promise import Promise, as_key, source_line
from dagkit.tracing.when import Condition, all_of, almost_all, any_of, count_of

if TYPE_CHECKING:
    from dagkit.run import Run
    from dagkit.task import ShellTask, Task
    from dagkit.workflow import Flow

__all__ = [
    "Condition",
    "Node",
    "Ref",
    "Scope",
    "Trace",
    "active",
    "all_of",
    "almost_all",
    "any_of",
    "count_of",
    "nodes_in",
    "snapshot",
]

R = TypeVar("R")

_numbers = itertools.count()

#: Values that hold no nodes and cannot change.
ATOMS: Final = frozenset({int, float, str, bool, bytes, complex, type(None)})

#: Containers up to this many items (nested ones included) are copied at the call: changing them later changes no task.
MAX_SNAPSHOT: Final = 1_000


class Scope:
    """The part of a workflow that an inlined workflow makes up: a prefix of names, and its defaults."""

    __slots__ = ("default_queue", "prefix", "strict", "used")

    def __init__(self, prefix: str = "", default_queue: str | None = None, strict: bool = False) -> None:
        self.prefix, self.default_queue, self.strict = prefix, default_queue, strict
        self.used: dict[str, int] = {}

    def inner(self, name: str, default_queue: str | None, strict: bool) -> Scope:
        """A scope inside this one; the second of the same name is `name-1`."""
        count = self.used.get(name, 0)
        self.used[name] = count + 1
        label = f"{name}-{count}" if count else name
        return Scope(f"{self.prefix}{label}/", default_queue or self.default_queue, strict or self.strict)


#: Where nodes made at the prompt belong.
PROMPT: Final = Scope()


class Trace:
    """The nodes that are being collected, in call order."""

    __slots__ = ("concurrency", "nodes", "scope", "shells")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.nodes: list[Node[Any]] = []
        self.concurrency: dict[str, int] = {}
        """Limits that inlined workflows ask for."""
        self.shells: list[ShellTask] = []
        """Shell tasks made in this trace, to find those that were never called."""


#: The trace that calls in this thread or asyncio task add to; None at the prompt.
active: Final[ContextVar[Trace | None]] = ContextVar("dagkit_trace", default=None)


class Node(Promise, Generic[R]):
    """A promise of one task's output, made by calling the task. Never runs anything by itself.

    `node["mae"]` and `node[0]` are refs to parts of the output; comparisons make conditions for `when=`; `node.run()`
    runs the node and what it depends on. A node has no other attributes, because the value it stands for may have any.
    """

    # The underscores keep these out of the way of that rule; the modules of this layer use them.
    __slots__ = (
        "__weakref__",
        "_file",
        "_is_item",
        "_keywords",
        "_line",
        "_name",
        "_number",
        "_scope",
        "_task",
        "_values",
    )

    def __init__(
        self,
        task: Task[..., Any],
        values: tuple[Any, ...],
        keywords: tuple[str, ...],
        name: str,
        site: tuple[str, int],
        scope: Scope,
        is_item: bool = False,
    ) -> None:
        self._task = task
        self._values = values
        self._keywords = keywords
        """Names of the last values, shared by all calls of that shape."""
        self._name = name
        self._file, self._line = site
        self._scope = scope
        self._is_item = is_item
        self._number = next(_numbers)

    if not TYPE_CHECKING:

        @property
        def _node(self) -> Node[R]:
            return self

        @property
        def _path(self) -> tuple[str | int, ...]:
            return ()

    def __getitem__(self, key: object) -> Ref:
        return Ref(self, ())[key]

    def __iter__(self) -> Iterator[Ref]:
        outputs = self._task.given.outputs
        return iter([self[index] for index in range(outputs)]) if outputs else super().__iter__()

    def __len__(self) -> int:
        return self._task.given.outputs or super().__len__()

    def __repr__(self) -> str:
        return f"<node {self._scope.prefix}{self._name}: not run; node.run() runs it>"

    def _flow(self) -> Flow:
        from dagkit.workflow import flow_of

        return flow_of(self)

    def run(self, **options: Any) -> Run:
        """Run this node and everything it depends on; the options are those of `Flow.run`."""
        return self._flow().run(**options)


class Ref(Promise):
    """A part of a node's output: `node["mae"]`, `node["folds"][0]`."""

    __slots__ = ("_node", "_path")

    def __init__(self, node: Node[Any], path: tuple[str | int, ...]) -> None:
        self._node, self._path = node, path

    def __getitem__(self, key: object) -> Ref:
        plain = as_key(key)
        if plain is None:
            self._refuse(
                f"{_shown(key)} is no key of a ref", "A key is a text or an integer; cut and combine inside a task"
            )
        return Ref(self._node, (*self._path, plain))

    def __repr__(self) -> str:
        path = "".join(f"[{key!r}]" for key in self._path)
        return f"<ref {self._node._name}{path}, made at {source_line(self._node._file, self._node._line)}>"


def _shown(key: object) -> str:
    return "a node" if isinstance(key, Promise) else f"{key!r:.40}"


def nodes_in(values: Iterable[Any], seen: set[int]) -> Iterator[Node[Any]]:
    """Nodes in values and in the lists, tuples, sets, dicts and dataclasses they are made of, without recursion.

    A container whose id is in `seen` is passed over; those looked into are added.
    """
    todo = [value for value in values if type(value) not in ATOMS]
    while todo:
        value = todo.pop()
        if isinstance(value, Promise):
            yield value._node
        elif id(value) not in seen and (parts := _parts(value)):
            seen.add(id(value))
            todo.extend(part for part in parts if type(part) not in ATOMS)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()


def snapshot(value: Any) -> Any:
    """The value, or a copy of it if it is a plain list, dict or set of at most `MAX_SNAPSHOT` items in all."""
    if type(value) not in _COPIED or _size(value) > MAX_SNAPSHOT:
        return value
    return _copy(value)


_COPIED: Final = frozenset({list, dict, set})


def _size(value: Any) -> int:
    """Items in plain containers, counted to just above the limit; a container met twice counts twice."""
    count, todo = 0, [value]
    while todo and count <= MAX_SNAPSHOT:
        value = todo.pop()
        count += len(value)
        if type(value) is not set and count <= MAX_SNAPSHOT:
            items = value.values() if type(value) is dict else value
            todo.extend(item for item in items if type(item) in _COPIED)
    return count + sum(map(len, todo))


def _copy(value: Any) -> Any:
    top = value.copy()
    todo = [top]
    while todo:
        box = todo.pop()
        pairs = enumerate(box) if type(box) is list else list(box.items()) if type(box) is dict else ()
        for key, item in pairs:
            if type(item) in _COPIED:
                box[key] = item.copy()
                todo.append(box[key])
    return top
