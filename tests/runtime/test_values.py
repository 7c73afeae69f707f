"""Arguments and outputs come back as they were, with exact types."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import namedtuple
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dagkit.errors import CorruptState, MissingPart, NotPicklable
from dagkit.runtime import values
from dagkit.runtime.values import Ref

CASES = {
    case["id"]: case for case in yaml.safe_load((Path(__file__).parents[1] / "cases/outputs.yaml").read_text())["cases"]
}


class Payloads(dict[str, bytes]):
    def put(self, data: bytes) -> str:
        digest = "sha256:" + sha256(data).hexdigest()
        self[digest] = data
        return digest


class Node:
    """Stands for a node of a trace."""

    def __init__(self, task: str, *path: str | int) -> None:
        self.ref = Ref(task, path)


def ref_of(obj: object) -> Ref | None:
    return obj.ref if isinstance(obj, Node) else None


def encode(value: Any, payloads: Payloads | None = None) -> Any:
    put = (payloads if payloads is not None else Payloads()).put
    tree = values.encode(value, ref_of=ref_of, put=put, where="train: argument 'x'")
    text = json.dumps(tree, allow_nan=False)
    assert len(text) <= values.INLINE_LIMIT
    return json.loads(text)


def round_trip(value: Any, outputs: dict[str, Any] | None = None) -> Any:
    payloads = Payloads()
    tree = encode(value, payloads)
    return values.decode(tree, resolve=(outputs or {}).__getitem__, get=payloads.__getitem__)


def same(one: Any, other: Any) -> bool:
    """Equal with exact types throughout; NaN is NaN and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and (one == other or (one != one and other != other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same, one, other)) and all(map(same, one.values(), other.values()))
    return bool(one == other)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from(["$ref", "$"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$ref", "$tuple", "$escape"]), inner),
    max_leaves=20,
)
hashable = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text()) | st.binary()
python = st.recursive(
    json_like | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner)
        | st.sets(hashable)
        | st.frozensets(hashable)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(json_like)
def test_any_json_like_argument_comes_back(value: Any) -> None:
    assert same(round_trip(value), value)


@settings(max_examples=150, deadline=None)
@given(python)
def test_any_python_argument_comes_back(value: Any) -> None:
    assert same(round_trip(value), value)


@settings(max_examples=150, deadline=None)
@given(python)
def test_any_output_comes_back(value: Any) -> None:
    encoded = values.dump_output(value)

    assert same(values.load_output(f"blob:w/t.{encoded.suffix}", lambda ref: encoded.data), value)


@settings(max_examples=100, deadline=None)
@given(json_like)
def test_an_output_is_json_only_if_json_returns_it_unchanged(value: Any) -> None:
    encoded = values.dump_output(value)

    if encoded.suffix == "json":
        assert same(json.loads(encoded.data), value)
        assert same(values.load_output(encoded.data.decode(), lambda ref: b""), value)


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


class Color(enum.Enum):
    RED = 1


class Loud(str):
    pass


Row = namedtuple("Row", "a b")

ODD = {
    "2 ** 53 + 1": 2**53 + 1,
    "10 ** 5000": 10**5000,
    "nan": float("nan"),
    "-inf": float("-inf"),
    "-0.0": -0.0,
    "tuple in dict": {"a": (1, (2,), ())},
    "namedtuple": Row(1, [2]),
    "dataclass": Point(1, Point(2)),
    "enum": [Color.RED],
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "int keys": {1: "a", None: 2},
    "str subclass": Loud("x"),
    "lone surrogate": ["\ud800", {"\udfff": 1}],
    "a user's $ref": {"$ref": "train", "path": ["x"]},
    "a user's $escape": {"$escape": {"$tuple": [1]}},
    "line separators": "\u2028\u2029\x00",
    "numpy scalar": np.float32(1.5),
    "a type": int,
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
def test_odd_values_come_back_as_arguments_and_outputs(value: Any) -> None:
    encoded = values.dump_output(value)

    assert same(round_trip(value), value)
    assert same(values.load_output(f"blob:w/t.{encoded.suffix}", lambda ref: encoded.data), value)


def test_arrays_and_frames_come_back() -> None:
    array = np.arange(6, dtype=">i2").reshape(2, 3)
    frame = pd.DataFrame({"a": [1, None], "b": pd.Categorical(["x", "y"])})

    back = round_trip([array, {"frame": frame}])

    assert back[0].dtype == array.dtype
    np.testing.assert_array_equal(back[0], array)
    pd.testing.assert_frame_equal(back[1]["frame"], frame)


# --- nodes


def test_plain_json_is_written_as_it_is() -> None:
    value = {"lr": 0.1, "layers": [64, 64], "name": "a", "debug": None}

    assert encode(value) == value


def test_a_node_is_a_ref_with_its_path() -> None:
    assert encode(Node("stats")) == {"$ref": "stats"}
    assert encode([Node("stats", "mean", 0)]) == [{"$ref": "stats", "path": ["mean", 0]}]


def test_nodes_are_found_anywhere_and_replaced_by_values() -> None:
    value = [Node("a"), (Node("b", "k"),), {"n": Node("a", 1)}, Point(Node("c"), {Node("d")}), {3: Node("a")}]
    outputs = {"a": [1, 2], "b": {"k": "v"}, "c": (3,), "d": 4}

    assert round_trip(value, outputs) == [[1, 2], ("v",), {"n": 2}, Point((3,), {4}), {3: [1, 2]}]


def test_refs_are_listed_in_order_once_also_those_inside_payloads() -> None:
    payloads = Payloads()
    shared: list[object] = []
    value = [Node("b"), Point(Node("a")), {"x": (Node("c"), Node("b"))}, {"$ref": "no"}]

    tree = values.encode(value, ref_of=ref_of, put=payloads.put, where="x")
    aliased = values.encode([shared, shared, Node("z")], ref_of=ref_of, put=payloads.put, where="x")

    assert values.refs_in(tree, payloads.__getitem__) == ["b", "a", "c"]
    assert values.refs_in(aliased, payloads.__getitem__) == ["z"]
    assert values.refs_in({"a": {"$escape": {"$ref": "no"}}}, payloads.__getitem__) == []


def test_payloads_of_a_sweep_over_nodes_are_the_same_bytes() -> None:
    payloads = Payloads()
    for name in ("a", "b", "c"):
        values.encode(Point(Node(name)), ref_of=ref_of, put=payloads.put, where="x")

    assert len(payloads) == 1


def test_a_missing_part_says_what_is_there() -> None:
    outputs = {"stats": {"mean": 1, "fit": {"a": 1}}, "rows": [1], "none": None, "number": 5}
    expected: list[tuple[Node, str]] = [
        (Node("stats", "mae"), r"stats\['mae'\] does not exist: stats has no key 'mae'; it has 'mean', 'fit'"),
        (Node("stats", "fit", "b"), r"stats\['fit'\] has no key 'b'"),
        (Node("rows", 3), "rows has 1 items, and 3 is none of them"),
        (Node("none", "a"), "none has no output"),
        (Node("number", "a"), "number is of type int, without 'a'"),
    ]
    for node, message in expected:
        with pytest.raises(MissingPart, match=message):
            round_trip(node, outputs)


# --- large, deep, shared, circular


@pytest.mark.parametrize("size", [32_760, 32_766, 32_767, 40_000, 200_000])
def test_an_argument_of_over_32_kib_is_a_payload(size: int) -> None:
    tree = encode("x" * size)

    assert (tree == "x" * size) == (size + 2 <= values.INLINE_LIMIT)
    assert len(json.dumps(tree)) <= values.INLINE_LIMIT


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=300), st.integers(), st.floats(), st.just(Node("t" * 50)))), st.integers(1, 60)
)
def test_no_encoded_argument_is_over_the_limit(items: list[Any], times: int) -> None:
    tree = encode([list(item) for item in items] * times)

    assert len(json.dumps(tree)) <= values.INLINE_LIMIT


def test_a_wide_fan_in_is_a_small_marker_and_still_lists_its_refs() -> None:
    payloads = Payloads()
    nodes = [Node(f"task-{index}") for index in range(20_000)]

    tree = values.encode(nodes, ref_of=ref_of, put=payloads.put, where="x")

    assert len(json.dumps(tree)) < 200
    assert len(values.refs_in(tree, payloads.__getitem__)) == 20_000
    assert values.decode(tree, resolve=str, get=payloads.__getitem__)[7] == "task-7"


def test_an_object_that_occurs_twice_is_one_object_on_the_other_side() -> None:
    shared = [1]

    one, other = round_trip([shared, shared])

    assert one is other


def test_a_value_that_contains_itself_comes_back() -> None:
    value: list[Any] = [1]
    value.append(value)

    back = round_trip(value)

    assert back[1] is back


def test_nesting_that_doubles_at_every_level_stays_small() -> None:
    value: tuple[Any, ...] = (1,)
    for _ in range(40):
        value = (value, value)

    tree = encode(value)

    assert list(tree) == ["$pickle"]


@pytest.mark.parametrize("depth", [10, 64, 65, 200])
def test_deep_values_come_back(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]} if depth % 2 else [value]

    assert round_trip(value) == value
    encoded = values.dump_output(value)
    assert values.load_output(f"blob:w/t.{encoded.suffix}", lambda ref: encoded.data) == value


@pytest.mark.parametrize("send", [encode, values.dump_output])
def test_what_is_nested_beyond_reason_is_a_clear_error(send: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]

    with pytest.raises(NotPicklable, match="nested too deeply"):
        send(value)


def test_what_cannot_travel_is_named_with_the_argument() -> None:
    with pytest.raises(NotPicklable, match="train: argument 'x'"):
        encode({"a": (x for x in ())})


def test_an_output_that_cannot_travel_says_so_of_the_output() -> None:
    with pytest.raises(NotPicklable, match=r"train: its output\['rows'\] cannot travel .*generator.*Return data"):
        values.dump_output({"rows": (x for x in ())}, "train")


def test_conditions_see_a_python_output_as_json_would_show_it() -> None:
    output = {
        "mae": np.float32(0.5),
        "point": Point((1, np.int64(2)), Row(True, Color.RED)),
        "array": np.arange(3),
        "other": range(3),
    }

    view = values.condition_view(output)

    assert view == {"mae": 0.5, "point": {"x": [1, 2], "y": {"a": True, "b": 1}}, "array": [0, 1, 2], "other": range(3)}
    circular: list[Any] = [np.float32(1)]
    circular += [circular, circular]
    assert values.condition_view(circular)[0] == 1.0
    assert type(view["mae"]) is float
    assert type(view["point"]["x"][1]) is int


# --- damaged trees, text outputs, cases


@pytest.mark.parametrize(
    "tree",
    [{"$reff": "a"}, {"$ref": "a", "pth": []}, {"$tuple": 3}, {"$escape": []}, {"$": 1}, {"$pickle": "x", "more": 1}],
)
def test_an_unknown_marker_is_refused(tree: Any) -> None:
    with pytest.raises(CorruptState, match="unknown marker"):
        values.decode([tree], resolve=lambda task: 1, get=lambda digest: b"")


def test_an_output_that_is_no_json_is_its_text() -> None:
    assert values.load_output("not json", lambda ref: b"") == "not json"
    assert values.load_output("blob:w/t.json", lambda ref: b"{broken") == "{broken"
    assert values.load_output(None, lambda ref: b"") is None


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if "output_bytes" in case], ids=lambda case: case["id"]
)
def test_where_an_output_goes_by_its_size(case: dict[str, Any]) -> None:
    encoded = values.dump_output("x" * (case["output_bytes"] - 2))

    assert len(encoded.data) == case["output_bytes"]
    assert ("inline" if len(encoded.data) <= values.INLINE_LIMIT else "stored") == case["kept"]
