"""Which tasks go back to pending when a person asks for some of them to be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dagkit.engine.moves import CANCELLED, FAILED, SKIPPED, UPSTREAM_FAILED
from dagkit.engine.policy import is_impossible
from dagkit.engine.shape import Shape
from dagkit.engine.table import TaskTable

__all__ = ["FAILURES", "to_rerun", "to_retry", "to_settle"]

FAILURES = frozenset((FAILED, UPSTREAM_FAILED, CANCELLED))


def to_retry(shape: Shape, table: TaskTable, tasks: Iterable[int]) -> list[int]:
    """Those of `tasks` that failed, what keeps them from running, and what was given up because of them; in order."""
    states = table.states

    def above(task: int) -> list[int]:
        blocked = _is_blocked(shape, table, task)
        return [parent for parent in shape.parents[task] if states[parent] in FAILURES] if blocked else []

    def below(task: int) -> list[int]:
        return [child for child in shape.children[task] if states[child] in (UPSTREAM_FAILED, CANCELLED)]

    failed = [task for task in tasks if states[task] in FAILURES]
    return sorted(_closure(_closure(failed, above), below))


def to_settle(shape: Shape, table: TaskTable, tasks: Iterable[int]) -> list[int]:
    """Those of `tasks` that have ended otherwise than well, and what was given up because of them, in order."""
    states = table.states

    def below(task: int) -> list[int]:
        return [child for child in shape.children[task] if states[child] == UPSTREAM_FAILED]

    return sorted(_closure([task for task in tasks if states[task] in (*FAILURES, SKIPPED)], below))


def to_rerun(shape: Shape, tasks: Iterable[int]) -> list[int]:
    """`tasks` and everything that depends on them, in order."""
    return sorted(_closure(tasks, shape.children.__getitem__))


def _closure(start: Iterable[int], neighbours: Callable[[int], Iterable[int]]) -> list[int]:
    reached = list(dict.fromkeys(start))
    seen = set(reached)
    for task in reached:  # grows while it is gone through
        for other in neighbours(task):
            if other not in seen:
                seen.add(other)
                reached.append(other)
    return reached


def _is_blocked(shape: Shape, table: TaskTable, task: int) -> bool:
    return is_impossible(shape.needs[task], len(shape.parents[task]), table.satisfied[task], table.failed[task])
