from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagkit.notebook.folding import CHAIN_HEAD, CHAIN_TAIL, MAX_EDGES, MAX_LEVELS, MAX_WIDTH, fold, levels_of


def path(length):
    return {(i, i + 1) for i in range(length - 1)}


def test_a_small_graph_is_left_alone():
    folded = fold([1, 1, 1], {(0, 1), (0, 2)})

    assert folded.bundles == [[0], [1], [2]]
    assert folded.edges == {(0, 1), (0, 2)}


def test_a_long_chain_keeps_its_ends():
    folded = fold([1] * 10_000, path(10_000))

    assert [len(bundle) for bundle in folded.bundles] == [1] * CHAIN_HEAD + [9_995] + [1] * CHAIN_TAIL
    assert folded.edges == path(6)


def test_a_chain_between_a_fork_and_a_join_is_folded_too():
    inner = path(40)
    folded = fold([1] * 42, inner | {(0, 40), (40, 39), (41, 0)})

    assert sum(len(bundle) > 1 for bundle in folded.bundles) == 1
    assert sum(map(len, folded.bundles)) == 42


def test_a_wide_level_keeps_its_largest_boxes():
    sizes = [1] * 50 + [99]
    folded = fold(sizes, set())

    assert len(folded.bundles) == MAX_WIDTH
    assert [50] in folded.bundles
    assert [0] in folded.bundles


def test_edges_that_paths_imply_are_left_out_where_all_would_be_black():
    count = 40
    dense = {(a, b) for a in range(count) for b in range(a + 1, count)}

    assert len(fold([1] * 30, {(a, b) for a, b in dense if b < 30}).edges) == 29
    assert len(dense) > MAX_EDGES


dags = st.integers(1, 120).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=300),
    )
)


@given(dags)
def test_folding_keeps_every_box_once_stays_acyclic_and_bounded(dag):
    count, edges = dag

    folded = fold([1] * count, edges)

    assert sorted(i for bundle in folded.bundles for i in bundle) == list(range(count))
    levels = levels_of(len(folded.bundles), folded.edges)
    assert all(levels[a] < levels[b] for a, b in folded.edges)
    assert max(levels) < MAX_LEVELS
    assert max(map(levels.count, levels)) <= MAX_WIDTH
