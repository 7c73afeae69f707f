"""The nodes of a condition and what they are worth over given outputs (facts: jobq, sections 2.3 to 2.6).

Truth has three values, and while dependencies run it is not yet known which one it will be. So a truth is the *set* of
the values it may still take, as bits; a decided one has a single bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dagkit.model.problems import shown

__all__ = ["Aggregate", "And", "Comparison", "Display", "Evaluation", "Expression", "Literal", "Not", "Or", "Reference"]

TRUE: Final = 1
FALSE: Final = 2
UNKNOWN: Final = 4
_UNDECIDED: Final = TRUE | FALSE
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


class Expression(Protocol):
    """A node. `value` is JSON, MISSING, NO_ANSWER or Open; `truth` a set of bits."""

    @property
    def height(self) -> int: ...
    @property
    def size(self) -> int: ...
    def value(self, at: Evaluation) -> Any: ...
    def truth(self, at: Evaluation) -> int: ...


def _size(items: Iterable[Expression]) -> int:
    return 1 + sum(item.size for item in items)


def _height(items: Iterable[Expression]) -> int:
    return 1 + max((item.height for item in items), default=0)


class _Valued:
    """Nodes whose truth follows from their value."""

    __slots__ = ()

    def truth(self: Any, at: Evaluation) -> int:
        return truth_of(self.value(at))


class _Logical:
    """Nodes whose value is their truth."""

    __slots__ = ()

    def value(self: Any, at: Evaluation) -> Any:
        return _answer(self.truth(at))

    def __str__(self) -> str:
        return "(...)"


def truth_of(value: Any) -> int:
    """null, missing, false, 0 and what is empty are false; all else is true."""
    if isinstance(value, Open):
        if value.low is not None and value.low > 0:
            return TRUE
        return FALSE if value.high == 0 else _UNDECIDED
    if value is NO_ANSWER:
        return UNKNOWN
    if value is MISSING or value is None:
        return FALSE
    is_json = isinstance(value, (bool, int, float, str, list, tuple, dict))
    return TRUE if not is_json or value else FALSE


@dataclass(frozen=True, slots=True)
class Literal(_Valued):
    constant: Any
    height: int = 1
    size: int = 1

    def value(self, at: Evaluation) -> Any:
        return self.constant

    def __str__(self) -> str:
        return shown(self.constant)


@dataclass(frozen=True, slots=True)
class Reference(_Valued):
    """`inputs.NAME.field[0]`; `name` is a pattern if `is_pattern`."""

    name: str
    steps: tuple[str | int, ...]
    is_pattern: bool = False
    height: int = 1
    size: int = 1

    def value(self, at: Evaluation) -> Any:
        at.spend(1)
        name = at.element if self.is_pattern and at.element is not None else self.name
        if name in at.pending:
            at.waits_for.append(name)
            return Open()
        found = at.inputs.get(name)
        for step in self.steps:
            found = _step(found, step)
        return found

    def __str__(self) -> str:
        return "inputs" + "".join(map(_step_text, (self.name, *self.steps)))


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value[step] if isinstance(value, dict) and step in value else MISSING
    if isinstance(value, (list, tuple)) and -len(value) <= step < len(value):
        return value[step]
    return MISSING


def _step_text(step: str | int) -> str:
    return f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{shown(step)}]"


@dataclass(frozen=True, slots=True)
class Display(_Valued):
    """`[a, b]` or `(a, b)`."""

    items: tuple[Expression, ...]

    def value(self, at: Evaluation) -> Any:
        at.spend(len(self.items))
        values = [item.value(at) for item in self.items]
        if any(value is NO_ANSWER for value in values):
            return NO_ANSWER
        if any(isinstance(value, Open) for value in values):
            return Open()
        return [None if value is MISSING else value for value in values]

    @property
    def height(self) -> int:
        return _height(self.items)

    @property
    def size(self) -> int:
        return _size(self.items)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True, slots=True)
class Not(_Logical):
    item: Expression
    height: int
    size: int

    def truth(self, at: Evaluation) -> int:
        return _negated(self.item.truth(at))


def _negated(truth: int) -> int:
    return truth & UNKNOWN | (FALSE if truth & TRUE else 0) | (TRUE if truth & FALSE else 0)


@dataclass(frozen=True, slots=True)
class And(_Logical):
    items: tuple[Expression, ...]
    height: int
    size: int

    def truth(self, at: Evaluation) -> int:
        mark = at.mark()
        at.spend(len(self.items))
        return at.settle(conjunction(item.truth(at) for item in self.items), mark)


@dataclass(frozen=True, slots=True)
class Or(_Logical):
    items: tuple[Expression, ...]
    height: int
    size: int

    def truth(self, at: Evaluation) -> int:
        mark = at.mark()
        at.spend(len(self.items))
        return at.settle(_negated(conjunction(_negated(item.truth(at)) for item in self.items)), mark)


def conjunction(truths: Iterable[int]) -> int:
    """The values that `a and b and ...` may take, given those of its terms, which are independent of each other."""
    common, never_false, union = TRUE, True, 0
    for truth in truths:
        common &= truth
        union |= truth
        never_false = never_false and truth != FALSE
    return common | union & FALSE | (union & UNKNOWN if never_false else 0)


@dataclass(frozen=True, slots=True)
class Comparison(_Logical):
    """`first < second <= third`: the `and` of its links."""

    first: Expression
    links: tuple[tuple[str, Expression], ...]
    height: int
    size: int

    def truth(self, at: Evaluation) -> int:
        mark = at.mark()
        at.spend(len(self.links))
        return at.settle(conjunction(self._truths(at)), mark)

    def _truths(self, at: Evaluation) -> list[int]:
        left, left_value, truths = self.first, self.first.value(at), []
        for symbol, right in self.links:
            right_value = right.value(at)
            truth = compare(symbol, left_value, right_value, at)
            if truth == UNKNOWN:
                at.reasons += _why(symbol, (left, left_value), (right, right_value))
            truths.append(truth)
            left, left_value = right, right_value
        return truths


def _why(symbol: str, left: tuple[Expression, Any], right: tuple[Expression, Any]) -> list[str]:
    """What could not be compared: every path that is missing, else what was found at the paths."""
    operands = (left, right)
    if any(value is NO_ANSWER for _, value in operands):
        return []
    if absent := [f"{node}: missing" for node, value in operands if value is MISSING]:
        return absent
    found = f"{shown(left[1])} {symbol} {shown(right[1])}"
    named = [node for node, _ in operands if not isinstance(node, (Literal, Display))]
    return [f"{named[0]}: {found}" if named else found]


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
    both_numbers = _is_number(left) and _is_number(right)
    if both_numbers or (isinstance(left, str) and isinstance(right, str)):
        return TRUE if _ORDER[symbol](left, right) else FALSE
    return UNKNOWN


def _is_number(value: Any) -> bool:
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
        return truth if symbol == "==" else _negated(truth)
    if symbol in ("==", "!="):
        return _UNDECIDED
    if symbol in ("in", "not in") and isinstance(right, (list, tuple, dict)):
        return _UNDECIDED if right else (FALSE if symbol == "in" else TRUE)
    return _UNDECIDED | UNKNOWN


def _range(value: Any) -> tuple[Any, Any] | None:
    if isinstance(value, Open):
        return None if value.low is None else (value.low, value.high)
    return (value, value) if _is_number(value) else None


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


@dataclass(frozen=True, slots=True)
class Aggregate(_Valued):
    """`all`, `any`, `count` or `almost_all` over the dependencies that a pattern matches."""

    kind: str
    pattern: str
    body: Expression
    limit: Expression | None = None

    @property
    def height(self) -> int:
        return _height([self.body] if self.limit is None else [self.body, self.limit])

    @property
    def size(self) -> int:
        return _size([self.body] if self.limit is None else [self.body, self.limit])

    def __str__(self) -> str:
        return f"{self.kind}(inputs[{shown(self.pattern)}])"

    def value(self, at: Evaluation) -> Any:
        names = at.matching(self.pattern)
        mark = at.mark()
        holding, undecided = self._tally(names, at)
        del at.reasons[mark[0] :]
        value = self._result(len(names), holding, undecided, at)
        if not isinstance(value, Open):
            del at.waits_for[mark[1] :]
        return value

    def _tally(self, names: list[str], at: Evaluation) -> tuple[int, int]:
        """How many elements hold, and of how many it is open."""
        holding = undecided = 0
        for at.element in names:
            truth = self.body.truth(at)
            holding += truth == TRUE
            undecided += truth != TRUE and bool(truth & TRUE)
        at.element = None
        return holding, undecided

    def _result(self, total: int, holding: int, undecided: int, at: Evaluation) -> Any:
        low, high = holding, holding + undecided
        if self.kind == "count":
            return low if low == high else Open(low, high)
        if self.kind == "any":
            return _answer(TRUE if low else _UNDECIDED if high else FALSE)
        if self.kind == "all" or self.limit is None:
            return _answer(TRUE if low == total else _UNDECIDED if high == total else FALSE)
        return self._almost_all(total - high, total - low, self.limit.value(at), at)

    def _almost_all(self, fewest: int, most: int, limit: Any, at: Evaluation) -> Any:
        """`fewest` to `most` elements do not hold, and `limit` of them may."""
        if isinstance(limit, Open) and limit.low is None:
            return Open()
        if not isinstance(limit, Open) and not _is_number(limit):
            at.reasons.append(f"{self.limit}: {'missing' if limit is MISSING else shown(limit)} is no number")
            return NO_ANSWER
        return _answer(compare("<=", Open(fewest, most) if fewest != most else fewest, limit, at))


def _answer(truth: int) -> Any:
    return {TRUE: True, FALSE: False, UNKNOWN: NO_ANSWER}.get(truth, Open())
