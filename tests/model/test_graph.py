"""Graphs of any shape and size, without recursion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagkit.model.graph import Graph, find_cycles


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Parents per task, in a shuffled order of definition."""
    size = draw(st.integers(1, 12))
    position = draw(st.permutations(range(size)))
    parents: list[tuple[int, ...]] = [()] * size
    for task in range(size):
        above = draw(st.lists(st.integers(0, task - 1), unique=True, max_size=3)) if task else []
        parents[position[task]] = tuple(position[parent] for parent in above)
    return parents


@st.composite
def digraphs(draw: st.DrawFn) -> list[tuple[int, ...]]:
    size = draw(st.integers(1, 8))
    return [tuple(draw(st.lists(st.integers(0, size - 1), unique=True, max_size=3))) for _ in range(size)]


@given(dags())
def test_the_order_has_every_task_after_its_dependencies(parents: list[tuple[int, ...]]) -> None:
    graph = Graph.from_parents(parents)

    place = {task: at for at, task in enumerate(graph.order)}
    assert sorted(graph.order) == list(range(len(parents)))
    assert all(place[parent] < place[task] for task, above in enumerate(parents) for parent in above)
    assert graph.is_acyclic
    assert find_cycles(graph) == []


@given(dags())
def test_children_mirror_parents_in_definition_order(parents: list[tuple[int, ...]]) -> None:
    graph = Graph.from_parents(parents)

    edges = {(parent, task) for task, above in enumerate(parents) for parent in above}
    assert {(parent, child) for parent, below in enumerate(graph.children) for child in below} == edges
    assert all(below == sorted(below) for below in graph.children)
    assert graph.sinks == [task for task, below in enumerate(graph.children) if not below]
    assert graph.roots == [task for task, above in enumerate(parents) if not above]


@given(dags())
def test_depth_is_one_more_than_the_deepest_dependency(parents: list[tuple[int, ...]]) -> None:
    depths = Graph.from_parents(parents).depths()

    assert depths == [1 + max((depths[parent] for parent in above), default=-1) for above in parents]


@given(digraphs())
def test_cycles_are_found_exactly_and_hold_members_only(parents: list[tuple[int, ...]]) -> None:
    graph = Graph.from_parents(parents)

    cycles = find_cycles(graph)

    on_a_cycle = {task for task in range(len(parents)) if task in graph.descendants([task])}
    assert bool(cycles) is bool(on_a_cycle) is (not graph.is_acyclic)
    for cycle in cycles:
        assert len(set(cycle)) == len(cycle)
        assert all(after in parents[task] for task, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    reached = {other for cycle in cycles for other in {*graph.descendants([cycle[0]])} & {*graph.ancestors([cycle[0]])}}
    assert reached == on_a_cycle


def test_what_hangs_below_or_between_cycles_is_in_none() -> None:
    #     0 <-> 1 -> 2 -> 3 <-> 4 -> 5
    graph = Graph.from_parents([(1,), (0,), (1,), (2, 4), (3,), (4,)])

    assert find_cycles(graph) == [[0, 1], [3, 4]]


def test_a_chain_of_a_hundred_thousand_is_no_problem() -> None:
    size = 100_000
    graph = Graph.from_parents([(task - 1,) if task else () for task in range(size)])

    assert graph.order == list(range(size))
    assert graph.depths()[-1] == size - 1
    assert len(graph.descendants([0])) == size - 1
    assert len(graph.ancestors([size - 1])) == size - 1


def test_a_cycle_of_a_hundred_thousand_with_a_tail_is_found_quickly() -> None:
    size = 100_000
    parents: list[tuple[int, ...]] = [((task - 1) % size,) for task in range(size)]
    parents += [(task - 1,) for task in range(size, 2 * size)]

    (cycle,) = find_cycles(Graph.from_parents(parents))

    assert len(cycle) == size
