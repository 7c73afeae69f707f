"""Nodes into the YAML model: names, argument trees, dependencies, conditions, payloads."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagkit.engine import fingerprint
from dagkit.errors import DefinitionError, Problem
from dagkit.gc_pause import no_gc
from dagkit.model.names import task_name_fault
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.runtime import payload, values
from dagkit.task import ShellTask
from dagkit.trace import ATOMS, Node, nodes_in
from dagkit.tracing import conditions
from dagkit.tracing.declaration import Declaration
from dagkit.tracing.growth import written_scales
from dagkit.tracing.naming import Names
from dagkit.tracing.options import Options
from dagkit.tracing.own_work import OwnWork
from dagkit.tracing.promise import Promise

__all__ = ["Compiled", "compile_nodes", "with_ancestors"]

#: Values that are their own argument tree, within limits; other values go through `values.encode`.
_PLAIN: Final = frozenset({int, bool, type(None)})
_MAX_PLAIN_INT: Final = 1 << 62
_MAX_PLAIN_TEXT: Final = 5_000
_MAX_PLAIN_LIST: Final = 20

#: Fields that have to be checked for each task; the others follow from options, which are checked.
_CHECKED_BY_TASK: Final = ("condition", "resources", "resource_scales", "dep_policy")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A workflow as a model.

    Attributes:
        payloads: The content-addressed bytes that the model refers to.
        names: What each node is called.
    """

    spec: WorkflowSpec
    payloads: dict[str, bytes]
    names: Names


def compile_nodes(name: str, nodes: Iterable[Node[Any]], result: Any, fields: Mapping[str, Any]) -> Compiled:
    """The model of the nodes and everything they depend on; `fields` are those of `WorkflowSpec`.

    Raises `NotPicklable` for what cannot travel, `ConditionError` and `DefinitionError`.
    """
    members = with_ancestors([*nodes, *nodes_in([result], set())])
    if not members:
        raise DefinitionError([Problem("no task was called, so there is nothing to run")], f"workflow {name}")
    with no_gc():
        compiler = _Compiler(members)
        tasks = compiler.tasks()
        tree = None if result is None else compiler.tree(result, f"{name}: result")
        spec = WorkflowSpec(name=name, tasks=tuple(tasks), result=tree, **fields)
    return Compiled(spec, compiler.payloads, compiler.names)


def with_ancestors(nodes: Iterable[Node[Any]]) -> list[Node[Any]]:
    """The nodes and all they depend on, in call order; linear in nodes and edges, without recursion."""
    found = set(nodes)
    todo = list(found)
    seen: set[int] = set()
    while todo:
        for parent in _parents(todo.pop(), seen):
            if parent not in found:
                found.add(parent)
                todo.append(parent)
    return sorted(found, key=lambda node: node._number)


def _parents(node: Node[Any], seen: set[int]) -> Iterable[Node[Any]]:
    given = node._task.given
    yield from nodes_in(node._values, seen)
    yield from given.after
    if given.when is not None and id(given.when) not in seen:
        seen.add(id(given.when))
        yield from given.when.nodes()
    if isinstance(given.resources, dict):
        yield from nodes_in(given.resources.values(), seen)


class _Compiler:
    def __init__(self, nodes: Sequence[Node[Any]]) -> None:
        self.names = Names(nodes)
        self.nodes = list(nodes)
        self.payloads: dict[str, bytes] = {}
        self.deps: dict[str, None] = {}
        """Dependencies of the task that is being written, in order."""
        self.is_plain = True
        """Whether its arguments are such that nothing could be wrong with them in the model."""
        self._functions: dict[Callable[..., Any], tuple[dict[str, Any], str | None]] = {}
        self._trees: dict[int, tuple[Any, Any, tuple[str, ...]]] = {}
        self._own_work = OwnWork()
        self._options: dict[int, tuple[Options, dict[str, Any]]] = {}

    def tasks(self) -> list[TaskSpec]:
        specs: list[TaskSpec] = []
        for node in self.nodes:  # grows while nodes are found inside payloads
            specs.extend(self.task(node))
        return specs

    def task(self, node: Node[Any]) -> list[TaskSpec]:
        """The task of a node, preceded by the one that decides its resources if there is one."""
        self.deps, self.is_plain = {}, True
        task, given, name = node._task, node._task.given, self.names[node]
        if isinstance(task, ShellTask):
            kwargs, self.is_plain = task.kwargs(node._values, node._keywords), False
        else:
            kwargs = {"cmd": "dagkit exec", "call": self.call(node, task.declaration.fn, name)}
        fields, before = self.fields(node, name)
        is_checked = self.is_plain and fields.keys().isdisjoint(_CHECKED_BY_TASK) and task_name_fault(name) is None
        for parent in given.after:
            self.deps[self.names.add(parent)] = None
        if given.when is not None:
            for parent in given.when.nodes():
                self.deps[self.names.add(parent)] = None
            fields["condition"] = conditions.write(given.when, self.names.__getitem__, self.deps)
            is_checked = False
        if self.deps:
            fields["depends_on"] = tuple(self.deps)
        template = self.names.template(node)
        if template != name or self.names.is_shared(node):
            fields["template"] = template
        make = TaskSpec.trusted if is_checked else TaskSpec
        return [*before, make(name=name, kwargs=kwargs, **fields)]

    # --- the call

    def call(self, node: Node[Any], fn: Callable[..., Any], name: str) -> dict[str, Any]:
        """`call` of a Python task, with a fingerprint of its own work where there is one."""
        function, identity = self.function(fn, node._task.declaration.name)
        count = len(node._values) - len(node._keywords)
        trees = [self.argument(node, index, value) for index, value in enumerate(node._values)]
        call: dict[str, Any] = dict(function)
        if count:
            call["args"] = trees[:count]
        if node._keywords:
            call["kwargs"] = dict(zip(node._keywords, trees[count:], strict=True))
        given = node._task.given
        if given.outputs:
            call["outputs"] = given.outputs
        if given.cache:
            call["cache"] = True
        if identity is not None:
            positions = {name: index for index, name in enumerate(self.deps)}
            work = f"{identity} {given.outputs} {count} {node._keywords}"
            digest = self._own_work.digest(work, node._values, functools.partial(self.place, positions))
            if digest is not None:
                call["fingerprint"] = digest
        return call

    def function(self, fn: Callable[..., Any], name: str) -> tuple[dict[str, Any], str | None]:
        """How a function travels and its fingerprint, found once for all its tasks."""
        if fn not in self._functions:
            reference, data = payload.dump_function(fn, name)
            where = {"function": reference} if data is None else {"pickle": self.put(data)}
            self._functions[fn] = (where, fingerprint.of_function(fn))
        return self._functions[fn]

    def argument(self, node: Node[Any], index: int, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN and (kind is not int or -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT):
            return value
        if kind is float and math.isfinite(value):
            return value
        if kind is str and len(value) < _MAX_PLAIN_TEXT and value.isascii():
            return value
        if isinstance(value, Promise):
            return values.ref_marker(self.ref(value))
        if kind is list and len(value) < _MAX_PLAIN_LIST and all(isinstance(item, Promise) for item in value):
            return [values.ref_marker(self.ref(item)) for item in value]
        self.is_plain = False
        if kind in ATOMS:
            return values.encode(value, ref_of=self.ref_of, put=self.put, where="")
        declaration = node._task.declaration
        where = _where(declaration, len(node._values), node._keywords, index)
        return self.tree(value, f"{self.names[node]}: argument {where!r}")

    def tree(self, value: Any, where: str) -> Any:
        """The argument tree of a value, made once for an object that several tasks share; notes its dependencies."""
        if isinstance(value, Promise):
            return values.ref_marker(self.ref(value))
        known = self._trees.get(id(value))
        if known is None:
            outer, self.deps = self.deps, {}
            tree = values.encode(value, ref_of=self.ref_of, put=self.put, where=where)
            known = self._trees[id(value)] = (value, tree, tuple(self.deps))
            self.deps = outer
        self.deps.update(dict.fromkeys(known[2]))
        return known[1]

    def ref_of(self, obj: object) -> values.Ref | None:
        return self.ref(obj) if isinstance(obj, Promise) else None

    def ref(self, promise: Promise) -> values.Ref:
        """Where the value of a node or ref comes from; notes the dependency."""
        node = promise._node
        if node not in self.names:  # inside an object that only its pickle shows
            for ancestor in with_ancestors([node]):
                if ancestor not in self.names:
                    self.nodes.append(ancestor)
                    self.names.add(ancestor)
        name = self.names[node]
        self.deps[name] = None
        return values.Ref(name, promise._path)

    def put(self, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.payloads[digest] = data
        return digest

    def place(self, positions: Mapping[str, int], promise: Promise) -> str:
        return f"{positions[self.names[promise._node]]}{promise._path}"

    # --- everything else

    def fields(self, node: Node[Any], name: str) -> tuple[dict[str, Any], list[TaskSpec]]:
        given, scope = node._task.given, node._scope
        known = self._options.get(id(given))
        if known is None:
            known = self._options[id(given)] = (given, _static_fields(given, name))
        fields = dict(known[1])
        if scope.default_queue is not None:
            fields.setdefault("queue", scope.default_queue)
        if callable(given.resources):
            before = self.resources_task(node, name)
            fields["resources"] = {"$ref": before.name}
            self.deps[before.name] = None
            return fields, [before]
        if given.resources:
            fields["resources"] = {
                key: self.tree(value, f"{name}: resources") for key, value in given.resources.items()
            }
        return fields, []

    def resources_task(self, node: Node[Any], name: str) -> TaskSpec:
        """A small task before the node's own, with the same arguments, that returns the resources."""
        deps = tuple(self.deps)
        call = self.call(node, node._task.given.resources, f"{name}.resources")
        call.pop("outputs", None)
        template = f"{self.names.template(node)}.resources"
        fields: dict[str, Any] = {"depends_on": deps} if deps else {}
        if template != f"{name}.resources":
            fields["template"] = template
        return TaskSpec(name=f"{name}.resources", kwargs={"cmd": "dagkit exec", "call": call}, **fields)


def _static_fields(given: Options, name: str) -> dict[str, Any]:
    """The fields of `TaskSpec` that follow from options alone; those at their defaults are left out."""
    fields = {
        "queue": given.queue,
        "dep_policy": None if given.dep_policy == "all" else given.dep_policy,
        "timeout_s": given.timeout,
        "num_retries": given.retries,
        "retry_delay_s": given.retry_delay_s(),
        "resource_scales": given.resource_scales and written_scales(given, name),
        "fallback_queues": given.fallback_queues,
        "expected_outputs": given.expected_outputs,
        "priority": given.priority,
    }
    return {key: value for key, value in fields.items() if value}


def _where(declaration: Declaration, count: int, keywords: tuple[str, ...], index: int) -> str:
    return declaration.signature.parameters(count, keywords)[index] or str(index)
