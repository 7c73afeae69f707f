"""Keeps a drawing small: what a reader would not read one by one becomes a box that says how much it stands for.

Three steps, each of which leaves the graph acyclic: the middle of a long chain, the middle levels of a deep graph,
the surplus of a wide level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Folded", "fold", "levels_of"]

Edges = set[tuple[int, int]]

MAX_CHAIN, CHAIN_HEAD, CHAIN_TAIL = 12, 3, 2
MAX_LEVELS, LEVELS_HEAD, LEVELS_TAIL = 30, 12, 8
MAX_WIDTH = 10
MAX_EDGES = 400


class Folded(NamedTuple):
    """What each remaining box stands for (indexes of the original boxes), and the edges between the remaining ones."""

    bundles: list[list[int]]
    edges: Edges


def fold(sizes: Sequence[int], edges: Edges) -> Folded:
    """Bundles boxes until at most MAX_LEVELS levels of MAX_WIDTH boxes are left.

    Args:
        sizes: How many tasks each box holds; of a level that is too wide the largest stay.
        edges: (parent, child) between boxes, acyclic.
    """
    state = Folded([[i] for i in range(len(sizes))], edges)
    state = _bundle(state, _long_chains(len(state.bundles), state.edges))
    state = _bundle(state, _middle_levels(len(state.bundles), state.edges))
    weights = [sum(sizes[i] for i in bundle) for bundle in state.bundles]
    state = _bundle(state, _wide_levels(weights, state.edges))
    return state if len(state.edges) <= MAX_EDGES else Folded(state.bundles, _reduced(len(state.bundles), state.edges))


def _bundle(state: Folded, runs: Iterable[Sequence[int]]) -> Folded:
    """Makes one box of each run; boxes keep the order of their first members."""
    leader = list(range(len(state.bundles)))
    for run in runs:
        for i in run:
            leader[i] = run[0]
    index = {old: new for new, old in enumerate(sorted(set(leader)))}
    bundles: list[list[int]] = [[] for _ in index]
    for i, bundle in enumerate(state.bundles):
        bundles[index[leader[i]]].extend(bundle)
    edges = {(index[leader[a]], index[leader[b]]) for a, b in state.edges if leader[a] != leader[b]}
    return Folded(bundles, edges)


def _neighbours(count: int, edges: Edges) -> tuple[list[list[int]], list[list[int]]]:
    parents: list[list[int]] = [[] for _ in range(count)]
    children: list[list[int]] = [[] for _ in range(count)]
    for a, b in sorted(edges):
        parents[b].append(a)
        children[a].append(b)
    return parents, children


def levels_of(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """The level of each box: one more than the deepest of its parents; 0 for roots."""
    parents, children = _neighbours(count, set(edges))
    waiting = [len(p) for p in parents]
    levels = [0] * count
    order = [i for i in range(count) if not waiting[i]]
    for i in order:
        for child in children[i]:
            levels[child] = max(levels[child], levels[i] + 1)
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    return levels


def _long_chains(count: int, edges: Edges) -> list[list[int]]:
    """The middles of runs in which every box has one parent and one child."""
    parents, children = _neighbours(count, edges)

    def follows(i: int) -> bool:
        return len(parents[i]) == 1 and len(children[parents[i][0]]) == 1

    middles = []
    for start in range(count):
        if follows(start):
            continue
        run = [start]
        while len(children[run[-1]]) == 1 and follows(children[run[-1]][0]):
            run.append(children[run[-1]][0])
        if len(run) > MAX_CHAIN:
            middles.append(run[CHAIN_HEAD:-CHAIN_TAIL])
    return middles


def _middle_levels(count: int, edges: Edges) -> list[list[int]]:
    levels = levels_of(count, edges)
    depth = max(levels, default=0) + 1
    if depth <= MAX_LEVELS:
        return []
    return [[i for i in range(count) if LEVELS_HEAD <= levels[i] < depth - LEVELS_TAIL]]


def _wide_levels(weights: Sequence[int], edges: Edges) -> list[list[int]]:
    """The smallest boxes of each level that has too many; among equals the later ones."""
    at_level = defaultdict(list)
    for i, level in enumerate(levels_of(len(weights), edges)):
        at_level[level].append(i)
    return [
        sorted(sorted(boxes, key=lambda i: (-weights[i], i))[MAX_WIDTH - 1 :])
        for boxes in at_level.values()
        if len(boxes) > MAX_WIDTH
    ]


def _reduced(count: int, edges: Edges) -> Edges:
    """The edges that no longer path implies; a drawing with every one of them would be black."""
    levels = levels_of(count, edges)
    parents, _ = _neighbours(count, edges)
    above = [0] * count
    kept: Edges = set()
    for i in sorted(range(count), key=levels.__getitem__):
        for p in sorted(parents[i], key=levels.__getitem__, reverse=True):
            if not above[i] >> p & 1:
                kept.add((p, i))
                above[i] |= above[p] | 1 << p
    return kept
