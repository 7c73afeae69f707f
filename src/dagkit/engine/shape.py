"""A workflow definition as the engine uses it: integer-indexed and with merge nodes resolved. It never changes."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagkit.engine.policy import MERGE, need_of
from dagkit.engine.ready import Lane, ReadyTasks
from dagkit.engine.scaling import runtime_of
from dagkit.model.graph import Graph

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["Shape", "is_merge", "limited_tasks"]


_MAX_GROUPS: Final = 300


def is_merge(kwargs: Mapping[str, Any]) -> bool:
    """Whether a task with these kwargs is a merge node of a wide fan-in (facts: jobq, section 14)."""
    return kwargs.get("__batch_merge") is True


@dataclass(frozen=True, slots=True)
class Shape:
    """Tasks by position in the definition; sparse facts are dictionaries that hold only the tasks concerned.

    Attributes:
        parents: What a policy is about. The target of a wide fan-in has its original parents here.
        children: The reverse of `parents`; a merge node is a child of the members of its batch.
        held: Merge node -> tasks that are not dispatched before it has ended.
        barriers: Task -> how many merge nodes hold it.
        needs: Per task, the policy as `policy.need_of` puts it.
        sinks: Tasks nobody depends on, merge nodes aside.
        timeouts: Per task, seconds; 0 for none.
        runtimes: Task -> seconds that it asks for, where it does.
        limited: Task -> its template, where templates have limits.
        scaled: Tasks that declare how their resources grow.
        fallbacks: Queues that some task may be moved to.
        groups: What is counted apart for those who look at the run: templates, and tasks that have none; empty if they
            are too many to be told with every save.
        group_of: Per task, its place in `groups`; merge nodes have one too, and are not counted.
    """

    spec: WorkflowSpec
    names: list[str]
    index: Mapping[str, int]
    parents: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]
    held: dict[int, list[int]]
    barriers: dict[int, int]
    merges: frozenset[int]
    needs: array[int]
    sinks: Sequence[int]
    retries: array[int]
    timeouts: array[int]
    runtimes: dict[int, float]
    delays: dict[int, tuple[float, ...]]
    conditions: dict[int, str]
    limited: dict[int, str]
    scaled: frozenset[int]
    fallbacks: frozenset[str]
    queues: list[str]
    groups: tuple[str, ...] = ()
    group_of: Sequence[int] = ()

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Shape:
        tasks, index = spec.tasks, spec.index
        merges = frozenset([i for i, task in enumerate(tasks) if task.name[:2] == "__" and is_merge(task.kwargs)])
        links = _Links.resolved(spec, merges) if merges else _Links.plain(spec.graph)
        needs = array("l", [need_of(task.dep_policy, len(links.parents[i])) for i, task in enumerate(tasks)])
        for merge in merges:
            needs[merge] = MERGE
        default_s = spec.default_task_timeout_s or 0
        groups, group_of = _groups(tasks)
        return cls(
            spec=spec,
            names=[task.name for task in tasks],
            index=index,
            parents=links.parents,
            children=links.children,
            held=links.held,
            barriers=links.barriers,
            merges=merges,
            needs=needs,
            sinks=links.sinks,
            retries=array("l", [task.num_retries for task in tasks]),
            timeouts=array("l", [task.timeout_s or default_s for task in tasks]),
            runtimes={i: runtime for i, task in enumerate(tasks) if (runtime := runtime_of(task.resources))},
            delays={i: _delays(task) for i, task in enumerate(tasks) if task.retry_delay_s is not None},
            conditions={i: task.condition for i, task in enumerate(tasks) if task.condition is not None},
            limited=limited_tasks(spec, spec.concurrency),
            scaled=frozenset([i for i, task in enumerate(tasks) if task.resource_scales]),
            fallbacks=frozenset([queue for task in tasks for queue in task.fallback_queues]),
            queues=[task.queue or spec.default_queue for task in tasks],
            groups=groups,
            group_of=group_of,
        )

    def ready_tasks(self, limited: Mapping[int, str] | None = None) -> ReadyTasks:
        """An empty set of ready tasks with the lanes of this definition, or of other limits of templates."""
        numbers: dict[tuple[str, str | None], int] = {}
        get, new = (self.limited if limited is None else limited).get, numbers.setdefault
        lane_of = array("l", [new((queue, get(task)), len(numbers)) for task, queue in enumerate(self.queues)])
        priorities = [task.priority for task in self.spec.tasks]
        return ReadyTasks([Lane(*lane) for lane in numbers], lane_of, priorities if any(priorities) else None)


def limited_tasks(spec: WorkflowSpec, templates: Collection[str]) -> dict[int, str]:
    """Task -> its template, of the tasks whose template is among these."""
    if not templates:
        return {}
    return {i: name for i, task in enumerate(spec.tasks) if (name := task.template or task.name) in templates}


def _groups(tasks: Sequence[TaskSpec]) -> tuple[tuple[str, ...], Sequence[int]]:
    """Templates with their places, and the place of every task; nothing if there are too many."""
    places: dict[str, int] = {}
    new = places.setdefault
    group_of = array("l", [new(task.template or task.name, len(places)) for task in tasks])
    return (tuple(places), group_of) if len(places) <= _MAX_GROUPS else ((), ())


def _delays(task: TaskSpec) -> tuple[float, ...]:
    delay = task.retry_delay_s
    return tuple(delay) if isinstance(delay, tuple | list) else (float(delay or 0),)


@dataclass(frozen=True, slots=True)
class _Links:
    parents: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]
    sinks: Sequence[int]
    held: dict[int, list[int]]
    barriers: dict[int, int]

    @classmethod
    def plain(cls, graph: Graph) -> _Links:
        return cls(graph.parents, graph.children, graph.sinks, {}, {})

    @classmethod
    def resolved(cls, spec: WorkflowSpec, merges: frozenset[int]) -> _Links:
        """The graph before it was cut into batches, with the barriers beside it."""
        tasks, index = spec.tasks, spec.index
        members = {merge: [p for p in spec.graph.parents[merge] if p not in merges] for merge in sorted(merges)}
        batches: dict[str, list[tuple[int, int]]] = {}
        for merge in members:
            kwargs = tasks[merge].kwargs
            batches.setdefault(kwargs["__target"], []).append((kwargs["__batch"], merge))
        parents = [tuple([p for p in above if p not in merges]) for above in spec.graph.parents]
        held: dict[int, list[int]] = {}
        for merge in members:
            held[merge] = [task for task in spec.graph.children[merge] if task not in merges]
        for target, batch in batches.items():
            order = [merge for _, merge in sorted(batch)]
            parents[index[target]] = tuple([p for merge in order for p in members[merge]])
        original = Graph.from_parents([() if task in merges else above for task, above in enumerate(parents)])
        children = [list(below) for below in original.children]
        for merge, above in members.items():
            parents[merge] = tuple(above)
            for member in above:
                children[member].append(merge)
        barriers: dict[int, int] = {}
        for below in held.values():
            for task in below:
                barriers[task] = barriers.get(task, 0) + 1
        sinks = [task for task in original.sinks if task not in merges]
        return cls(parents, children, sinks, held, barriers)
