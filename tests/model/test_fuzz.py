"""Hostile text: whatever comes in is read or refused in our words and in bounded time; nothing of Python shows."""

from __future__ import annotations

import builtins
import contextlib
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagkit.errors import ConditionError, DefinitionError
from dagkit.model.condition import Condition
from dagkit.model.patterns import matches
from dagkit.model.spec import TaskSpec, WorkflowSpec

SIGNS = ". * ( ) [ ] == != < <= > >= = , - : { } + ** ~ @ ..."
WORDS = "inputs A x and or not in is 1 0.5 1e5 True none null lambda if else for __class__ __import__ inputs.A.x"
TOKENS = [
    *f"{SIGNS} {WORDS} all any count almost_all".split(),
    *('"A"', '"*"', "'t*'", "\n", '"', "\\", 'inputs["*"].x'),
]

OUTPUTS = {"A": {"x": 1, "__class__": "own"}, "t1": [1, "x", None], "t2": None}

FIELD_NAMES = "name tasks depends_on kwargs condition timeout_s"
YAML_SIGNS = "[ ] { } , ' | > # --- ... = ~ &x *x !x !!python/object:os.system"
DEFINITION_WORDS = [
    *f"{YAML_SIGNS} {FIELD_NAMES} a b 1 no 12:30:00 2024-01-31 .nan inputs.a.x".split(),
    *(": ", "- ", "\n", "\n  ", "\n    ", "<<: ", '"', "%YAML 1.1", "\t", "? ", "\x00", "é", "\u2028"),
]


@pytest.fixture
def nothing_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways out of a sandbox, closed: whoever takes one fails the test."""

    def caught(*arguments: object, **keywords: object) -> Any:
        raise AssertionError(f"escaped: {arguments} {keywords}")

    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, caught)


@settings(max_examples=1_000)
@given(
    st.lists(st.sampled_from(TOKENS), max_size=14).map(" ".join)
    | st.lists(st.sampled_from(TOKENS), max_size=14).map("".join)
)
def test_any_words_are_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(ConditionError):
        verdict = Condition.parse(text, list(OUTPUTS)).evaluate(OUTPUTS)
        assert verdict.value in (True, False, None)
        assert not verdict.waits_for


@settings(max_examples=300)
@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(ConditionError):
        Condition.parse(text, None).evaluate({})


#: Conditions that are ones, by construction.
VALUES = st.sampled_from(
    ["inputs.A.x", "inputs.A.y", "inputs.t1[0]", "inputs.t1[-1]", "inputs.P.x", "1", '"x"', "null", "[1, 2]"]
)
COMPARISONS = st.tuples(VALUES, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]), VALUES).map(
    " ".join
)
AGGREGATES = st.sampled_from(
    ['all(inputs["t*"])', 'any(inputs["*"].x)', 'count(inputs["*"].x == 1)', 'almost_all(inputs["*"].x, 1)']
)
CONDITIONS = st.recursive(
    COMPARISONS | VALUES | AGGREGATES,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})")
        | inner.map(lambda part: f"(not {part})")
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(CONDITIONS, st.sampled_from([None, {"x": 1}, {"x": 0}, {"x": "x"}, {"y": 1}, [1], "x", 1, True]))
def test_a_decision_made_early_is_the_one_made_late(text: str, output: Any) -> None:
    condition = Condition.parse(f"({text}) and (inputs.A == inputs.A or inputs.P)", [*OUTPUTS, "P"])

    early = condition.evaluate(OUTPUTS, {"P"})
    late = condition.evaluate(OUTPUTS | {"P": output})

    assert late.value is not None or late.reasons
    assert not late.waits_for
    if not early.waits_for:
        assert (early.value is True) is (late.value is True)


@pytest.mark.usefixtures("nothing_of_python")
@pytest.mark.parametrize(
    "text",
    [
        '__import__("os").system("true")',
        "inputs.A.__class__.__mro__[1].__subclasses__()",
        'inputs["A"].__class__.__base__',
        "().__class__.__bases__[0]",
        'all(inputs["*"].__class__.__init__.__globals__)',
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "(lambda: inputs.A)()",
        'inputs.A["__dict__"]["x"]',
        '"{0.__class__}".format(inputs.A)',
    ],
)
def test_nothing_of_python_shows_through(text: str) -> None:
    try:
        verdict = Condition.parse(text, list(OUTPUTS)).evaluate(OUTPUTS)
    except ConditionError:
        return
    assert verdict.value is False


@settings(max_examples=600)
@given(st.lists(st.sampled_from(DEFINITION_WORDS), max_size=25).map("".join))
def test_any_words_are_a_definition_or_refused_with_problems(text: str) -> None:
    try:
        spec = WorkflowSpec.from_yaml(text)
    except DefinitionError as error:
        assert error.problems  # noqa: PT017 - a refusal is expected here
        return
    assert WorkflowSpec.from_yaml(spec.to_yaml()) == spec


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_content_is_a_definition_or_refused(content: str | bytes) -> None:
    for read in (WorkflowSpec.from_yaml, WorkflowSpec.from_json):
        with contextlib.suppress(DefinitionError):
            read(content)


def test_a_sound_file_with_random_damage_is_read_or_refused() -> None:
    tasks = [
        {"name": f"t{n}", "depends_on": ["t0"] if n else [], "kwargs": {"cmd": "x", "env": {"A": "1"}}}
        for n in range(8)
    ]
    sound = WorkflowSpec.from_dict({"name": "w", "tasks": tasks}).to_yaml()
    dice = random.Random(7)

    for _ in range(400):
        at, length = dice.randrange(len(sound)), dice.randrange(4)
        damaged = sound[:at] + dice.choice(DEFINITION_WORDS) + sound[at + length :]
        with contextlib.suppress(DefinitionError):
            WorkflowSpec.from_yaml(damaged)


NAMES = st.text(max_size=12)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.integers(), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)


FIELDS = st.dictionaries(st.sampled_from([*TaskSpec.model_fields, "other"]), DATA, max_size=6)


@settings(max_examples=300)
@given(FIELDS, DATA)
def test_any_values_of_fields_are_taken_or_refused(fields: dict[str, Any], result: Any) -> None:
    try:
        spec = WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a"}, fields], "result": result})
    except DefinitionError as error:
        assert all(problem.message for problem in error.problems)  # noqa: PT017
        return
    assert WorkflowSpec.from_yaml(spec.to_yaml()) == spec


# --- time


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 40 + "b", "a" * 800),
        ("*" * 1_000 + "b", "a" * 800),
        ("*?" * 100 + "b", "a" * 400),
        ("[a-z]" * 300 + "*x", "a" * 800),
    ],
)
def test_no_pattern_takes_long(pattern: str, name: str) -> None:
    started = time.monotonic()

    assert not matches(pattern, name)

    assert time.monotonic() - started < 10


@settings(max_examples=300)
@given(st.text("ab*?[]!-", max_size=8), st.text("ab]-", max_size=6))
def test_patterns_match_as_the_standard_library_says(pattern: str, name: str) -> None:
    from fnmatch import fnmatchcase

    assert matches(pattern, name) is fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    "text",
    [
        '"' + "\\" * 100_000,
        "'" * 100_001,
        "0" * 100_000,
        "1_" * 50_000,
        "inputs." * 50_000,
        "a" * 1_000_000,
        " " * 1_000_000,
        'inputs.A == "' + "\\x41" * 100_000 + '"',
        "-" * 100_000,
    ],
    ids=lambda text: text[:10],
)
def test_no_text_takes_long_to_refuse_or_read(text: str) -> None:
    started = time.monotonic()

    with contextlib.suppress(ConditionError):
        Condition.parse(text, ["A"])

    assert time.monotonic() - started < 20
