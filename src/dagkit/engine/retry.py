"""Whether a failed attempt is followed by another one, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dagkit.model.states import FailureKind, TaskState

__all__ = ["FREE_ATTEMPTS", "RetryCounts", "delay_before_next", "has_attempts_left", "is_free", "retries_remaining"]

FREE_ATTEMPTS: Final = 5
"""How many attempts of a task may be lost to the machinery (preemption, node, lost) before they are charged to it."""


@dataclass(frozen=True, slots=True)
class RetryCounts:
    """What a user retry did.

    Attributes:
        reset: Tasks that went back to pending.
        now_ready: Tasks that became ready by it.
        still_pending: Every pending task of the run, whether the retry touched it or not.
    """

    reset: int
    now_ready: int
    still_pending: int


def is_free(kind: FailureKind | None, uncharged: int, bound: int) -> bool:
    """Whether this failure costs the task none of its retries; `uncharged` are those that did not before."""
    return kind is not None and not kind.is_charged and uncharged < bound


def has_attempts_left(kind: FailureKind | None, attempt: int, uncharged: int, num_retries: int) -> bool:
    """Whether failed attempt number `attempt` is followed by another; `uncharged` counts this one if it was free."""
    return kind is not FailureKind.CONFIG and attempt - uncharged <= num_retries


def delay_before_next(attempt: int, delays: Sequence[float]) -> float:
    """Seconds between the failure of attempt number `attempt` and the next one; the last delay repeats."""
    return float(delays[min(max(attempt, 1), len(delays)) - 1]) if delays else 0.0


def retries_remaining(num_retries: int, state: TaskState, attempt: int, uncharged: int) -> int:
    """Retries a task may still use, as people see it."""
    undecided = state in (TaskState.RUNNING, TaskState.COMPLETED)  # the current attempt has not failed
    return max(0, num_retries - max(0, attempt - undecided - uncharged))
