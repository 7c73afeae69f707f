"""Places boxes on levels, top to bottom: layering, crossing reduction by barycentres, then positions.

The method is Sugiyama's (K. Sugiyama, S. Tagawa, M. Toda, IEEE Trans. SMC 11, 1981). Positions within a level are the
least-squares ones that keep the order and the gaps (pool adjacent violators). No recursion; linear in boxes and edges
for each sweep but for sorting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dagkit.notebook.folding import levels_of

__all__ = ["Layout", "place"]

Point = tuple[float, float]

GAP_X, GAP_Y = 24.0, 38.0
BEND_WIDTH, BEND_WEIGHT, FIRM = 6.0, 8.0, 1000.0
ORDER_SWEEPS, POSITION_SWEEPS = 12, 24


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes, in the units of the sizes given; the origin is the top left.

    Attributes:
        corners: Top left of every box.
        routes: For every edge the points it passes: bottom of the parent, top and bottom of each level between, top
            of the child.
        levels: The level of every box, from 0.
    """

    corners: list[Point]
    routes: dict[tuple[int, int], list[Point]]
    levels: list[int]
    width: float
    height: float


def place(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lays out boxes of these (width, height) sizes along these (parent, child) edges, which have no cycle."""
    levels = _pulled_down(levels_of(len(sizes), edges), edges)
    net = _Net(levels, edges)
    net.reduce_crossings()
    widths = [width for width, _ in sizes] + [BEND_WIDTH] * (len(net.levels) - len(sizes))
    centres = _positions(net, widths)

    heights = [max(sizes[i][1] for i in row if i < len(sizes)) for row in net.rows]
    tops = [0.0]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    corners = [(centres[i] - widths[i] / 2, tops[levels[i]]) for i in range(len(sizes))]
    routes = {
        (a, b): [
            (centres[a], tops[levels[a]] + sizes[a][1]),
            *(
                (centres[bend], y)
                for bend in net.bends[a, b]
                for y in (tops[net.levels[bend]], tops[net.levels[bend]] + heights[net.levels[bend]])
            ),
            (centres[b], tops[levels[b]]),
        ]
        for a, b in edges
    }
    width = max((centres[i] + widths[i] / 2 for i in range(len(centres))), default=0.0)
    return Layout(corners, routes, levels, width, max(tops[-1] - GAP_Y, 0.0))


def _pulled_down(levels: list[int], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Roots move to just above their children; the first level stays occupied."""
    nearest: dict[int, int] = {}
    for a, b in edges:
        nearest[a] = min(nearest.get(a, levels[b]), levels[b])
    has_parent = {b for _, b in edges}
    return [nearest[i] - 1 if i in nearest and i not in has_parent else level for i, level in enumerate(levels)]


class _Net:
    """Boxes and bends in rows: an edge that skips levels has a bend on each, shared by all edges of its parent."""

    def __init__(self, levels: Sequence[int], edges: Sequence[tuple[int, int]]) -> None:
        self.boxes = len(levels)
        self.levels = list(levels)
        self.above: list[list[int]] = [[] for _ in levels]
        self.below: list[list[int]] = [[] for _ in levels]
        self.bends: dict[tuple[int, int], list[int]] = {}
        trunk: dict[tuple[int, int], int] = {}
        for a, b in edges:
            path = [a]
            for level in range(self.levels[a] + 1, self.levels[b]):
                if (a, level) not in trunk:
                    trunk[a, level] = self._add_bend(level, path[-1])
                path.append(trunk[a, level])
            self.bends[a, b] = path[1:]
            self._join(path[-1], b)
        self.rows: list[list[int]] = [[] for _ in range(max(self.levels, default=-1) + 1)]
        for i, level in enumerate(self.levels):
            self.rows[level].append(i)

    def _add_bend(self, level: int, parent: int) -> int:
        self.levels.append(level)
        self.above.append([])
        self.below.append([])
        self._join(parent, len(self.levels) - 1)
        return len(self.levels) - 1

    def _join(self, a: int, b: int) -> None:
        self.below[a].append(b)
        self.above[b].append(a)

    def reduce_crossings(self) -> None:
        """Sorts each row by the mean place of its neighbours, down and up in turn, and keeps the best order met."""
        best, fewest = [list(row) for row in self.rows], self.crossings()
        for sweep in range(ORDER_SWEEPS):
            if not fewest:
                break
            downwards = sweep % 2 == 0
            self._sort_rows(downwards)
            crossings = self.crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _sort_rows(self, downwards: bool) -> None:
        neighbours = self.above if downwards else self.below
        place = self._places()
        for row in self.rows if downwards else reversed(self.rows):
            row.sort(key=lambda i: _mean([place[n] for n in neighbours[i]], otherwise=place[i]))
            place.update((i, at) for at, i in enumerate(row))

    def _places(self) -> dict[int, float]:
        return {i: float(at) for row in self.rows for at, i in enumerate(row)}

    def crossings(self) -> int:
        """How many pairs of edges cross between neighbouring rows."""
        place = self._places()
        total = 0
        for row in self.rows:
            seen: list[float] = []
            for i in row:
                ends = sorted(place[child] for child in self.below[i])
                total += sum(len(seen) - bisect_left(seen, end + 0.5) for end in ends)
                for end in ends:
                    insort(seen, end)
        return total


def _positions(net: _Net, widths: Sequence[float]) -> list[float]:
    """The centre of every box and bend: near the mean of its neighbours, in the order of its row, without overlap."""
    centres = [0.0] * len(widths)
    for row in net.rows:
        at = 0.0
        for i in row:
            centres[i] = at + widths[i] / 2
            at += widths[i] + GAP_X
    weights = [1.0] * net.boxes + [BEND_WEIGHT] * (len(widths) - net.boxes)
    for sweep in range(POSITION_SWEEPS):
        last = sweep >= POSITION_SWEEPS - 6
        for row in net.rows if sweep % 2 == 0 else reversed(net.rows):
            wanted = [_wanted(i, net, centres, weights, both=last, downwards=sweep % 2 == 0) for i in row]
            spread = _spread(wanted, [widths[i] for i in row], [weights[i] for i in row])
            for i, centre in zip(row, spread, strict=True):
                centres[i] = centre
    _straighten(net, centres, widths)
    left = min((centre - width / 2 for centre, width in zip(centres, widths, strict=True)), default=0.0)
    return [centre - left for centre in centres]


def _straighten(net: _Net, centres: list[float], widths: Sequence[float]) -> None:
    """A box with one neighbour stands straight below or above it if there is room: the sweeps end a few pixels off."""
    for row in (*net.rows, *reversed(net.rows)):
        straight = [_only_neighbour(net, i) for i in row]
        wanted = [centres[i] if other is None else centres[other] for i, other in zip(row, straight, strict=True)]
        weights = [FIRM if other is None else 1.0 for other in straight]
        for i, centre in zip(row, _spread(wanted, [widths[i] for i in row], weights), strict=True):
            centres[i] = centre


def _only_neighbour(net: _Net, i: int) -> int | None:
    neighbours = net.above[i] + net.below[i]
    return neighbours[0] if len(neighbours) == 1 and i < net.boxes else None


def _wanted(
    i: int, net: _Net, centres: Sequence[float], weights: Sequence[float], *, both: bool, downwards: bool
) -> float:
    """The mean place of the neighbours; from a bend, other bends weigh more, so that long edges run straight."""
    above, below = net.above[i], net.below[i]
    neighbours = above + below if both else (above or below) if downwards else (below or above)
    if i < net.boxes or not neighbours:
        return _mean([centres[n] for n in neighbours], otherwise=centres[i])
    return sum(weights[n] * centres[n] for n in neighbours) / sum(weights[n] for n in neighbours)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(wanted: Sequence[float], widths: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The centres closest to the wanted ones (least squares) that keep order and gaps: pool adjacent violators."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + left / 2 + GAP_X + right / 2)
    pools: list[tuple[float, float, int]] = []
    for want, offset, weight in zip(wanted, offsets, weights, strict=True):
        total, mass, count = weight * (want - offset), weight, 1
        while pools and pools[-1][0] / pools[-1][1] > total / mass:
            total, mass, count = total + pools[-1][0], mass + pools[-1][1], count + pools[-1][2]
            pools.pop()
        pools.append((total, mass, count))
    base = [total / mass for total, mass, count in pools for _ in range(count)]
    return [b + offset for b, offset in zip(base, offsets, strict=True)]
