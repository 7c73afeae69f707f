"""Truth of three values over JSON: what is equal, ordered, contained, true (facts: jobq, sections 2.3, 2.4, 2.6).

While dependencies run it is not yet known which value a truth will have. So a truth is the *set* of the values it may
still take, as bits; a decided one has a single bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "FALSE",
    "MISSING",
    "NO_ANSWER",
    "TRUE",
    "UNDECIDED",
    "UNKNOWN",
    "Evaluation",
    "Open",
    "TooCostly",
    "answer",
    "compare",
    "conjunction",
    "is_number",
    "negated",
    "truth_of",
]

TRUE: Final = 1
FALSE: Final = 2
UNKNOWN: Final = 4
UNDECIDED: Final = TRUE | FALSE
_SINGLE: Final = frozenset({TRUE, FALSE, UNKNOWN})

MAX_STEPS: Final = 2_000_000


class TooCostly(Exception):
    """An evaluation that would take longer than any sensible condition does."""


class _Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING: Final = _Sentinel("missing")
NO_ANSWER: Final = _Sentinel("unknown")


@dataclass(frozen=True, slots=True)
class Open:
    """A value that depends on tasks which have not ended; a count lies within `low` and `high`."""

    low: int | None = None
    high: int | None = None


class Evaluation:
    """One look at the outputs: collects why something is unknown and what is being waited for."""

    def __init__(
        self, inputs: Mapping[str, Any], pending: Collection[str], matching: Callable[[str], list[str]]
    ) -> None:
        self.inputs, self.pending, self.matching = inputs, pending, matching
        self.element: str | None = None
        self.reasons: list[str] = []
        self.waits_for: list[str] = []
        self._steps = 0

    def spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooCostly

    def mark(self) -> tuple[int, int]:
        return len(self.reasons), len(self.waits_for)

    def settle(self, truth: int, mark: tuple[int, int]) -> int:
        """Forget reasons that did not matter in the end, and waits for what is decided without them."""
        if not truth & UNKNOWN:
            del self.reasons[mark[0] :]
        if truth in _SINGLE:
            del self.waits_for[mark[1] :]
        return truth


def truth_of(value: Any) -> int:
    """null, missing, false, 0 and what is empty are false; all else is true."""
    if isinstance(value, Open):
        if value.low is not None and value.low > 0:
            return TRUE
        return FALSE if value.high == 0 else UNDECIDED
    if value is NO_ANSWER:
        return UNKNOWN
    if value is MISSING or value is None:
        return FALSE
    is_json = isinstance(value, (bool, int, float, str, list, tuple, dict))
    return TRUE if not is_json or value else FALSE


def answer(truth: int) -> Any:
    return {TRUE: True, FALSE: False, UNKNOWN: NO_ANSWER}.get(truth, Open())


def negated(truth: int) -> int:
    return truth & UNKNOWN | (FALSE if truth & TRUE else 0) | (TRUE if truth & FALSE else 0)


def conjunction(truths: Iterable[int]) -> int:
    """The values that `a and b and ...` may take, given those of its terms, which are independent of each other."""
    common, never_false, union = TRUE, True, 0
    for truth in truths:
        common &= truth
        union |= truth
        never_false = never_false and truth != FALSE
    return common | union & FALSE | (union & UNKNOWN if never_false else 0)


_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(symbol: str, left: Any, right: Any, at: Evaluation) -> int:
    """One link of a comparison."""
    if left is NO_ANSWER or right is NO_ANSWER:
        return UNKNOWN
    if isinstance(left, Open) or isinstance(right, Open):
        return _compare_open(symbol, left, right, at)
    if symbol in _ORDER:
        return _ordered(symbol, left, right)
    answer = is_equal(left, right, at) if symbol in ("==", "!=") else _contains(right, left, at)
    if answer is None:
        return UNKNOWN
    return TRUE if answer is not (symbol in ("!=", "not in")) else FALSE


def _ordered(symbol: str, left: Any, right: Any) -> int:
    both_numbers = is_number(left) and is_number(right)
    if both_numbers or (isinstance(left, str) and isinstance(right, str)):
        return TRUE if _ORDER[symbol](left, right) else FALSE
    return UNKNOWN


def is_number(value: Any) -> bool:
    """NaN is not one: nothing can be said about its order, and JSON has no such thing."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _compare_open(symbol: str, left: Any, right: Any, at: Evaluation) -> int:
    """A link with an operand that is still open; of counts the range is known."""
    one, other = _range(left), _range(right)
    if one and other and symbol not in ("in", "not in"):
        (low, high), (least, most) = one, other
        if symbol in _ORDER:
            return _ordered(symbol, low, most) | _ordered(symbol, high, least)
        truth = TRUE | (FALSE if low != high or least != most else 0) if low <= most and least <= high else FALSE
        return truth if symbol == "==" else negated(truth)
    if symbol in ("==", "!="):
        return UNDECIDED
    if symbol in ("in", "not in") and isinstance(right, (list, tuple, dict)):
        return UNDECIDED if right else (FALSE if symbol == "in" else TRUE)
    return UNDECIDED | UNKNOWN


def _range(value: Any) -> tuple[Any, Any] | None:
    if isinstance(value, Open):
        return None if value.low is None else (value.low, value.high)
    return (value, value) if is_number(value) else None


def _contains(container: Any, item: Any, at: Evaluation) -> bool | None:
    if isinstance(container, (list, tuple)):
        at.spend(len(container))
        return any(is_equal(item, element, at) for element in container)
    if isinstance(container, str):
        at.spend(len(container) // 64)
        return item in container if isinstance(item, str) else None
    if isinstance(container, dict):
        return isinstance(item, str) and item in container
    return None


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    tuple: "list",
    dict: "mapping",
}


def _kind(value: Any) -> str:
    if value is None or value is MISSING:
        return "null"
    return _KINDS.get(type(value)) or next((name for kind, name in _KINDS.items() if isinstance(value, kind)), "other")


def is_equal(left: Any, right: Any, at: Evaluation) -> bool:
    """Numbers by value, lists and mappings element by element; different kinds are unequal, and a bool is no number."""
    stack = [(left, right)]
    while stack:
        one, other = stack.pop()
        kind = _kind(one)
        if kind != _kind(other) or kind == "other":
            return False
        if kind == "list":
            if len(one) != len(other):
                return False
            at.spend(len(one))
            stack += zip(one, other, strict=True)
        elif kind == "mapping":
            if one.keys() != other.keys():
                return False
            at.spend(len(one))
            stack += [(value, other[key]) for key, value in one.items()]
        elif kind != "null" and one != other:
            return False
    return True
