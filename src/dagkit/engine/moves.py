"""The legal moves of a task, and the small integers that stand for its states inside the engine."""

from __future__ import annotations

from typing import Final

from dagkit.model.states import TaskState

__all__ = [
    "CANCELLED",
    "CODES",
    "COMPLETED",
    "FAILED",
    "LEGAL",
    "MOVES",
    "PENDING",
    "READY",
    "RUNNING",
    "SKIPPED",
    "STATES",
    "UPSTREAM_FAILED",
    "WIDTH",
]

_S = TaskState

MOVES: Final[dict[TaskState, frozenset[TaskState]]] = {
    # COMPLETED, FAILED straight from PENDING or READY: an attempt that a lost coordinator dispatched, a kept output
    _S.PENDING: frozenset({_S.READY, _S.SKIPPED, _S.UPSTREAM_FAILED, _S.CANCELLED, _S.COMPLETED, _S.FAILED}),
    _S.READY: frozenset({_S.RUNNING, _S.CANCELLED, _S.COMPLETED, _S.FAILED, _S.PENDING}),  # PENDING: a rerun
    _S.RUNNING: frozenset({_S.COMPLETED, _S.FAILED, _S.READY, _S.CANCELLED}),  # READY: the next attempt
    _S.FAILED: frozenset({_S.PENDING}),  # a user retry
    _S.UPSTREAM_FAILED: frozenset({_S.PENDING}),
    _S.CANCELLED: frozenset({_S.PENDING}),
    _S.COMPLETED: frozenset({_S.PENDING}),  # a rerun, never a retry
    _S.SKIPPED: frozenset({_S.PENDING}),
}
"""From a state to those that may follow it (facts: jobq, section 3)."""

STATES: Final = tuple(TaskState)
"""State by code."""

CODES: Final = {state.value: code for code, state in enumerate(STATES)} | {"ready_pending_budget": 1}
"""Code by the word in a state document; the reserved ninth word loads as `ready`."""

PENDING, READY, RUNNING, COMPLETED, FAILED, UPSTREAM_FAILED, SKIPPED, CANCELLED = range(8)
"""Codes; everything from COMPLETED on is terminal."""

WIDTH: Final = len(STATES)

LEGAL: Final = bytes(after in MOVES[before] for before in STATES for after in STATES)
"""`MOVES` by codes: `LEGAL[before * WIDTH + after]`."""
