"""How a run stands as a whole: flags, the time of the current step, and the status that follows from the tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dagkit.engine.moves import CANCELLED, FAILED, PENDING, READY, RUNNING, UPSTREAM_FAILED
from dagkit.engine.times import to_text
from dagkit.model.states import RunStatus

__all__ = ["Standing", "is_active", "verdict"]


class Standing:
    """Facts about the run that are not facts about a task.

    Attributes:
        now, text: The time of the step as a number (None before the first step after a load) and as it is written.
        is_launched: Something has been dispatched since the submit or the last user retry.
        has_just_launched: That became true since changes were last taken.
        tripping: Failed tasks that stop a fail-fast run.
        is_tripped: Nothing more is started because of one.
        error: The first failure, in a line.
    """

    __slots__ = (
        "cancel_requested",
        "error",
        "has_just_launched",
        "is_changed",
        "is_launched",
        "is_tripped",
        "now",
        "text",
        "tripping",
        "verdict",
    )

    def __init__(self) -> None:
        self.cancel_requested = self.is_launched = self.has_just_launched = self.is_tripped = self.is_changed = False
        self.tripping = 0
        self.error: str | None = None
        self.verdict: RunStatus | None = None
        self.now: float | None = None
        self.text: str | None = None

    def at(self, now: float) -> None:
        """Begin or go on with the step of this time."""
        if now != self.now:
            self.now, self.text = now, to_text(now)

    def launch(self) -> None:
        self.has_just_launched |= not self.is_launched
        self.is_launched = True

    def unlaunch(self) -> None:
        """Nothing of what was dispatched was taken."""
        if self.has_just_launched:
            self.is_launched = self.has_just_launched = False

    def reset(self, is_running: bool) -> None:
        """A person wants more of a run: forget how it ended."""
        self.cancel_requested = self.is_tripped = False
        self.error = self.verdict = None
        self.is_launched, self.is_changed = is_running, True

    def status(self, counts: Sequence[int], states: bytearray, sinks: Sequence[int] | None) -> RunStatus:
        """The run's status; `sinks` as in `verdict`."""
        if is_active(counts):
            if self.cancel_requested:
                return RunStatus.CANCELLING
            return RunStatus.RUNNING if self.is_launched else RunStatus.PENDING
        if self.cancel_requested:
            return RunStatus.CANCELLED
        if self.tripping:
            return RunStatus.FAILED
        if self.verdict is None:
            self.verdict = verdict(counts, states, sinks)
        return self.verdict


def is_active(counts: Sequence[int]) -> bool:
    """Whether any task has yet to end, from the number of tasks by state."""
    return bool(counts[PENDING] or counts[READY] or counts[RUNNING])


def verdict(counts: Sequence[int], states: bytearray, sinks: Sequence[int] | None) -> RunStatus:
    """How a run without a cancel request ended. `sinks`: only they matter; None: every task does."""
    failures = (FAILED, UPSTREAM_FAILED, CANCELLED)
    if sinks is None:
        failed = any(counts[code] for code in failures)
    else:
        failed = any(states[sink] in failures for sink in sinks)
    return RunStatus.FAILED if failed else RunStatus.COMPLETED
