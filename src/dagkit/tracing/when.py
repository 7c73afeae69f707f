"""Conditions by operators: `m["mae"] < 0.1`, `&`, `|`, `~`, `all_of(...)`; what `when=` takes.

A condition is a small immutable tree. `dagkit.tracing.conditions` writes it in the language of the YAML model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from dagkit.errors import ConditionError, TracingError

if TYPE_CHECKING:
    from dagkit.trace import Node

__all__ = [
    "Aggregate",
    "AllOf",
    "AnyOf",
    "Comparison",
    "Condition",
    "Not",
    "Operand",
    "Truth",
    "all_of",
    "almost_all",
    "any_of",
    "as_condition",
    "count_of",
]


class _Logic:
    """`&`, `|` and `~`, for conditions and for refs taken as true or false."""

    __slots__ = ()

    def __and__(self, other: object) -> Condition:
        return AllOf([as_condition(self), as_condition(other)])

    def __or__(self, other: object) -> Condition:
        return AnyOf([as_condition(self), as_condition(other)])

    def __rand__(self, other: object) -> Condition:
        return AllOf([as_condition(other), as_condition(self)])

    def __ror__(self, other: object) -> Condition:
        return AnyOf([as_condition(other), as_condition(self)])

    def __invert__(self) -> Condition:
        return Not(as_condition(self))


class Operand(_Logic):
    """A node or a ref: something whose value a condition can compare. Identity is its hash; `==` makes a condition."""

    __slots__ = ()

    if TYPE_CHECKING:
        _node: Node[Any]
        _path: tuple[str | int, ...]

    def __lt__(self, other: object) -> Condition:
        return Comparison("<", self, other)

    def __le__(self, other: object) -> Condition:
        return Comparison("<=", self, other)

    def __gt__(self, other: object) -> Condition:
        return Comparison(">", self, other)

    def __ge__(self, other: object) -> Condition:
        return Comparison(">=", self, other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return Comparison("==", self, other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return Comparison("!=", self, other)

    __hash__ = object.__hash__


class Condition(_Logic):
    """What `when=` takes: true, false or unknown once the tasks it looks at have ended."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TracingError(
            f"{self} is a condition for when=, not a value: it is decided while the workflow runs. Combine conditions "
            f"with & | ~ in parentheses, `(0 < m) & (m < 1)`, not with and, or, not, `in` or a chained comparison; a "
            f"task that should run only if it holds is task.options(when=...)(...). Compare nodes themselves with `is`."
        )

    def __eq__(self, other: object) -> NoReturn:
        raise TracingError(f"{self}: a condition cannot be compared; use & | ~ to combine conditions")

    __hash__ = object.__hash__

    def __reduce__(self) -> NoReturn:
        raise TracingError(f"{self} is a condition for when=; it cannot be an argument of a task")

    def __repr__(self) -> str:
        from dagkit.tracing.conditions import describe

        return describe(self)

    def nodes(self) -> list[Node[Any]]:
        """The nodes the condition looks at, each once, in order of appearance."""
        found: dict[Node[Any], None] = {}
        todo: list[Condition] = [self]
        while todo:
            condition = todo.pop()
            for operand in condition.operands():
                found[operand._node] = None
            todo.extend(reversed(condition.parts()))
        return list(found)

    def parts(self) -> tuple[Condition, ...]:
        return ()

    def operands(self) -> tuple[Operand, ...]:
        return ()


class Truth(Condition):
    """A ref taken as true or false."""

    __slots__ = ("ref",)

    def __init__(self, ref: Operand) -> None:
        self.ref = ref

    def operands(self) -> tuple[Operand, ...]:
        return (self.ref,)


class Comparison(Condition):
    """`left op right`; each side a ref, a count, or a literal."""

    __slots__ = ("left", "op", "right")

    def __init__(self, op: str, left: object, right: object) -> None:
        if isinstance(right, Condition) and not (isinstance(right, Aggregate) and right.kind == "count"):
            raise TracingError(
                f"{right} is a condition and cannot be compared with {op}; put parentheses around comparisons"
            )
        self.op, self.left, self.right = op, left, right

    def operands(self) -> tuple[Operand, ...]:
        return tuple(side for side in (self.left, self.right) if isinstance(side, Operand))

    def parts(self) -> tuple[Condition, ...]:
        return tuple(side for side in (self.left, self.right) if isinstance(side, Aggregate))


class Not(Condition):
    __slots__ = ("item",)

    def __init__(self, item: Condition) -> None:
        self.item = item

    def parts(self) -> tuple[Condition, ...]:
        return (self.item,)


class _Joined(Condition):
    """Conditions joined by one operator; joining one of the same kind flattens it, so that long chains stay flat."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Condition]) -> None:
        flat: list[Condition] = []
        for item in items:
            flat.extend(item.items if isinstance(item, _Joined) and type(item) is type(self) else (item,))
        self.items: tuple[Condition, ...] = tuple(flat)

    def parts(self) -> tuple[Condition, ...]:
        return self.items


class AllOf(_Joined):
    """`a & b & ...`."""

    __slots__ = ()


class AnyOf(_Joined):
    """`a | b | ...`."""

    __slots__ = ()


class Aggregate(Condition):
    """`all`, `any`, `count` or `almost_all` over conditions on many tasks; an unknown element does not hold.

    `count_of(...)` compares with numbers: `count_of(...) >= 3`; by itself it is true unless 0.
    """

    __slots__ = ("items", "kind", "limit")

    def __init__(self, kind: str, items: Iterable[object], limit: int = 0) -> None:
        self.kind, self.limit = kind, limit
        self.items = tuple(as_condition(item) for item in items)
        if not self.items:
            raise ConditionError(
                f"{_FUNCTION_OF[kind]}()", "there is nothing to decide over: it was given no conditions"
            )

    def parts(self) -> tuple[Condition, ...]:
        return self.items

    def _compared(self, op: str, other: object) -> Condition:
        if self.kind != "count":
            raise TracingError(f"{self} is true or false and cannot be compared; count_of(...) {op} n can")
        if isinstance(other, bool) or not isinstance(other, (int, Operand)):
            raise ConditionError(f"count_of(...) {op} {other!r:.40}", "a count compares with an integer or a ref")
        return Comparison(op, self, other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("!=", other)

    __hash__ = object.__hash__


_FUNCTION_OF = {"all": "all_of", "any": "any_of", "count": "count_of", "almost_all": "almost_all"}


def as_condition(value: object) -> Condition:
    """A condition as it is; a node or ref as its truth; anything else is a `TracingError`."""
    if isinstance(value, Condition):
        return value
    if isinstance(value, Operand):
        return Truth(value)
    raise TracingError(
        f"{value!r:.80} is not a condition. Put parentheses around comparisons that are joined by & or |: "
        f'`(a["mae"] < 0.1) & (b["ok"] == True)`.'
    )


def _given(conditions: tuple[object, ...]) -> Iterable[object]:
    """Several conditions, or one iterable of them."""
    if len(conditions) == 1 and not isinstance(conditions[0], (Condition, Operand)):
        return iter(conditions[0])  # type: ignore[call-overload,no-any-return]
    return conditions


def all_of(*conditions: object) -> Aggregate:
    """True if every condition holds: `all_of(m["loss"] < 0.1 for m in models)`. An iterable, or several arguments."""
    return Aggregate("all", _given(conditions))


def any_of(*conditions: object) -> Aggregate:
    """True if at least one condition holds."""
    return Aggregate("any", _given(conditions))


def count_of(*conditions: object) -> Aggregate:
    """How many conditions hold, to be compared: `count_of(m["ok"] for m in models) >= 3`."""
    return Aggregate("count", _given(conditions))


def almost_all(conditions: Iterable[object], failures: int) -> Aggregate:
    """True if at most `failures` of the conditions do not hold."""
    if isinstance(failures, bool) or not isinstance(failures, int) or failures < 0:
        raise ConditionError(f"almost_all(..., {failures!r:.40})", "how many may fail is an integer, 0 or more")
    return Aggregate("almost_all", conditions, failures)
