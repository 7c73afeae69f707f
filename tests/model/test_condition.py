"""The condition language: every case of the facts, what is refused and why, unknowns, tasks that have not ended."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dagkit.errors import ConditionError
from dagkit.model.condition import Condition, Verdict
from model.cases import load_cases


def evaluate(text: str, inputs: dict[str, Any], pending: tuple[str, ...] = ()) -> Verdict:
    return Condition.parse(text, [*inputs, *pending]).evaluate(inputs, pending)


def fault(text: str, dependencies: list[str] | None = None) -> str:
    with pytest.raises(ConditionError) as caught:
        Condition.parse(text, ["A", "B"] if dependencies is None else dependencies)
    return str(caught.value)


# --- the cases of conditions.yaml


@pytest.mark.parametrize("case", load_cases("conditions", "valid"))
def test_a_case_is_accepted_or_refused(case: dict[str, Any]) -> None:
    if case["valid"]:
        assert Condition.parse(case["expr"], case["deps"]).text == case["expr"]
        return

    message = fault(case["expr"], case["deps"])

    assert [word for word in case.get("mentions", []) if word not in message.removeprefix(case["expr"])] == []


@pytest.mark.parametrize("case", load_cases("conditions", "is"))
def test_a_case_has_its_value(case: dict[str, Any]) -> None:
    verdict = evaluate(case["expr"], case["inputs"])

    assert verdict.value is {True: True, False: False, "unknown": None}[case["is"]]
    assert verdict.waits_for == frozenset()
    assert [word for word in case.get("names", []) if word not in " ".join(verdict.reasons)] == []
    assert bool(verdict.reasons) is (case["is"] == "unknown")


# --- refused, and why


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("", "ends too early"),
        ("   ", "ends too early"),
        ("inputs", "needs a dependency"),
        ("inputs[0]", "needs a dependency"),
        ("inputs.A.", "field name"),
        ("inputs.A.in", "brackets"),
        ("inputs.A.x = 1", "=="),
        ("inputs.A == 007", "007"),
        ("inputs.A == 1j", "1j"),
        ("inputs.A == 0x", "0x"),
        ("inputs.A == 1__0", "1__0"),
        ("inputs.A == 1e999", "too large"),
        ("inputs.A == " + "9" * 5_000, "is no number"),
        ("inputs.A == +1", "arithmetic"),
        ("inputs.A == -inputs.B", "minus"),
        ("inputs.A == --1", "minus"),
        ("~inputs.A", "~"),
        ("inputs.A is not None", "is"),
        ("inputs.A == not inputs.B", "not"),
        ("lambda: inputs.A", "lambda"),
        ("[x for x in inputs.A]", "x is unknown"),
        ("{1: 2} == inputs.A", "{"),
        ('f"{inputs.A}" == "x"', "f is unknown"),
        ('b"x" == inputs.A', "b is unknown"),
        ('inputs.A == "x" "y"', '\\"y\\"'),
        ('inputs.A == "x', "not closed"),
        ('inputs.A == "x\ny"', "not closed"),
        (r'inputs.A == "\x4"', "escape"),
        (r'inputs.A == "\U00110000"', "no character"),
        (r'inputs.A == "\ud800"', "surrogate"),
        ("inputs.A[1:2]", "brackets"),
        ("inputs.A[True]", "brackets"),
        ("inputs.A[1.5]", "brackets"),
        ("inputs.A[-inputs.B]", "minus"),
        ("inputs.A[inputs.B]", "brackets"),
        ("inputs.A.x()", "("),
        ("inputs.A.__class__()", "("),
        ("(inputs.A).x", "."),
        ("inputs.A, inputs.B", ","),
        ("inputs.A; inputs.B", ";"),
        ("(x := inputs.A)", "x is unknown"),
        ("inputs.A ...", "."),
        ("inputs.A == (1", "closed"),
        ("inputs.A in [1 2]", "commas"),
        ("inputs.A and", "ends too early"),
        ("or inputs.A", "or"),
        ("inputs.A not 3", "not"),
        ("all inputs.A", "all is unknown"),
        ('all(inputs["*"].x, 1)', "one argument"),
        ("all()", "one argument"),
        ('all(x=inputs["*"])', "x is unknown"),
        ('all(*inputs["*"])', "*"),
        ('almost_all(inputs["*"].x, 1, 2)', "two arguments"),
        ('all(inputs["A*"].x > inputs["B*"].x)', '"A*", "B*"'),
        ('all(any(inputs["*"].x))', "inside all()"),
        ('almost_all(inputs["*"].x, count(inputs["*"].y))', "inside almost_all()"),
        ('almost_all(inputs["*"].x, inputs["*"].n)', "may only stand in"),
        ('inputs["*"].x > 1', "may only stand in"),
        ("inputs.* > 1", "may only stand in"),
        ('"inputs.A" == "x"', "no dependency"),
        ("inputs.A == 1 # comment", "#"),
        ("print(inputs.A)", "print is not a function"),
        ("inputs.A.x > \x00", "unexpected"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_the_reason(text: str, mentions: str) -> None:
    assert mentions in fault(text)


def test_every_reference_that_is_no_dependency_is_named() -> None:
    message = fault('inputs.C.x > 0 and inputs["D e"] or inputs.A', ["A", "B"])

    assert '"C", "D e" are not in depends_on [A, B]' in message


def test_an_error_knows_where_it_is() -> None:
    with pytest.raises(ConditionError) as caught:
        Condition.parse("inputs.A.x > foo", ["A"])

    assert caught.value.position == 13
    assert "character 14" in str(caught.value)


# --- accepted, and what it means


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.A.x == 0x_5", True),
        ("inputs.A.x < 1_000", True),
        ("inputs.A.x > .5e1 or inputs.A.x >= 5.", True),
        ("inputs.A.x > -5", True),
        ("inputs.A.l[-1] == 3", True),
        ("inputs.A.l[-4] == null", True),
        ("inputs.A.l[3]", False),
        ("inputs.A[0]", False),
        ('inputs.A.l["0"]', False),
        ("not not inputs.A.x", True),
        ("not not not inputs.A.x", False),
        ("(not not inputs.A.x) == true", True),
        ("not inputs.A.x == 5", False),
        ("inputs.A.x == 5 == true", False),  # chained: 5 == true is false, a bool is no number
        ("inputs.A.x in []", False),
        ("inputs.A.x in ()", False),
        ("inputs.A.x in (5,)", True),
        ("inputs.A.l == [1, 2, 3]", True),
        ("inputs.A.l == (1, 2, 3,)", True),
        ("inputs.A.l != [1, 2, true]", True),
        ("[1, true] == [1, 1] or inputs.A.none", False),
        ("inputs.A.m == inputs.B", True),
        ("inputs.A.none in [null]", True),
        ("5 in inputs.A.m", False),
        ('"__class__" in inputs.A.m or inputs.A.m.keys', False),
        (r'inputs.A.s == "a\tb\x41\u00e9\101\d"', True),
        (r"inputs.A.raw == r'a\tb'", True),
        ("inputs.A.s > inputs.A.raw", False),
        ("(inputs.A.x and inputs.A.l) == true", True),
        ("inputs.A.big == 9007199254740993", True),  # exact, not as floats
        ("inputs.A.big == 9007199254740992.0", False),
        ('inputs . A ["x"] == 5', True),
        ("inputs.A.x\n  ==\n  5", True),
        ("inputs.A.true == null and inputs.A.match == null", True),
    ],
)
def test_expressions_mean_what_python_and_json_say(text: str, expected: bool) -> None:
    a = {
        "x": 5,
        "l": [1, 2, 3],
        "m": {"k": [1, {"n": None}]},
        "s": "a\tbA\xe9A\\d",
        "raw": r"a\tb",
        "big": 9007199254740993,
    }

    assert evaluate(text, {"A": a, "B": {"k": [1.0, {"n": None}]}}).value is expected


def test_a_text_in_quotes_is_never_taken_for_a_pattern_or_reference() -> None:
    condition = Condition.parse('inputs.A == "inputs.* and inputs.Z"', ["A"])

    assert condition.evaluate({"A": "inputs.* and inputs.Z"}).value is True
    assert condition.references == {"A"}


def test_patterns_are_matched_with_case_and_sets() -> None:
    names = {"fit-1": True, "fit-2": True, "Fit-3": True, "fit-a": True, "fit-": True, "a]b": True, "x.y": True}

    def count(pattern: str) -> int:
        verdicts = (evaluate(f'count(inputs["{pattern}"]) == {n}', names).value for n in range(9))
        return list(verdicts).index(True)

    found = {
        pattern: count(pattern)
        for pattern in ("fit-[0-9]", "fit-[!0-9]", "fit-?", "*-*", "F*", "*]*", "[a]]b", "x[.]y")
    }
    assert found == {"fit-[0-9]": 2, "fit-[!0-9]": 1, "fit-?": 3, "*-*": 5, "F*": 1, "*]*": 1, "[a]]b": 1, "x[.]y": 1}


def test_a_pattern_stands_for_the_same_element_throughout_its_aggregate() -> None:
    pairs = {"a": {"lo": 1, "hi": 2}, "b": {"lo": 5, "hi": 3}}

    assert evaluate('count(inputs["*"].lo < inputs["*"].hi) == 1', pairs).value is True


def test_almost_all_takes_its_number_from_anywhere_but_patterns() -> None:
    fits = {"f1": True, "f2": False, "f3": False, "n": {"allowed": 2}}

    assert evaluate('almost_all(inputs["f*"], inputs.n.allowed)', fits).value is True
    assert evaluate('almost_all(inputs["zzz*"], -1) or inputs.f2', fits).value is False
    unknown = evaluate('almost_all(inputs["f*"], inputs.n.typo)', fits)
    assert (unknown.value, unknown.reasons) == (None, ("inputs.n.typo: missing is no number",))
    assert evaluate('almost_all(inputs["f*"], true) or inputs.f2', fits).value is None


# --- unknown


def test_three_valued_logic() -> None:
    inputs = {"A": {"t": True, "f": False}}
    words = {"t": "inputs.A.t", "f": "inputs.A.f", "u": "(inputs.A.u > 1)"}
    both: dict[str, bool | None] = {"tu": None, "fu": False, "uu": None, "tf": False, "tt": True, "ff": False}
    either: dict[str, bool | None] = {"tu": True, "fu": None, "uu": None, "tf": True, "tt": True, "ff": False}

    for pair in both:
        for one, other in itertools.permutations(pair):
            assert evaluate(f"{words[one]} and {words[other]}", inputs).value is both[pair]
            assert evaluate(f"{words[one]} or {words[other]}", inputs).value is either[pair]
    assert [evaluate(f"not {words[word]}", inputs).value for word in "tfu"] == [False, True, None]


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("inputs.A.y > 1", ("inputs.A.y: missing",)),
        ("1 < inputs.A.x < inputs.A.y", ("inputs.A.y: missing",)),
        ("inputs.A.y > inputs.A.z", ("inputs.A.y: missing", "inputs.A.z: missing")),
        ('inputs.A.x < "9"', ('inputs.A.x: 5 < "9"',)),
        ('"9" > inputs.A.x', ('inputs.A.x: "9" > 5',)),
        ("inputs.A.n >= 0", ("inputs.A.n: null >= 0",)),
        ("inputs.A.nan < 1", ("inputs.A.nan: nan < 1",)),
        ("inputs.A.t < 1", ("inputs.A.t: true < 1",)),
        ("1 in inputs.A.x", ("inputs.A.x: 1 in 5",)),
        ("1 in inputs.A.s", ('inputs.A.s: 1 in "txt"',)),
        ("inputs.A.y > 1 and inputs.A.z > 1 and inputs.A.y > 2", ("inputs.A.y: missing", "inputs.A.z: missing")),
        ("(inputs.A.y > 1 and inputs.A.n) or inputs.A.z > 1", ("inputs.A.z: missing",)),  # the first is false anyway
        ("(inputs.A.x and inputs.A.y > 1) == true", ("inputs.A.y: missing",)),
        ('inputs["two words"][0].k > 1', ('inputs["two words"][0].k: missing',)),
        ('count(inputs.*) < "x"', ('count(inputs["*"]): 2 < "x"',)),
        ('all(inputs["A*"].y > 1) or inputs.A.z > 1', ("inputs.A.z: missing",)),
    ],
)
def test_the_reason_names_what_was_missing_or_could_not_be_compared(text: str, reasons: tuple[str, ...]) -> None:
    a = {"x": 5, "n": None, "nan": float("nan"), "t": True, "s": "txt"}

    verdict = evaluate(text, {"A": a, "two words": [0]} if "two" in text or "*)" in text else {"A": a})

    assert verdict == Verdict(None, reasons)


# --- dependencies that have not ended

PENDING_CASES = [
    # (condition, value, waits for) with A = {x: 5, f: false} ended, and P, Q still running
    ("inputs.P.ok", None, "P"),
    ("inputs.P.x < 1", None, "P"),
    ("inputs.P.x == 1 or inputs.A.x == 5", True, ""),
    ("inputs.P.x == 1 and inputs.A.f", False, ""),
    ("inputs.P.x and inputs.A.x", None, "P"),
    ("inputs.P.x and inputs.Q.x", None, "PQ"),
    ("not inputs.P.x", None, "P"),
    ("inputs.A.x > 1 or inputs.A.missing > 1 or inputs.P", True, ""),
    ("inputs.A.missing > 1 or inputs.P.ok", None, "P"),  # P may still make it true
    ("inputs.A.missing > 1 and inputs.P.ok", None, ""),  # P cannot: unknown or false, a skip either way
    ("(inputs.A.x or inputs.P.x) and (inputs.A.f or inputs.Q.x)", None, "Q"),
    ("inputs.P.x == inputs.Q.x", None, "PQ"),
    ("inputs.P.x in []", False, ""),
    ("inputs.P.x in [1, 2]", None, "P"),
    ("1 in inputs.P.x", None, "P"),
    ("inputs.A.x in [1, inputs.P.x]", None, "P"),
    ("(inputs.P.x or inputs.A.f) == true", None, "P"),
    ('any(inputs["*"].x)', True, ""),
    ('all(inputs["*"].x)', None, "PQ"),
    ('all(inputs["*"].f)', False, ""),
    ('all(inputs["[PQ]"].x)', None, "PQ"),
    ('count(inputs["*"].x) >= 1', True, ""),
    ('count(inputs["*"].x) >= 2', None, "PQ"),
    ('count(inputs["*"].x) >= 4', False, ""),
    ('count(inputs["*"].x) < 4', True, ""),
    ('count(inputs["*"].x) == 0', False, ""),
    ('count(inputs["*"].x) == 2', None, "PQ"),
    ('count(inputs["*"].x) != 9', True, ""),
    ('count(inputs["*"].x) in [1, 2]', None, "PQ"),
    ('count(inputs["*"].x)', True, ""),
    ('count(inputs["*"].f)', None, "PQ"),
    ('1 <= count(inputs["*"].x) <= 3', True, ""),
    ('almost_all(inputs["*"].x, 2)', True, ""),
    ('almost_all(inputs["*"].x, 1)', None, "PQ"),
    ('almost_all(inputs["*"].f, 0)', False, ""),
    ('almost_all(inputs["A*"].x, inputs.P)', None, "P"),
]


@pytest.mark.parametrize(("text", "value", "waits_for"), PENDING_CASES)
def test_a_condition_waits_only_for_what_may_still_make_it_true(text: str, value: bool | None, waits_for: str) -> None:
    verdict = evaluate(text, {"A": {"x": 5, "f": False}}, ("P", "Q"))

    assert (verdict.value, verdict.waits_for) == (value, frozenset(waits_for))


def test_only_the_outputs_a_condition_looks_at_are_needed() -> None:
    condition = Condition.parse('inputs.A.x > 1 and all(inputs["fit-*"].ok)', ["A", "B", "fit-1", "fit-2"])

    assert condition.inputs_needed(["A", "B", "fit-1", "fit-2"]) == {"A", "fit-1", "fit-2"}
    assert condition.patterns == {"fit-*"}


# --- bounds


@pytest.mark.parametrize("joiner", [" and ", " or "])
def test_a_flat_chain_of_ten_thousand_terms_is_no_problem(joiner: str) -> None:
    names = [f"fit-{number}" for number in range(10_000)]
    text = joiner.join(f'inputs["{name}"].loss < 0.5' for name in names)

    condition = Condition.parse(text, names)

    assert condition.evaluate({name: {"loss": 0.1} for name in names}).value is True
    assert condition.evaluate({name: {"loss": 0.9} for name in names}).value is False
    assert len(condition.evaluate(dict.fromkeys(names)).reasons) == 10_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "inputs.A" + ")" * 10_000,
        "[" * 101 + "inputs.A" + "]" * 101,
        "not (" * 5_000 + "inputs.A" + ")" * 5_000,
        "inputs.A == (" * 5_000,
        "(" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_nesting_is_bounded(text: str) -> None:
    assert "nested more than 100 deep" in fault(text)


def test_a_hundred_levels_are_not_too_many() -> None:
    text = "(" * 100 + "inputs.A" + ")" * 100
    mixed = "inputs.A"
    for _ in range(45):
        mixed = f"(not ({mixed} == 1 or inputs.A)) and inputs.A"

    assert evaluate(text, {"A": 1}).value is True
    assert evaluate(mixed, {"A": 1}).value in (True, False)


def test_many_nots_and_long_paths_are_flat() -> None:
    assert evaluate("not " * 10_001 + "inputs.A", {"A": 1}).value is False
    assert evaluate("inputs.A" + ".x" * 10_000, {"A": 1}).value is False
    assert evaluate("1" + " < inputs.A" * 10_000, {"A": 2}).value is False


def test_length_is_bounded() -> None:
    assert "characters" in fault("inputs.A == 1 or " * 300_000 + "inputs.A")


def test_cost_is_bounded_when_it_is_parsed() -> None:
    names = [f"t{number}" for number in range(10_000)]

    assert "looks at" in fault(" and ".join(['all(inputs["*"].x == 1)'] * 1_000), names)


def test_cost_is_bounded_when_it_is_evaluated() -> None:
    verdict = evaluate(" and ".join(["inputs.A == inputs.B"] * 1_000), {"A": [0] * 100_000, "B": [0] * 100_000})

    assert verdict == Verdict(None, ("the outputs are too large to evaluate this condition on",))


def test_deep_outputs_are_compared_without_recursion() -> None:
    def nest(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    assert evaluate("inputs.A == inputs.B", {"A": nest(50_000), "B": nest(50_000)}).value is True


def test_objects_of_other_kinds_are_true_and_equal_to_nothing() -> None:
    class Trap:
        def __bool__(self) -> bool:
            raise AssertionError("looked at")

        __eq__ = __lt__ = __bool__  # type: ignore[assignment]
        __hash__ = None  # type: ignore[assignment]

    assert evaluate("inputs.A and not inputs.A == inputs.A", {"A": Trap()}).value is True
    assert evaluate("inputs.A < 1", {"A": Trap()}).value is None
