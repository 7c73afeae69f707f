"""Writes conditions in the condition language of the YAML model (facts: jobq, section 2)."""

from __future__ import annotations

import itertools
import json
import keyword
import math
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import ConditionError
from dagkit.model.patterns import select
from dagkit.tracing.when import Aggregate, AllOf, AnyOf, Comparison, Condition, Not, Operand, Truth

if TYPE_CHECKING:
    from dagkit.trace import Node

__all__ = ["describe", "write"]

#: Alternatives that a count without a matching pattern may be spelled out as.
MAX_ALTERNATIVES: Final = 200
MAX_NESTING: Final = 40

_WORDS: Final = frozenset(keyword.kwlist) | {"true", "false", "null", "inputs"}
#: Characters that mean something else inside the brackets of a pattern.
_NEVER_IN_CLASS: Final = "]!^\\"
_HOLE: Final = "inputs[\0]"


def write(condition: Condition, name_of: Callable[[Node[Any]], str], dependencies: Collection[str]) -> str:
    """The text of a condition for a task with these direct dependencies. `ConditionError` for what cannot be said."""
    return _Writer(name_of, dependencies).text(condition)


def describe(condition: Condition) -> str:
    """The condition for people, in the words of the declarations."""
    try:
        return _Writer(lambda node: node._name, None).text(condition)
    except ConditionError:
        return f"<{type(condition).__name__}>"


class _Writer:
    """`is_exact` marks places where unknown and false are told apart (under `not`): there an element of an aggregate
    that is spelled out is wrapped so that unknown does not hold, as in the aggregate it stands for."""

    def __init__(self, name_of: Callable[[Node[Any]], str], dependencies: Collection[str] | None) -> None:
        self.name_of, self.dependencies = name_of, dependencies

    def text(self, condition: Condition, is_exact: bool = False, depth: int = 0) -> str:
        if depth > MAX_NESTING:
            raise ConditionError(
                "condition", f"it is nested more than {MAX_NESTING} deep; use all_of(...) and any_of(...)"
            )
        if isinstance(condition, Aggregate):
            return self.aggregate(condition, is_exact, depth + 1)
        if isinstance(condition, Truth):
            return self.leaf(condition)
        if isinstance(condition, Not):
            text = self.text(condition.item, True, depth + 1)
            return (
                f"not {text}" if isinstance(condition.item, (Truth, Aggregate)) and " " not in text else f"not ({text})"
            )
        if isinstance(condition, (AllOf, AnyOf)):
            word = " and " if isinstance(condition, AllOf) else " or "
            return word.join(self.enclosed(item, is_exact, depth) for item in condition.items)
        if isinstance(condition, Comparison):
            return self.comparison(condition, depth + 1)
        raise TypeError(f"{type(condition).__name__} is no kind of condition")

    def enclosed(self, condition: Condition, is_exact: bool, depth: int) -> str:
        text = self.text(condition, is_exact, depth + 1)
        needs_none = isinstance(condition, (Truth, Not, Comparison)) and " and " not in text and " or " not in text
        return text if needs_none else f"({text})"

    # --- comparisons of refs

    def comparison(self, condition: Comparison, depth: int) -> str:
        for side, op in ((condition.left, condition.op), (condition.right, _MIRRORED.get(condition.op, ""))):
            if isinstance(side, Aggregate):
                other = condition.right if side is condition.left else condition.left
                return self.counted(side, op, other, depth)
        return self.leaf(condition)

    def leaf(self, condition: Condition) -> str:
        """A comparison or a truth. A name that would read as a pattern is matched by one, inside `any`."""
        odd = {operand._node for operand in condition.operands() if self.is_odd(operand._node)}
        if not odd:
            return self.bare(condition, lambda node: self.name_of(node))
        if len(odd) > 1:
            names = " and ".join(sorted(self.name_of(node) for node in odd))
            raise ConditionError(
                describe(condition), f"the names {names} hold * ? or [, so they cannot be compared; rename one"
            )
        text = self.bare(condition, lambda node: _only(self.name_of(node)) if node in odd else self.name_of(node))
        return f"any({text})"

    def is_odd(self, node: Node[Any]) -> bool:
        return self.dependencies is not None and any(char in self.name_of(node) for char in "*?[")

    def bare(self, condition: Condition, name_of: Callable[[Node[Any]], str]) -> str:
        if isinstance(condition, Truth):
            return _path(_base(name_of(condition.ref._node)), condition.ref._path)
        assert isinstance(condition, Comparison)
        sides = [
            _path(_base(name_of(side._node)), side._path) if isinstance(side, Operand) else literal(side)
            for side in (condition.left, condition.right)
        ]
        return f"{sides[0]} {condition.op} {sides[1]}"

    # --- aggregates

    def aggregate(self, condition: Aggregate, is_exact: bool, depth: int) -> str:
        if condition.kind == "count":
            return self.counted(condition, ">", 0, depth)
        inner = self.with_pattern(condition.items)
        if inner is not None:
            limit = f", {condition.limit}" if condition.kind == "almost_all" else ""
            return f"{condition.kind}({inner}{limit})"
        least = {"all": len(condition.items), "any": 1}.get(condition.kind, len(condition.items) - condition.limit)
        return self.at_least(condition.items, least, is_exact, depth)

    def counted(self, condition: Aggregate, op: str, other: object, depth: int) -> str:
        inner = self.with_pattern(condition.items)
        if inner is not None:
            right = (
                _path(_base(self.name_of(other._node)), other._path) if isinstance(other, Operand) else literal(other)
            )
            return f"count({inner}) {op} {right}"
        if isinstance(other, Operand) or not isinstance(other, int):
            raise ConditionError(
                describe_count(op), "these tasks have no name pattern of their own; compare with a number"
            )
        return self.spelled_count(condition.items, op, other, depth)

    def spelled_count(self, items: Sequence[Condition], op: str, number: int, depth: int) -> str:
        """A comparison of a count, as at-least conditions."""
        low = {">=": number, ">": number + 1, "==": number, "!=": number, "<": number, "<=": number + 1}[op]
        reached = self.at_least(items, low, True, depth)
        if op in (">=", ">"):
            return reached
        if op in ("<", "<="):
            return f"not ({reached})"
        exactly = f"({reached}) and not ({self.at_least(items, number + 1, True, depth)})"
        return exactly if op == "==" else f"not ({exactly})"

    def at_least(self, items: Sequence[Condition], least: int, is_exact: bool, depth: int) -> str:
        count = len(items)
        if not 1 <= least <= count or (least != 1 and math.comb(count, least) > MAX_ALTERNATIVES):
            return self.trivial(items, least, depth)
        parts = [self.held(item, is_exact, depth) for item in items]
        groups = [" and ".join(group) for group in itertools.combinations(parts, least)]
        return groups[0] if len(groups) == 1 else " or ".join(f"({group})" if least > 1 else group for group in groups)

    def trivial(self, items: Sequence[Condition], least: int, depth: int) -> str:
        if 1 <= least <= len(items):
            raise ConditionError(
                describe_count(f"{least} of {len(items)}"),
                "the tasks it counts have no name pattern that matches just them. Give them a common name: "
                "options(name='fit-{seed}')",
            )
        first = self.held(
            items[0], True, depth
        )  # always or never: written with a reference, which a condition must have
        return f"({first}) or not ({first})" if least < 1 else f"({first}) and not ({first})"

    def held(self, item: Condition, is_exact: bool, depth: int) -> str:
        """An element spelled out; under `not` as an aggregate of its own, which is never unknown."""
        nodes = item.nodes()
        if not is_exact or _holds_aggregate(item) or self.dependencies is None:
            return self.enclosed(item, is_exact, depth)
        if len(nodes) != 1:
            raise ConditionError(
                describe(item), "an element that looks at several tasks cannot be counted or negated here"
            )
        return f"any({self.plain(item, lambda node: _only(self.name_of(node)))})"

    def with_pattern(self, items: Sequence[Condition]) -> str | None:
        """What all items are instances of, over a pattern that matches just their tasks; None if there is none."""
        if self.dependencies is None:
            return None
        first = items[0].nodes()
        if len(first) != 1 or any(map(_holds_aggregate, items)):
            return None
        form = self.plain(items[0], lambda node: "\0")
        names: dict[str, None] = {}
        for item in items:
            nodes = item.nodes()
            if len(nodes) != 1 or self.plain(item, lambda node: "\0") != form:
                return None
            names[self.name_of(nodes[0])] = None
        if len(names) != len(items):
            return None
        pattern = _pattern(list(names), self.dependencies)
        return None if pattern is None else form.replace(_HOLE, f"inputs[{_quoted(pattern)}]")

    def plain(self, condition: Condition, name_of: Callable[[Node[Any]], str]) -> str:
        """A condition without aggregates, with names given by `name_of`."""
        return _Plain(name_of).text(condition)


class _Plain(_Writer):
    """Writes names as they are, patterns included."""

    def __init__(self, name_of: Callable[[Node[Any]], str]) -> None:
        super().__init__(name_of, None)


_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def _holds_aggregate(condition: Condition) -> bool:
    todo = [condition]
    while todo:
        item = todo.pop()
        if isinstance(item, Aggregate):
            return True
        todo.extend(item.parts())
    return False


def describe_count(detail: str) -> str:
    return f"count_of(...) {detail}"


def _base(name: str) -> str:
    if name == "\0":
        return _HOLE
    return f"inputs.{name}" if _is_plain(name) else f"inputs[{_quoted(name)}]"


def _path(base: str, path: tuple[str | int, ...]) -> str:
    return base + "".join(f".{key}" if isinstance(key, str) and _is_plain(key) else f"[{literal(key)}]" for key in path)


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name not in _WORDS


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def literal(value: object) -> str:
    """A value as the language writes it. `ConditionError` for what it has no literal for."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return _quoted(str.__str__(value))  # the text of a text enum
    if isinstance(value, (list, tuple, set, frozenset, range)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return f"[{', '.join(literal(item) for item in items)}]"
    if isinstance(value, os.PathLike):
        return _quoted(os.fspath(value))
    number = _number(value)
    if number is None:
        raise ConditionError(
            f"{value!r:.60}",
            "a condition compares with numbers, texts, True, False, None and lists of these, "
            f"not {type(value).__name__}",
        )
    return number


def _number(value: Any) -> str | None:
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:  # a numpy scalar
        value = value.item()
        if isinstance(value, (bool, str)):
            return literal(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    return None


# --- patterns


def _pattern(names: Sequence[str], dependencies: Collection[str]) -> str | None:
    """A pattern that matches these dependencies and no other; None if a prefix or suffix does not tell them apart."""
    wanted = frozenset(names)
    return next((pattern for pattern in _candidates(names) if _matches(pattern, dependencies) == wanted), None)


def _candidates(names: Sequence[str]) -> list[str]:
    prefix = _common_start(names)
    suffix = _common_start([name[len(prefix) :][::-1] for name in names])[::-1]
    head = prefix.rstrip("0123456789")
    if len(names) == 1:
        return [_only(names[0])] if names[0].strip(_NEVER_IN_CLASS) else []
    found = [
        f"{_escaped(head)}*",
        f"{_escaped(prefix)}*",
        f"{_escaped(prefix)}*{_escaped(suffix)}",
        f"*{_escaped(suffix)}",
    ]
    found.append(f"{_escaped(prefix)}?{_escaped(suffix)}")
    return list(dict.fromkeys([*found, "*"]))


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    length = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:length]


def _matches(pattern: str, names: Collection[str]) -> frozenset[str]:
    return frozenset(select(pattern, names))


def _escaped(text: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def _only(name: str) -> str:
    """A pattern that matches just this name."""
    if any(char in name for char in "*?["):
        return _escaped(name)
    at = next((index for index, char in enumerate(name) if char.isalnum()), None)
    if at is None:
        at = next((index for index, char in enumerate(name) if char not in _NEVER_IN_CLASS), None)
    if at is None:
        raise ConditionError(f"inputs[{_quoted(name)}]", "this name cannot be part of an aggregate; rename the task")
    return f"{name[:at]}[{name[at]}]{name[at + 1 :]}"
