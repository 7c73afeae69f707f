"""The nodes of a condition and what they are worth over given outputs (facts: jobq, sections 2.3 to 2.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dagkit.model.problems import shown
from dagkit.model.truth import (
    FALSE,
    MISSING,
    NO_ANSWER,
    TRUE,
    UNDECIDED,
    UNKNOWN,
    Evaluation,
    Open,
    answer,
    compare,
    conjunction,
    is_number,
    negated,
    truth_of,
)

__all__ = ["Aggregate", "And", "Comparison", "Display", "Expression", "Literal", "Not", "Or", "Reference"]


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
        return answer(self.truth(at))

    def __str__(self) -> str:
        return "(...)"


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
        return negated(self.item.truth(at))


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
        return at.settle(negated(conjunction(negated(item.truth(at)) for item in self.items)), mark)


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
            return answer(TRUE if low else UNDECIDED if high else FALSE)
        if self.kind == "all" or self.limit is None:
            return answer(TRUE if low == total else UNDECIDED if high == total else FALSE)
        return self._almost_all(total - high, total - low, self.limit.value(at), at)

    def _almost_all(self, fewest: int, most: int, limit: Any, at: Evaluation) -> Any:
        """`fewest` to `most` elements do not hold, and `limit` of them may."""
        if isinstance(limit, Open) and limit.low is None:
            return Open()
        if not isinstance(limit, Open) and not is_number(limit):
            at.reasons.append(f"{self.limit}: {'missing' if limit is MISSING else shown(limit)} is no number")
            return NO_ANSWER
        return answer(compare("<=", Open(fewest, most) if fewest != most else fewest, limit, at))
