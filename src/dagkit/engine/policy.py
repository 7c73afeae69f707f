"""Dependency policies as arithmetic on three counts: parents, satisfied parents, failed parents."""

from __future__ import annotations

from typing import Final

__all__ = ["MERGE", "SETTLED", "is_impossible", "is_satisfied", "need_of"]

SETTLED: Final = -1
"""The need of `all_settled`: every parent has ended, one of them well."""

MERGE: Final = -2
"""The need of a merge node: every member of its batch has ended, however."""


def need_of(policy: str | int, parents: int) -> int:
    """How many satisfied parents let a task run; `SETTLED` where that is not a matter of numbers. A root needs none."""
    if not parents:
        return 0
    if policy == "all":
        return parents
    if policy == "any":
        return 1
    return SETTLED if policy == "all_settled" else int(policy)


def is_satisfied(need: int, parents: int, satisfied: int, failed: int) -> bool:
    if need >= 0:
        return satisfied >= need
    return satisfied + failed == parents and (satisfied >= 1 or need == MERGE)


def is_impossible(need: int, parents: int, satisfied: int, failed: int) -> bool:
    """Whether no further end of a parent can satisfy the policy. Ask only when it is not satisfied."""
    if need >= 0:
        return parents - failed < need
    return need == SETTLED and failed == parents
