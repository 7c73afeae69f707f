"""Conditions by operators, and the text they compile to."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagkit import all_of, almost_all, any_of, count_of, task
from dagkit.errors import ConditionError, TracingError
from dagkit.flow import flow_of
from dagkit.model.condition import Condition
from dagkit.tracing.conditions import literal, write


@task
def m(x: Any = None) -> Any:
    return x


@task
def final(*items: Any) -> Any:
    return items


def text_of(when: Any, *extra: Any) -> str:
    """The condition text of a task with these dependencies besides those of the condition."""
    spec = flow_of(final.options(when=when)(*extra)).spec
    return str(spec.tasks[-1].condition)


A, B = m.options(name="A")(1), m.options(name="B")(2)


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (A["mae"] < 0.1, "inputs.A.mae < 0.1"),
        (A["mae"] <= -1, "inputs.A.mae <= -1"),
        (0.5 > A["mae"], "inputs.A.mae < 0.5"),  # noqa: SIM300
        (A["mae"] >= 2e-7, "inputs.A.mae >= 2e-07"),
        (A["mae"] > B["mae"], "inputs.A.mae > inputs.B.mae"),
        (A == "ok", 'inputs.A == "ok"'),
        (A["s"] != 'say "no"\n\\', 'inputs.A.s != "say \\"no\\"\\n\\\\"'),
        (A["ok"] == True, "inputs.A.ok == True"),  # noqa: E712
        (A["n"] == None, "inputs.A.n == None"),  # noqa: E711
        (A["k"][2]["z"] == 3, "inputs.A.k[2].z == 3"),
        (A["two words"][-1] == 1, 'inputs.A["two words"][-1] == 1'),
        (A["in"]["true"] == 1, 'inputs.A["in"]["true"] == 1'),
        (A["tier"].is_in(["gold", "silver"]), 'inputs.A.tier in ["gold", "silver"]'),
        (~A["tier"].is_in(("x",)), 'not (inputs.A.tier in ["x"])'),
        (A["ok"], "inputs.A.ok"),
        (~A["ok"], "not inputs.A.ok"),
        ((A["x"] < 1) & (B["y"] > 2), "inputs.A.x < 1 and inputs.B.y > 2"),
        ((A["x"] < 1) | (B["y"] > 2) & (B["z"] > 3), "inputs.A.x < 1 or (inputs.B.y > 2 and inputs.B.z > 3)"),
        (((A["x"] < 1) | B["y"]) & A["ok"], "(inputs.A.x < 1 or inputs.B.y) and inputs.A.ok"),
        (A["ok"] & B["ok"] & A["x"], "inputs.A.ok and inputs.B.ok and inputs.A.x"),
        (~((A["x"] < 1) & B["y"]), "not (inputs.A.x < 1 and inputs.B.y)"),
    ],
)
def test_operators_become_the_condition_language(when: Any, text: str) -> None:
    found = text_of(when)

    assert found == text
    Condition.parse(found, {"A", "B"})


@pytest.mark.parametrize("name", ["train-1", "a b", "prep/feat", "and", "x.y", "größe", 'q"uote', "inputs"])
def test_names_that_are_no_identifiers_stand_in_brackets(name: str) -> None:
    node = m.options(name=name)(1)

    text = text_of(node["x"] < 1)

    assert text.startswith("inputs[")
    assert Condition.parse(text, {name}).evaluate({name: {"x": 0}}).value is True


@pytest.mark.parametrize("name", ["fit[a]", "what?", "all*", "[", "*", "[!a]*"])
def test_names_that_would_read_as_patterns_mean_just_themselves(name: str) -> None:
    odd, bystander = m.options(name=name)(1), m.options(name="fita")(2)
    names = {name, "fita"}

    text = text_of(odd["x"] < 1, bystander)

    assert Condition.parse(text, names).evaluate({name: {"x": 0}, "fita": {"x": 9}}).value is True
    assert Condition.parse(text, names).evaluate({name: {"x": 9}, "fita": {"x": 0}}).value is not True
    negated = text_of(~(odd["x"] < 1), bystander)
    assert Condition.parse(negated, names).evaluate({name: {"x": 9}, "fita": {"x": 0}}).value is True


def test_two_names_that_would_read_as_patterns_cannot_be_compared() -> None:
    with pytest.raises(ConditionError, match="rename one"):
        text_of(m.options(name="a*")(1)["x"] < m.options(name="b*")(1)["x"])


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [(Colour.RED, '"red"'), (np.float64(0.5), "0.5"), (np.int32(3), "3"), (np.bool_(True), "True"), ({2, 1}, "[1, 2]")],
)
def test_literals_of_other_types(value: Any, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"x", {"a": 1}, 1j])
def test_what_has_no_literal_is_refused(value: Any) -> None:
    with pytest.raises(ConditionError, match="compares with"):
        text_of(A["x"] == value)


# --- mistakes


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: 0 < A["x"] < 1,
        lambda: (A["x"] < 1) and (B["x"] < 1),
        lambda: not (A["x"] < 1),
        lambda: 1 if A["x"] < 1 else 2,
        lambda: A["x"] < 1 & B["x"],
        lambda: (A["x"] < 1) == (B["x"] < 1),
        lambda: A["x"] == (B["x"] < 1),
        lambda: (A["x"] < 1) & True,
        lambda: all_of(A["x"], B["x"]) == 2,
    ],
)
def test_a_condition_used_as_a_value_is_explained(mistake: Any) -> None:
    with pytest.raises(TracingError, match=r"condition|parentheses|cannot be compared"):
        mistake()


def test_a_condition_cannot_be_an_argument() -> None:
    with pytest.raises(TracingError, match="when="):
        _ = flow_of(final(A["x"] < 1)).spec


@pytest.mark.parametrize("make", [all_of, any_of, count_of, lambda items: almost_all(items, 1)])
def test_an_aggregate_of_nothing_is_refused(make: Any) -> None:
    with pytest.raises(ConditionError, match="no conditions"):
        make([])


def test_nesting_without_end_is_refused() -> None:
    condition = A["x"] < 1
    for _ in range(100):
        condition = ~(condition & B["y"]) | A["z"]

    with pytest.raises(ConditionError, match="nested"):
        text_of(condition)


def test_long_chains_of_one_operator_are_flat() -> None:
    condition = A["x"] < 0
    for number in range(1, 200):
        condition = condition | (A["x"] == number)

    assert text_of(condition).count(" or ") == 199


# --- aggregates


def models(count: int) -> list[Any]:
    return m.options(name="model-{x}").map(range(count))


def test_aggregates_use_a_pattern_that_matches_just_their_tasks() -> None:
    items = models(12)

    assert text_of(all_of(item["loss"] < 0.1 for item in items), A) == 'all(inputs["model-*"].loss < 0.1)'
    assert text_of(any_of(items)) == 'any(inputs["model-*"])'
    assert text_of(count_of(items) >= 3, A) == 'count(inputs["model-*"]) >= 3'
    assert text_of(3 <= count_of(items), A) == 'count(inputs["model-*"]) >= 3'  # noqa: SIM300
    assert text_of(count_of(items) > A["n"]) == 'count(inputs["model-*"]) > inputs.A.n'
    assert text_of(almost_all((~item["bad"] for item in items), 2)) == 'almost_all(not inputs["model-*"].bad, 2)'


def test_a_pattern_that_would_match_more_is_not_used() -> None:
    items = models(4)

    some = text_of(all_of(item["ok"] for item in items[:2]), *items)

    assert some == 'inputs["model-0"].ok and inputs["model-1"].ok'
    assert text_of(any_of(item["ok"] for item in items[:2]), *items) == 'inputs["model-0"].ok or inputs["model-1"].ok'


def test_different_questions_to_different_tasks_are_spelled_out() -> None:
    assert text_of(all_of(A["x"] < 1, B["y"] < 1)) == "inputs.A.x < 1 and inputs.B.y < 1"
    assert text_of(all_of(A["x"] < 1, A["x"] > 0)) == "inputs.A.x < 1 and inputs.A.x > 0"


def test_a_count_that_cannot_be_spelled_out_says_how_to_name_the_tasks() -> None:
    items = [m.options(name=f"{chr(97 + index % 26)}{index * 7919}")(1) for index in range(40)]

    with pytest.raises(ConditionError, match="common name"):
        text_of(count_of(item["ok"] for item in items[:30]) >= 15, *items)


CHECKS = {
    "all": lambda held, n: all(held),
    "any": lambda held, n: any(held),
    "count>=": lambda held, n: sum(held) >= n,
    "count<": lambda held, n: sum(held) < n,
    "count==": lambda held, n: sum(held) == n,
    "count!=": lambda held, n: sum(held) != n,
    "almost": lambda held, n: held.count(False) <= n,
}
MAKERS = {
    "all": lambda items, n: all_of(items),
    "any": lambda items, n: any_of(items),
    "count>=": lambda items, n: count_of(items) >= n,
    "count<": lambda items, n: count_of(items) < n,
    "count==": lambda items, n: count_of(items) == n,
    "count!=": lambda items, n: count_of(items) != n,
    "almost": lambda items, n: almost_all(items, n),
}


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(CHECKS)),
    number=st.integers(0, 5),
    is_negated=st.booleans(),
    names=st.lists(
        st.text(alphabet="ab-1*?[]/ é", min_size=1, max_size=4).filter(lambda name: name.strip(" ]")),
        min_size=2,
        max_size=5,
        unique=True,
    ),
    data=st.data(),
)
def test_aggregates_mean_the_same_however_they_are_written(
    kind: str, number: int, is_negated: bool, names: list[str], data: Any
) -> None:
    nodes = [m.options(name=name)(1) for name in names]
    chosen = data.draw(st.lists(st.sampled_from(range(len(names))), min_size=1, unique=True))
    when = MAKERS[kind]([nodes[index]["x"] < 1 for index in chosen], number)
    text = write(~when if is_negated else when, lambda node: str(node._task.name), names)

    for values in itertools.product([0, 5, "unknown"], repeat=len(names)):
        inputs = {name: {"x": value} for name, value in zip(names, values, strict=True)}
        expected = CHECKS[kind]([values[index] == 0 for index in chosen], number)
        verdict = Condition.parse(text, names).evaluate(inputs)
        assert (verdict.value is True) == (expected is not is_negated), text
