"""From Slurm's words for the state of a job to what became of an attempt (facts: resources, last table)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from dagkit.executors.slurm.listing import Ended
from dagkit.model.states import FailureKind

__all__ = ["Verdict", "is_active", "kind_of", "verdict_of", "words"]

#: The job is in the controller's hands and may still run, or run again.
_ACTIVE: Final = frozenset(
    [
        *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD", "REQUEUE_FED", "REQUEUED"),
        *("SPECIAL_EXIT", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD", "REVOKED"),
    ]
)
_KINDS: Final = {
    "OUT_OF_MEMORY": FailureKind.MEMORY,
    "TIMEOUT": FailureKind.TIMEOUT,
    "DEADLINE": FailureKind.TIMEOUT,
    "PREEMPTED": FailureKind.PREEMPTED,
    "REQUEUED": FailureKind.PREEMPTED,
    "SUSPENDED": FailureKind.PREEMPTED,
    "NODE_FAIL": FailureKind.NODE,
    "BOOT_FAIL": FailureKind.NODE,
    "LAUNCH_FAILED": FailureKind.NODE,
    "RECONFIG_FAIL": FailureKind.NODE,
    "CANCELLED": FailureKind.CANCELLED,
}
#: What Slurm itself writes to the job's stderr (`OverMemoryKill`, the control group's oom handler).
_MEMORY_NOTES: Final = ("exceeded job memory limit", "exceeded step memory limit", "oom-kill", "oom_kill")
_WORDS: Final = {
    FailureKind.MEMORY: "used more memory than it had asked for",
    FailureKind.TIMEOUT: "reached its time limit",
    FailureKind.PREEMPTED: "was preempted",
    FailureKind.NODE: "lost its node",
    FailureKind.CANCELLED: "was cancelled by somebody else, outside of this run",
    FailureKind.LOST: "left no completion",
}


class Verdict(Enum):
    """What accounting's word means for a job that the controller no longer lists."""

    ENDED = "ended"
    """Judged by `kind_of`, or by its completion file."""
    UNCLEAR = "unclear"
    """Nothing final is known yet: it counts as active until a grace period is over."""


def is_active(state: str) -> bool:
    """Whether a job that the controller lists with this word may still bring a completion. Unknown words may."""
    return state in _ACTIVE or (state not in _KINDS and state not in ("COMPLETED", "FAILED"))


def verdict_of(ended: Ended | None) -> Verdict:
    """Whether accounting has said the last word on a job that is not listed any more."""
    if ended is None or is_active(ended.state):
        return Verdict.UNCLEAR
    return Verdict.ENDED


def kind_of(ended: Ended | None, stderr: str = "") -> FailureKind:
    """Why an attempt without a completion failed; `lost` where nobody knows."""
    if ended is None:
        return FailureKind.MEMORY if _has_memory_note(stderr) else FailureKind.LOST
    if ended.state in _KINDS:
        return _KINDS[ended.state]
    if _has_memory_note(stderr):
        return FailureKind.MEMORY
    return FailureKind.USER if ended.state == "FAILED" else FailureKind.LOST


def words(job: str, ended: Ended | None, kind: FailureKind) -> str:
    """One line about a job that ended without a completion."""
    if ended is None:
        return f"Slurm job {job} is gone, and nothing is known about how it ended"
    code = "" if ended.exit_code is None else f", exit {ended.exit_code}:{ended.signal or 0}"
    detail = _WORDS.get(kind, "failed before the task's result was known")
    return f"Slurm job {job} {detail} ({ended.state or 'no state'}{code})"


def _has_memory_note(stderr: str) -> bool:
    text = stderr.lower()
    return any(note in text for note in _MEMORY_NOTES)
