"""How a state looks: one glyph and one colour for each, the same in every drawing (Okabe-Ito colours)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dagkit.model.records import Counts
from dagkit.model.states import SEGMENT_ORDER, RunStatus, TaskState
from dagkit.progress import GLYPHS

__all__ = ["COLOURS", "GLYPHS", "LOUDEST", "headline", "look_of_run", "present"]

COLOURS: Final = {
    TaskState.PENDING: "#c9d0d8",
    TaskState.READY: "#56b4e9",
    TaskState.RUNNING: "#0072b2",
    TaskState.COMPLETED: "#009e73",
    TaskState.FAILED: "#d55e00",
    TaskState.UPSTREAM_FAILED: "#e69f00",
    TaskState.SKIPPED: "#b7bcc2",
    TaskState.CANCELLED: "#cc79a7",
}

#: Which state speaks for a box of many tasks: trouble first, then what moves, then what waits.
LOUDEST: Final = (
    TaskState.FAILED,
    TaskState.UPSTREAM_FAILED,
    TaskState.CANCELLED,
    TaskState.RUNNING,
    TaskState.READY,
    TaskState.PENDING,
    TaskState.COMPLETED,
    TaskState.SKIPPED,
)

_OF_RUN: Final = {
    RunStatus.PENDING: TaskState.PENDING,
    RunStatus.RUNNING: TaskState.RUNNING,
    RunStatus.CANCELLING: TaskState.CANCELLED,
    RunStatus.COMPLETED: TaskState.COMPLETED,
    RunStatus.FAILED: TaskState.FAILED,
    RunStatus.CANCELLED: TaskState.CANCELLED,
}


def look_of_run(status: RunStatus | str) -> TaskState | None:
    """The task state whose glyph and colour a run's status has; None for a status that dagkit does not know."""
    try:
        return _OF_RUN[RunStatus(status)]
    except ValueError:
        return None


def headline(counts: Counts) -> TaskState:
    """The one state that a group with these counts is shown as."""
    return next((state for state in LOUDEST if counts.of(state)), TaskState.PENDING)


def present(counts: Counts) -> Iterator[tuple[TaskState, int]]:
    """The states that occur with their counts, in the order of the segments of a bar."""
    for state in SEGMENT_ORDER:
        if counts.of(state):
            yield state, counts.of(state)
