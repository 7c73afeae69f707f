"""A fingerprint changes with what a result depends on, and with nothing else; in doubt there is none."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import math
import os
import random
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagkit.engine.fingerprint import combine, of_function, of_value

SRC = Path(__file__).resolve().parents[2] / "src"


def function(source: str, name: str = "task", **given_globals: Any) -> Callable[..., Any]:
    """The function `name` of a cell with this text."""
    namespace: dict[str, Any] = {"__name__": "__main__", **given_globals}
    exec(compile(textwrap.dedent(source), "<cell>", "exec"), namespace)
    return namespace[name]  # type: ignore[no-any-return]


def digest(source: str, **given_globals: Any) -> str:
    found = of_function(function(source, **given_globals))
    assert found is not None
    return found


# --- code

BASE = """
K = 1
def helper(x): return x + K
def task(x, y=2, *, z=3): return helper(x) * y
"""

CHANGES = {
    "its own code": BASE.replace("* y", "+ y"),
    "a constant in the code": BASE.replace("x + K", "x + K + 1"),
    "a helper function": BASE.replace("x + K", "x - K"),
    "a global constant": BASE.replace("K = 1", "K = 2"),
    "the type of a constant": BASE.replace("K = 1", "K = 1.0"),
    "a default": BASE.replace("y=2", "y=4"),
    "a keyword default": BASE.replace("z=3", "z=4"),
    "a parameter's name": BASE.replace("(x, y=2", "(q, y=2").replace("helper(x)", "helper(q)"),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_matters_changes_the_fingerprint(changed: str) -> None:
    assert digest(changed) != digest(BASE)


SAME = {
    "comments and blank lines": "\n\n# a comment\n" + BASE.replace("def task", "\n\n# another\ndef task"),
    "another layout": BASE.replace("return helper(x) * y", "\n    return (helper(\n        x)\n        * y)"),
    "an annotation": BASE.replace("(x, y=2", "(x: int, y: int=2"),
    "a docstring": BASE.replace(": return helper(x)", ":\n    'What it does.'\n    return helper(x)"),
    "an unrelated global": BASE + "\nOTHER = 5\n",
    "the order of definitions": "def task(x, y=2, *, z=3): return helper(x) * y\ndef helper(x): return x + K\nK = 1\n",
}


@pytest.mark.parametrize("changed", SAME.values(), ids=SAME.keys())
def test_a_change_that_does_not_matter_keeps_the_fingerprint(changed: str) -> None:
    assert digest(changed) == digest(BASE)


def test_closures_are_told_apart_by_what_they_hold() -> None:
    source = "def make(k):\n    def inner(x): return x + k\n    return inner\n"
    make = function(source, "make")

    assert of_function(make(1)) == of_function(make(1)) == of_function(function(source, "make")(1))
    assert of_function(make(1)) != of_function(make(2))


def test_a_global_that_is_shadowed_by_an_attribute_of_the_same_name_is_not_used() -> None:
    source = "def task(x): return x.K"

    assert digest(source, K=1) == digest(source, K=2)


def test_nested_lambdas_and_set_constants() -> None:
    source = "def task(x): return [f(x) for f in [lambda v: v in {'a', 'b', 'c'}, lambda v: v + K]]"

    assert digest(source, K=1) == digest(source, K=1)
    assert digest(source, K=1) != digest(source, K=2)
    assert digest(source, K=1) != digest(source.replace("'c'", "'d'"), K=1)


def test_functions_that_call_themselves_and_each_other() -> None:
    source = "def task(n): return n if n < 1 else other(n - 1)\ndef other(n): return task(n - 1)\n"

    assert digest(source) == digest(source)
    assert digest(source) != digest(source.replace("task(n - 1)\n", "task(n - 2)\n"))


def test_a_deep_call_graph_is_walked_once_per_function_not_once_per_path() -> None:
    layers = ["def f0(x): return x\n"]
    layers += [f"def f{n}(x): return f{n - 1}(x) + f{n - 1}(x + 1)\n" for n in range(1, 2000)]
    source = "".join(layers) + "def task(x): return f1999(x)\n"

    assert digest(source) != digest(source.replace("f0(x): return x", "f0(x): return -x"))


def test_a_class_is_covered_with_its_methods_and_bases() -> None:
    source = """
    class Base:
        def scale(self): return 2
    class Model(Base):
        limit = 3
        def fit(self, x): return x * self.scale()
        @property
        def name(self): return "a"
        @staticmethod
        def helper(): return 1
    def task(x): return Model().fit(x)
    """
    for old, new in [
        ("return 2", "return 4"),
        ("= 3", "= 5"),
        ("x * self", "x + self"),
        ('"a"', '"b"'),
        ("n 1", "n 0"),
    ]:
        assert old in source
        assert digest(source) != digest(source.replace(old, new))
    assert digest(source) == digest(source)


def test_a_pydantic_model_is_covered_with_its_fields() -> None:
    source = """
    from pydantic import BaseModel, Field
    class Settings(BaseModel):
        rate: float = 0.1
        size: int = Field(default=3, ge=1)
        def scaled(self): return self.rate * 2
    def task(x): return Settings().scaled()
    """
    found = [
        digest(source.replace(old, new)) for old, new in [("", ""), ("0.1", "0.2"), ("ge=1", "ge=2"), ("* 2", "* 3")]
    ]

    assert len(set(found)) == 4
    assert digest(source) == found[0]


def test_wrappers_partials_methods_and_callable_objects() -> None:
    source = """
    import functools
    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*args): return fn(*args)
        return wrapper
    class Call:
        def __init__(self, k): self.k = k
        def __call__(self, x): return x + self.k
        def run(self, x): return x * self.k
    @deco
    def wrapped(x): return x + 1
    @functools.lru_cache
    def cached(x): return x + 1
    task = {"wrapped": wrapped, "cached": cached, "partial": functools.partial(wrapped, 1)}
    task |= {"call": Call(1), "run": Call(1).run}
    """
    before, again = function(source), function(source)
    body = function(source.replace("x + 1", "x + 2").replace("Call(1)", "Call(2)"))
    for name in before:  # type: ignore[attr-defined]
        one, same, other = (of_function(found[name]) for found in (before, again, body))  # type: ignore[index]
        assert one is not None
        assert one == same
        assert one != other, name


def test_a_local_module_is_covered_by_the_attributes_in_use() -> None:
    def module(source: str) -> types.ModuleType:
        made = types.ModuleType("helper_module")
        exec(source, made.__dict__)
        return made

    source = "def task(x): return helper.f(x)"
    before = digest(source, helper=module("def f(x): return g(x)\ndef g(x): return 1\ndef unused(): return 1"))

    assert before == digest(source, helper=module("def f(x): return g(x)\ndef g(x): return 1\ndef unused(): return 2"))
    assert before != digest(source, helper=module("def f(x): return g(x)\ndef g(x): return 2\ndef unused(): return 1"))


def test_a_module_that_is_imported_when_the_function_runs_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def task(x):\n    from late_module import f\n    return f(x)\n"
    found = []
    for result in (1, 1, 2):
        module = types.ModuleType("late_module")
        exec(f"def f(x): return {result}", module.__dict__)
        monkeypatch.setitem(sys.modules, "late_module", module)
        found.append(digest(source))

    assert found[0] == found[1] != found[2]


def test_installed_code_is_known_by_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import numpy as np\ndef task(x): return np.mean(x)\n"
    before = digest(source)
    assert of_value(np.mean) != of_value(np.median)

    monkeypatch.setattr(np, "__version__", "99.0")

    assert digest(source) != before


def test_a_function_that_holds_something_undigestible_has_none() -> None:
    assert of_function(function("def task(): return lock", lock=threading.Lock())) is None
    assert of_function(function("def task(): return helper()\ndef helper(): return g", g=(x for x in ()))) is None


# --- values


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Row = collections.namedtuple("Row", "a b")
Other = collections.namedtuple("Other", "a b")

DISTINCT: list[Any] = [
    *(None, True, 1, 1.0, 0, 0.0, -0.0, False, "1", b"1", 1j, math.nan, math.inf, -math.inf, 2**70, -(2**70)),
    *("", [], (), {}, set(), frozenset(), [[]], [()], ([],), bytearray(), b""),
    *(("ab", "c"), ("a", "bc"), ("abc",), ["ab", "c"], "abc", [["ab"], "c"], [["ab", "c"]]),
    *({"a": 1}, {"a": 2}, {"b": 1}, {1: "a"}, {"1": "a"}, [("a", 1)], {("a", 1)}, {"a": {"b": 1}}),
    *({1, 2}, frozenset({1, 2}), {1, 2, 3}, {"1", "2"}, {(1, 2)}),
    *(Point(1), Point(2), Point(1, 2), Color.RED, Color.BLUE, Color, Point, Row(1, 2), Other(1, 2), (1, 2), Row(2, 1)),
    *(np.arange(4), np.arange(4.0), np.arange(4).reshape(2, 2), np.arange(4, dtype="i4"), np.array(4), np.int64(4)),
    *(np.array(["a", "b"]), np.array(["a", "b"], dtype=object), np.array([1, None], dtype=object)),
    *(np.float64(1), np.float32(1), np.datetime64("2020-01-01"), np.dtype("f8"), np.zeros(2, dtype=[("a", "i4")])),
    *(np.zeros(2, dtype=[("b", "i4")]), np.array([-0.0]), np.array([0.0])),
    *(pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [1, 2]}), pd.DataFrame({"a": [1, 3]}), pd.Series([1, 2])),
    *(pd.DataFrame({"a": [1, 2]}, index=[1, 2]), pd.Series([1, 2], name="n"), pd.Series([1, None], dtype="Int64")),
    *(pd.Series(["x", "y"], dtype="category"), pd.Series(["x", "y"]), pd.Series(pd.to_datetime(["2020", "2021"]))),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.timedelta(1), range(3), range(4), slice(1, 2)),
    *(Path("a"), Path("b"), len, print, math.sqrt, math.floor, np.sin, np.cos, int, str, collections.Counter("ab")),
    *(collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), collections.deque([1]), random.Random(1)),
    *(
        random.Random(2),
        np.random.default_rng(1),
        np.random.default_rng(2),
        ValueError("a"),
        ValueError("b"),
        KeyError("a"),
    ),
]


def test_values_that_differ_have_different_fingerprints() -> None:
    found = [of_value(value) for value in DISTINCT]

    assert None not in found
    seen: dict[str | None, Any] = {}
    for value, text in zip(DISTINCT, found, strict=True):
        assert text not in seen, (value, seen[text])
        seen[text] = value


def test_cmath_and_math_functions_of_one_name_differ() -> None:
    import cmath

    assert of_value(math.sqrt) != of_value(cmath.sqrt)
    assert of_value([1].append) != of_value([2].append)


def test_equal_values_have_one_fingerprint() -> None:
    nan = float("-nan")
    shared = [1]
    pairs: list[tuple[Any, Any]] = [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (float("nan"), nan),
        ([shared, shared], [[1], [1]]),
        (
            np.arange(6).reshape(2, 3),
            np.arange(6).reshape(3, 2).T.copy().reshape(2, 3, order="A") * 0 + [[0, 1, 2], [3, 4, 5]],
        ),
        (np.asfortranarray(np.eye(3)), np.eye(3)),
        (Point([1]), Point([1])),
        (collections.Counter("ab"), collections.Counter("ba")),
        ({frozenset({1, 2}): {3}}, {frozenset({2, 1}): {3}}),
        (functools.partial(len), functools.partial(len)),
    ]
    for one, other in pairs:
        assert of_value(one) == of_value(other) is not None


def test_what_cannot_be_digested_has_no_fingerprint_not_a_partial_one(tmp_path: Path) -> None:
    circular: list[Any] = []
    circular.append(circular)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    class Failing:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise RuntimeError("no")

    with open(tmp_path / "f", "w") as file:
        for value in (threading.Lock(), file, (x for x in ()), circular, deep, Failing(), sys._getframe()):
            assert of_value(value) is None
            assert of_value({"a": [1, value]}) is None
            assert of_value(Point(value)) is None


def test_an_object_may_bring_its_own_fingerprint() -> None:
    class Blob:
        def __init__(self, content: str | None) -> None:
            self.content, self.lock = content, threading.Lock()

        def __dagkit_fingerprint__(self) -> str | None:
            return self.content

    assert of_value([Blob("a")]) == of_value([Blob("a")]) is not None
    assert of_value(Blob("a")) != of_value(Blob("b"))
    assert of_value(Blob(None)) is None


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(json_like, json_like)
def test_fingerprints_agree_exactly_when_values_do(one: Any, other: Any) -> None:
    assert (of_value(one) == of_value(other)) == (repr(_ordered(one)) == repr(_ordered(other)))


def _ordered(value: Any) -> Any:
    """Repr tells types, signs and NaN apart, once dicts are in order."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return type(value)(map(_ordered, value)) if isinstance(value, (list, tuple)) else value


def test_combine_keeps_parts_apart_and_is_none_with_a_missing_part() -> None:
    assert combine(["ab", "c"]) != combine(["a", "bc"])
    assert combine(["a", "b"]) != combine(["b", "a"])
    assert combine(["a"]) != combine(["a", ""])
    assert combine(["a", None]) is None
    assert combine(iter(["a", "b"])) == combine(["a", "b"])


SESSION = """
import collections, dataclasses, enum, functools, pathlib
import numpy as np, pandas as pd
from dagkit.engine.fingerprint import of_function, of_value
NAMES = {"alpha", "beta", "gamma"}
class Color(enum.Enum):
    RED = 1
    def is_warm(self): return self in {Color.RED}
@dataclasses.dataclass
class Point:
    x: int
    tags: set = dataclasses.field(default_factory=set)
    def norm(self): return abs(self.x)
class Odd(ValueError): pass
def helper(x): return {k: v for k, v in x.items() if k in NAMES or k in {"d", "e", "f"}}
def task(x, *, p=Point(1, {"a", "b"})):
    with np.errstate(all="ignore"):
        try: return helper(x), Color.RED.is_warm(), [lambda v: v in ("q", frozenset({"r", "s"})) for _ in x]
        except Odd as error: raise ValueError from error
for value in (task, Point, Color, Point(3, NAMES), {"k": NAMES, "f": helper}, functools.partial(task, p=Color.RED)):
    print(of_value(value))
for value in (np.array([{"a", "b"}], dtype=object), pd.DataFrame({"a": [NAMES]}), pathlib.Path("x"),
              np.random.default_rng(1)):
    print(of_value(value))
"""


def test_fingerprints_are_the_same_in_every_process(tmp_path: Path) -> None:
    found = set()
    for seed in ("0", "1", "2"):
        script = tmp_path / f"session-{seed}.py"
        script.write_text("\n" * int(seed) + SESSION)
        env = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)

    assert len(found) == 1
    assert "None" not in found.pop()
