"""Sorts the tasks of a workflow into boxes: a template is one box, whatever its number of tasks.

A template whose tasks depend on one another (a chain of `step`, a lattice of `cell`) would make a box that
depends on itself; such a template gets one box a level instead. Linear in tasks and edges.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec

__all__ = ["Group", "Grouping", "group"]

_NUMBERED = re.compile(r"(.*?\D)[-_.]?\d+\Z", re.DOTALL)
_STEM_MIN = 4
MERGE_PREFIX = "__merge_"


class Group(NamedTuple):
    """Tasks that are drawn as one: what they are called, and their positions in the definition."""

    label: str
    members: list[int]


class Grouping(NamedTuple):
    """All groups, and the edges between them as (parent group, child group), without repetition."""

    groups: list[Group]
    edges: set[tuple[int, int]]


def group(spec: WorkflowSpec) -> Grouping:
    """Groups the tasks of a workflow; the merge nodes that a wide fan-in was split with are seen through."""
    names = [task.name for task in spec.tasks]
    labels = _labels(names, [task.template for task in spec.tasks])
    levels = spec.graph.depths()
    parents = _original_parents(names, spec.graph.order, spec.graph.parents)
    entangled = _entangled({(labels[p], labels[i]) for i in range(len(names)) for p in parents[i]})

    index: dict[object, int] = {}
    groups: list[Group] = []
    group_of = [-1] * len(names)
    for i, name in enumerate(names):
        if name.startswith(MERGE_PREFIX):
            continue
        key = (labels[i], levels[i]) if labels[i] in entangled else labels[i]
        if key not in index:
            index[key] = len(groups)
            groups.append(Group(labels[i][1], []))
        group_of[i] = index[key]
        groups[group_of[i]].members.append(i)
    edges = {(group_of[p], group_of[i]) for i in range(len(names)) if group_of[i] >= 0 for p in parents[i]}
    return Grouping(groups, edges)


Label = tuple[str, str]


def _labels(names: Sequence[str], templates: Sequence[str | None]) -> list[Label]:
    """(kind, text) of each task: its template, or the stem it shares with others (`fit-1 ... fit-9`), or its name."""
    stems = [_stem(name) for name in names]
    sizes = Counter(stem for stem, template in zip(stems, templates, strict=True) if template is None)
    return [
        ("template", template) if template else ("stem", stem) if sizes[stem] >= _STEM_MIN else ("task", name)
        for name, stem, template in zip(names, stems, templates, strict=True)
    ]


def _stem(name: str) -> str:
    match = _NUMBERED.match(name)
    return match[1].rstrip("-_.") or name if match else name


def _original_parents(
    names: Sequence[str], order: Sequence[int], parents: Sequence[Sequence[int]]
) -> Sequence[Sequence[int]]:
    """The parents of every task, with the parents of a merge node in its place."""
    merges = [name.startswith(MERGE_PREFIX) for name in names]
    if not any(merges):
        return parents
    seen_through: list[Sequence[int]] = [()] * len(names)
    for i in order:
        seen_through[i] = [q for p in parents[i] for q in (seen_through[p] if merges[p] else (p,))]
    return [() if merges[i] else found for i, found in enumerate(seen_through)]


def _entangled(edges: set[tuple[Label, Label]]) -> set[Label]:
    """Labels on a cycle, or between two cycles: what is left when sources and sinks are peeled off again and again."""
    left = {label for edge in edges for label in edge}
    for forwards in (True, False):
        left -= _peeled(left, [(a, b) if forwards else (b, a) for a, b in edges if a in left and b in left])
    return left


def _peeled(labels: set[Label], edges: list[tuple[Label, Label]]) -> set[Label]:
    waiting = dict.fromkeys(labels, 0)
    children = defaultdict(list)
    for a, b in edges:
        waiting[b] += 1
        children[a].append(b)
    free = [label for label in labels if not waiting[label]]
    for label in free:
        for child in children[label]:
            waiting[child] -= 1
            if not waiting[child]:
                free.append(child)
    return set(free)
