from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dagkit.notebook.layout import GAP_X, place

sizes = st.lists(st.tuples(st.integers(40, 300), st.integers(20, 80)), min_size=1, max_size=40)


def forward(n):
    return st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=80)


graphs = sizes.flatmap(lambda boxes: st.tuples(st.just(boxes), forward(len(boxes))))


@given(graphs)
def test_boxes_do_not_overlap_and_edges_go_down(graph):
    boxes, edges = graph

    layout = place(boxes, sorted(edges))

    for level in set(layout.levels):
        row = sorted(i for i, found in enumerate(layout.levels) if found == level)
        row.sort(key=lambda i: layout.corners[i][0])
        for left, right in itertools.pairwise(row):
            assert layout.corners[left][0] + boxes[left][0] + GAP_X <= layout.corners[right][0] + 1e-6
    for points in layout.routes.values():
        assert all(above[1] <= below[1] for above, below in itertools.pairwise(points))
    assert all(
        x >= -1e-6 and x + w <= layout.width + 1e-6 for (x, _), (w, _) in zip(layout.corners, boxes, strict=True)
    )
    assert all(y + h <= layout.height + 1e-6 for (_, y), (_, h) in zip(layout.corners, boxes, strict=True))


def test_a_chain_stands_in_one_column():
    layout = place([(100, 40)] * 5, [(i, i + 1) for i in range(4)])

    assert len({x for x, _ in layout.corners}) == 1


def test_crossings_that_need_not_be_are_removed():
    layout = place([(100, 40)] * 4, [(0, 3), (1, 2)])

    (x0, _), (x1, _), (x2, _), (x3, _) = layout.corners
    assert (x0 < x1) == (x3 < x2)


def test_a_late_root_stands_just_above_its_child():
    layout = place([(100, 40)] * 5, [(0, 1), (1, 2), (2, 3), (4, 3)])

    assert layout.levels == [0, 1, 2, 3, 2]


def test_a_long_edge_passes_beside_the_boxes_between():
    layout = place([(100, 40)] * 3, [(0, 1), (1, 2), (0, 2)])

    x = [point[0] for point in layout.routes[0, 2]][1]
    left = layout.corners[1][0]
    assert x < left or x > left + 100


def test_a_box_with_one_neighbour_stands_straight_below_it_if_there_is_room():
    """prepare, train, (compare, report), deploy below compare: it stood seven pixels to the right."""
    layout = place([(180, 40), (200, 54), (180, 56), (180, 40), (170, 56)], [(0, 1), (1, 2), (1, 3), (2, 4)])

    centres = [x + w / 2 for (x, _), w in zip(layout.corners, (180, 200, 180, 180, 170), strict=True)]
    assert abs(centres[4] - centres[2]) < 0.5
    assert abs(centres[0] - centres[1]) < 0.5
