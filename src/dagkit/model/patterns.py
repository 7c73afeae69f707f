"""Shell-style patterns over task names: `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`; case counts on every platform."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["is_pattern", "matches", "select"]

_SPECIAL: Final = frozenset("*?[")
_ANY_RUN: Final = "*"
_ANY_CHAR: Final = "?"


def is_pattern(text: str) -> bool:
    """Whether a name in `inputs["..."]` is a pattern."""
    return not _SPECIAL.isdisjoint(text)


def select(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern matches."""
    if pattern == "*":
        return list(names)
    if pattern.endswith("*") and not is_pattern(pattern[:-1]):
        return [name for name in names if name.startswith(pattern[:-1])]
    return [name for name in names if matches(pattern, name)]


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name matches; time grows with len(pattern) x len(name) at worst, never faster."""
    parts = _parts(pattern)
    at = here = 0
    star = resume = -1
    while here < len(name):
        if at < len(parts) and parts[at] == _ANY_RUN:
            star, resume = at, here
            at += 1
        elif at < len(parts) and _fits(parts[at], name[here]):
            at += 1
            here += 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return all(part == _ANY_RUN for part in parts[at:])


def _fits(part: object, char: str) -> bool:
    if isinstance(part, tuple):
        negated, ranges = part
        return any(low <= char <= high for low, high in ranges) is not negated
    return part == _ANY_CHAR or part == f"={char}"


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[object, ...]:
    parts: list[object] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        end = _set_end(pattern, at) if char == "[" else -1
        if end > 0:
            parts.append(_set(pattern[at + 1 : end]))
            at = end
        elif char != "*":
            parts.append(_ANY_CHAR if char == "?" else f"={char}")
        elif not parts or parts[-1] != _ANY_RUN:
            parts.append(_ANY_RUN)
        at += 1
    return tuple(parts)


def _set_end(pattern: str, start: int) -> int:
    """Position of the closing bracket; one directly after the opening or its `!` is a member. -1: a plain `[`."""
    first = start + 1 + (pattern[start + 1 : start + 2] == "!")
    return pattern.find("]", first + 1)


def _set(members: str) -> tuple[bool, tuple[tuple[str, str], ...]]:
    negated = members.startswith("!")
    members = members[negated:]
    ranges, at = [], 0
    while at < len(members):
        is_range = at + 2 < len(members) and members[at + 1] == "-"
        ranges.append((members[at], members[at + 2 if is_range else at]))
        at += 3 if is_range else 1
    return negated, tuple(ranges)
