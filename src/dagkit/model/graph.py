"""The dependency graph of a workflow as integer indexes. Nothing here recurses: a chain of 100,000 tasks is fine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Graph", "find_cycles"]


class _HasDependencies(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def depends_on(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks by position in the definition.

    Attributes:
        parents: Per task, its dependencies in the order in which it lists them.
        children: Per task, who depends on it, in definition order.
        roots: Tasks without dependencies, in definition order.
        sinks: Tasks nobody depends on, in definition order.
        order: Every task after its dependencies; among those that could come next, the first to become possible.
            Shorter than `parents` if there is a cycle.
    """

    parents: list[tuple[int, ...]]
    children: list[list[int]]
    roots: list[int]
    sinks: list[int]
    order: list[int]

    @classmethod
    def of(cls, tasks: Sequence[_HasDependencies], index: Mapping[str, int]) -> Graph:
        """The graph of tasks whose dependencies are all in `index`."""
        return cls.from_parents([tuple([index[name] for name in task.depends_on]) for task in tasks])

    @classmethod
    def from_parents(cls, parents: list[tuple[int, ...]]) -> Graph:
        children: list[list[int]] = [[] for _ in parents]
        for child, above in enumerate(parents):
            for parent in above:
                children[parent].append(child)
        roots = [task for task, above in enumerate(parents) if not above]
        sinks = [task for task, below in enumerate(children) if not below]
        return cls(parents, children, roots, sinks, _order(parents, children, roots))

    @property
    def is_acyclic(self) -> bool:
        return len(self.order) == len(self.parents)

    def descendants(self, tasks: Sequence[int]) -> list[int]:
        """Everything that depends on one of `tasks`, directly or not; sorted."""
        return _reachable(tasks, self.children)

    def ancestors(self, tasks: Sequence[int]) -> list[int]:
        """Everything that one of `tasks` depends on, directly or not; sorted."""
        return _reachable(tasks, self.parents)

    def depths(self) -> list[int]:
        """Per task, the length of the longest chain of dependencies above it; 0 for roots."""
        depth = [0] * len(self.parents)
        for task in self.order:
            if above := self.parents[task]:
                depth[task] = 1 + max([depth[parent] for parent in above])
        return depth


def _order(parents: Sequence[Sequence[int]], children: Sequence[Sequence[int]], roots: Sequence[int]) -> list[int]:
    waiting = [len(above) for above in parents]
    order = list(roots)
    for task in order:
        for child in children[task]:
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    return order


def _reachable(start: Sequence[int], neighbours: Sequence[Sequence[int]]) -> list[int]:
    seen: set[int] = set()
    stack = list(start)
    while stack:
        for other in neighbours[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return sorted(seen)


def find_cycles(graph: Graph) -> list[list[int]]:
    """One list of members per group of tasks that depend on each other; each member depends on the next.

    Members only: what merely hangs below a cycle is in none of them. In a group of several intertwined cycles, a
    shortest cycle through the group's first task stands for it.
    """
    ordered = set(graph.order)
    rest = [task for task in range(len(graph.parents)) if task not in ordered]
    groups = _mutually_reachable(rest, graph)
    cycles = [_shortest_cycle(min(group), graph.parents, group) for group in groups]
    return sorted(filter(None, cycles), key=lambda cycle: cycle[0])


def _mutually_reachable(tasks: Sequence[int], graph: Graph) -> list[set[int]]:
    """Strongly connected components by Kosaraju's two passes, with explicit stacks."""
    unassigned = set(tasks)
    groups = []
    for task in reversed(_by_finish(tasks, graph.children)):
        if task not in unassigned:
            continue
        group, stack = {task}, [task]
        unassigned.discard(task)
        while stack:
            for parent in graph.parents[stack.pop()]:
                if parent in unassigned:
                    unassigned.discard(parent)
                    group.add(parent)
                    stack.append(parent)
        groups.append(group)
    return groups


def _by_finish(tasks: Sequence[int], children: Sequence[Sequence[int]]) -> list[int]:
    """Tasks in the order in which a depth-first walk down is done with them."""
    entered: set[int] = set()
    finished = []
    for root in tasks:
        stack = [(root, iter(children[root]))] if root not in entered else []
        entered.add(root)
        while stack:
            task, below = stack[-1]
            child = next((child for child in below if child not in entered), None)
            if child is None:
                finished.append(task)
                stack.pop()
            else:
                entered.add(child)
                stack.append((child, iter(children[child])))
    return finished


def _shortest_cycle(start: int, parents: Sequence[Sequence[int]], within: set[int]) -> list[int]:
    """From `start` up to dependencies and back, breadth first; empty if there is no way back."""
    came_from: dict[int, int] = {}
    queue = [start]
    for task in queue:
        for parent in parents[task]:
            if parent == start:
                return _path(task, start, came_from)
            if parent in within and parent not in came_from:
                came_from[parent] = task
                queue.append(parent)
    return []


def _path(end: int, start: int, came_from: Mapping[int, int]) -> list[int]:
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]
