"""Nodes and refs: what they stand for, and what they refuse to be."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dagkit import task, workflow
from dagkit.errors import TracingError
from dagkit.flow import flow_of
from dagkit.trace import MAX_SNAPSHOT, Node, Ref, nodes_in, snapshot


@task
def load(path: Any = "x") -> Any:
    return path


@task
def use(*items: Any, **named: Any) -> Any:
    return items, named


MISUSES = {
    "truth": lambda node: bool(node),
    "and": lambda node: node and 1,
    "length": lambda node: len(node),
    "iteration": lambda node: list(node),
    "unpacking": lambda node: [*node],
    "membership": lambda node: 1 in node,
    "addition": lambda node: node + 1,
    "addition from the right": lambda node: 1 + node,
    "subtraction": lambda node: node - 1,
    "division": lambda node: 1 / node,
    "power": lambda node: node**2,
    "matrix product": lambda node: node @ node,
    "negation": lambda node: -node,
    "absolute": lambda node: abs(node),
    "f-string": lambda node: f"{node}",
    "f-string with a format": lambda node: f"{node:>10}",
    "str.format": lambda node: "{}".format(node),  # noqa: UP032 - the old way is what is tested
    "range": lambda node: range(node),
    "index": lambda node: [1, 2, 3][node],
    "int": lambda node: int(node),
    "float": lambda node: float(node),
    "round": lambda node: round(node),
    "path": lambda node: os.fspath(node),
    "call": lambda node: node(1),
    "slice": lambda node: node[1:2],
    "key that is a node": lambda node: node[node],
    "attribute": lambda node: node.mean,
    "pickling": lambda node: __import__("pickle").dumps(node),
}


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
@pytest.mark.parametrize("make", [load, lambda: load()["a"]], ids=["node", "ref"])
def test_a_promise_used_as_a_value_names_task_and_source_line(misuse: Any, make: Any) -> None:
    promise = make()

    with pytest.raises(TracingError) as caught:
        misuse(promise)

    assert "load" in str(caught.value)
    assert "test_trace.py:" in str(caught.value)


def test_the_message_quotes_the_line_that_made_the_node_and_says_what_to_do() -> None:
    model = load("features.parquet")

    with pytest.raises(TracingError, match=r'`model = load\("features.parquet"\)`.*when='):
        bool(model)


@pytest.mark.parametrize(
    "name", ["_repr_html_", "_repr_mimebundle_", "_ipython_display_", "__array__", "__dataframe__", "_ipython_canary_x"]
)
def test_probes_of_other_libraries_find_nothing(name: str) -> None:
    assert not hasattr(load(), name)
    assert not hasattr(load()["x"], name)


def test_an_unknown_attribute_is_both_kinds_of_error() -> None:
    with pytest.raises(AttributeError, match=r'node\["mean"\]'):
        load().mean  # noqa: B018

    assert not hasattr(load(), "name")


def test_keys_of_refs_may_be_text_and_integers_of_any_make() -> None:
    ref = load()["a"][0][np.int64(2)][-1]

    assert isinstance(ref, Ref)
    assert ref._path == ("a", 0, 2, -1)
    assert type(ref._path[2]) is int


@pytest.mark.parametrize("key", [True, 1.5, None, slice(1), ("a", "b")])
def test_other_keys_are_refused(key: Any) -> None:
    with pytest.raises(TracingError, match="no key of a ref"):
        load()[key]


def test_nodes_hash_and_compare_by_identity_in_containers() -> None:
    first, second = load(1), load(2)

    assert len({first, second, first}) == 2
    assert first in [first, second]
    with pytest.raises(TracingError, match="with `is`"):
        assert second in [first]
    with pytest.raises(TracingError, match="with `is`"):
        [first].index(second)


def test_nodes_survive_copying_as_themselves() -> None:
    node = load()

    assert copy.copy(node) is node
    assert copy.deepcopy([node])[0] is node


def test_a_node_may_lie_in_a_numpy_array_of_objects() -> None:
    node = load()
    array = np.empty(1, dtype=object)
    array[0] = node

    assert list(nodes_in([array.tolist()], set())) == [node]


def test_unpacking_gives_as_many_refs_as_the_task_declares() -> None:
    @task(outputs=2)
    def split(x: int) -> Any:
        return x, x

    first, second = split(1)

    assert (first._path, second._path) == ((0,), (1,))
    assert len(split(1)) == 2
    with pytest.raises(ValueError, match="too many values"):
        (_,) = split(1)


def test_repr_and_print_of_promises_work() -> None:
    assert "load" in repr(load())
    assert "load['a'][0]" in str(load()["a"][0])


# --- where nodes go


def test_nodes_at_the_prompt_belong_to_no_workflow() -> None:
    load("outside")

    with workflow("inside") as flow:
        load("in")

    assert [task.name for task in flow.spec.tasks] == ["load"]
    assert len(flow.nodes) == 1


def test_a_node_from_the_prompt_is_taken_along_by_the_workflow_that_uses_it() -> None:
    data = load("raw")

    with workflow("inside") as flow:
        use(data)

    assert {task.name: task.depends_on for task in flow.spec.tasks} == {"load": (), "use": ("load",)}


def test_threads_do_not_see_each_others_workflows() -> None:
    barrier = threading.Barrier(4)

    def trace(count: int) -> int:
        with workflow(f"w{count}") as flow:
            for _ in range(count):
                load()
                barrier.wait(10)
        return len(flow.nodes)

    def bystander() -> None:
        for _ in range(5):
            load()
            barrier.wait(10)

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(trace, 5) for _ in range(3)]
        pool.submit(bystander).result(10)

        assert [count.result(10) for count in counts] == [5, 5, 5]


def test_tasks_of_an_event_loop_do_not_see_each_others_workflows() -> None:
    async def trace() -> int:
        with workflow("w") as flow:
            for _ in range(3):
                load()
                await asyncio.sleep(0)
        return len(flow.nodes)

    async def both() -> list[int]:
        return list(await asyncio.gather(trace(), trace()))

    assert asyncio.run(both()) == [3, 3]


def test_a_workflow_that_raises_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), workflow("broken"):
        load(1 / 0)

    node = load("after")

    assert [task.name for task in flow_of(node).spec.tasks] == ["load"]


def test_running_a_cell_again_does_not_collide_with_its_past() -> None:
    def cell() -> Node[Any]:
        return use(load("a"), load("b"))

    first, second = flow_of(cell()).spec, flow_of(cell()).spec

    assert [task.name for task in first.tasks] == ["load", "load-1", "use"] == [task.name for task in second.tasks]


# --- nodes inside arguments


@dataclasses.dataclass
class Config:
    model: Any
    rest: Any = None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: node,
        lambda node: node["part"],
        lambda node: [node],
        lambda node: (1, node),
        lambda node: {"a": {"b": node}},
        lambda node: Config(node),
        lambda node: [Config({"deep": (node["x"], 3)})],
        lambda node: {node},
        lambda node: frozenset([node]),
    ],
)
def test_nodes_are_found_anywhere_inside_arguments(wrap: Any) -> None:
    data = load("raw")
    by_position, by_keyword = flow_of(use(wrap(data))).spec, flow_of(use(x=wrap(data))).spec

    assert by_position.tasks[-1].depends_on == ("load",)
    assert by_keyword.tasks[-1].depends_on == ("load",)


class Opaque:
    """Not a container that tracing looks into; its pickle shows what it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held


def test_nodes_inside_objects_that_only_pickling_opens_are_found_too() -> None:
    spec = flow_of(use(Opaque(use(load("deep"))))).spec

    assert {task.name: task.depends_on for task in spec.tasks} == {"use": ("use-1",), "use-1": ("load",), "load": ()}


def test_a_container_that_contains_itself_is_looked_into_once() -> None:
    loop: list[Any] = [load()]
    loop.append(loop)

    assert len(list(nodes_in([loop], set()))) == 1


def test_changing_a_list_or_dict_after_the_call_changes_no_task() -> None:
    config: dict[str, Any] = {"lr": 1, "layers": [1]}
    first = use(config)
    config["lr"] = 2
    config["layers"].append(2)
    second = use(config)

    spec = flow_of(use(first, second)).spec

    assert [task.kwargs["call"].get("args") for task in spec.tasks[:2]] == [
        [{"lr": 1, "layers": [1]}],
        [{"lr": 2, "layers": [1, 2]}],
    ]


def test_large_and_deep_values_are_taken_as_they_are() -> None:
    large = list(range(MAX_SNAPSHOT + 1))
    deep: list[Any] = []
    for _ in range(MAX_SNAPSHOT + 10):
        deep = [deep]
    nested = [[1]] * 3

    assert snapshot(large) is large
    assert snapshot(deep) is deep
    assert snapshot(nested) == nested
    assert snapshot(nested)[0] is not nested[0]
