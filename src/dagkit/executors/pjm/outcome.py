"""What became of a job: from what is known of it to what follows (facts: pjm 5 and 8.2). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dagkit.model.states import FailureKind

__all__ = ["GRACE_S", "MISSING_S", "Deed", "Evidence", "Result", "Verdict", "is_over", "judge"]

GRACE_S: Final = 90.0
"""For exit markers and outputs: files of a job may become visible after its end."""
MISSING_S: Final = 300.0
"""For a job that is neither in the live view nor in the history, which lags behind."""

_ENDED: Final = frozenset(("EXT", "CCL", "RJT"))
_BUDGET_REASONS: Final = ("shortage",)
_KINDS: Final = {
    **dict.fromkeys((12, 23), FailureKind.MEMORY),
    **dict.fromkeys((2, 3, 21, 29), FailureKind.CONFIG),
    1: FailureKind.CANCELLED,
    11: FailureKind.TIMEOUT,
    13: FailureKind.USER,
    18: FailureKind.PREEMPTED,
}
_WORDS: Final = {
    1: "deleted by pjdel",
    2: "rejected",
    3: "refused at the gate",
    7: "ended by a deadline",
    8: "cancelled when the job manager stopped",
    9: "ended during a rebuild",
    11: "reached its elapse limit",
    12: "used more memory than there was",
    13: "used more disk than there was",
    16: "its working directory or its output files were out of reach",
    18: "preempted by another job",
    20: "its node went down",
    21: "its shell could not be started",
    23: "used more memory than there was",
    29: "invalid environment",
}
_CHARGED: Final = {
    FailureKind.USER: True,
    FailureKind.TIMEOUT: True,
    FailureKind.MEMORY: True,
    FailureKind.NODE: False,
    FailureKind.PREEMPTED: False,
    FailureKind.LOST: False,
}


class Result(Enum):
    """What a job counts as."""

    ACTIVE = "active"
    """It may still be ours: it keeps its slot, ask again."""
    WAIT = "wait"
    """It has ended; what it left may not be visible yet."""
    SUCCESS = "success"
    FAILURE = "failure"


class Deed(Enum):
    """What has to be done besides."""

    DELETE = "pjdel"
    """It keeps its slot until it is deleted."""
    ALERT = "alert"
    LOOK = "look"
    """For its name in the queue, which says whether it exists."""
    PAUSE = "pause"
    """The project's budget is used up: nothing more is submitted."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a job.

    Attributes:
        state: Of its row; None if neither the live view nor the history has it.
        pc, ec, sn, reason: Of its row.
        marker_rc: What the exit marker of this very attempt says; None if there is none.
        missing_outputs: Declared outputs that are not there.
        since_s: Since the job was first seen ended, or first not seen.
        is_deleted_by_us: pjdel was accepted for it.
        is_in_queue: What looking for its name has shown; None before that.
    """

    state: str | None
    pc: int | None = None
    ec: int | None = None
    sn: int | None = None
    reason: str | None = None
    marker_rc: int | None = None
    missing_outputs: Sequence[str] = ()
    since_s: float = 0.0
    is_deleted_by_us: bool = False
    is_in_queue: bool | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows; `charged` says whether the attempt counts (None where that is no question)."""

    result: Result
    kind: FailureKind | None = None
    words: str = ""
    deeds: tuple[Deed, ...] = ()

    @property
    def charged(self) -> bool | None:
        return None if self.kind is None else _CHARGED.get(self.kind)


_ACTIVE: Final = Verdict(Result.ACTIVE)


def is_over(state: str | None) -> bool:
    """Whether a state needs a judgement: the job has ended, or has failed and keeps its slot."""
    return state in _ENDED or state == "ERR"


def judge(known: Evidence, *, grace_s: float = GRACE_S, missing_s: float = MISSING_S) -> Verdict:
    """What became of a job, by the table of facts pjm 8.2, from its first line to its last."""
    if known.state == "HLD":
        return Verdict(Result.ACTIVE, words=_with_reason("held; it keeps its slot", known), deeds=(Deed.ALERT,))
    if known.state is not None and known.state not in _ENDED and known.state != "ERR":
        return _ACTIVE  # outputs and markers that are there already change nothing
    if known.marker_rc == 0:
        return _finished(known, grace_s)
    if known.state is None:
        return _absent(known, missing_s)
    if known.state == "ERR":
        kind = _KINDS.get(known.pc or 0, FailureKind.NODE)
        return Verdict(Result.FAILURE, kind, _with_reason("ended in error", known), (Deed.DELETE,))
    return _ended(known, grace_s)


def _finished(known: Evidence, grace_s: float) -> Verdict:
    """The marker says that the command has succeeded."""
    deeds = (Deed.DELETE,) if known.state == "ERR" else ()
    if not known.missing_outputs:
        return Verdict(Result.SUCCESS, deeds=deeds)
    if known.since_s <= grace_s:
        return Verdict(Result.WAIT)
    names = ", ".join(known.missing_outputs)
    return Verdict(Result.FAILURE, FailureKind.USER, f"succeeded, but an expected output is missing: {names}", deeds)


def _absent(known: Evidence, missing_s: float) -> Verdict:
    if known.marker_rc is not None:
        return Verdict(Result.FAILURE, FailureKind.USER, f"ended with exit code {known.marker_rc}")
    if known.since_s <= missing_s or known.is_in_queue:
        return _ACTIVE
    if known.is_in_queue is None:
        return Verdict(Result.ACTIVE, words="nobody knows the job", deeds=(Deed.LOOK,))
    words = f"unknown to pjstat for {known.since_s:.0f} s, in its history too, and left no exit marker"
    return Verdict(Result.FAILURE, FailureKind.LOST, words)


def _ended(known: Evidence, grace_s: float) -> Verdict:
    pc = known.pc or 0
    if pc == 0 and known.state == "CCL":
        pc = 1
    if pc == 0 and known.state == "RJT":
        pc = 2
    if pc != 0:
        return _by_code(known, pc)
    for name, code in (("exit code", known.marker_rc), ("exit code", known.ec), ("signal", known.sn)):
        if code:
            return Verdict(Result.FAILURE, FailureKind.USER, f"ended with {name} {code}")
    if known.since_s <= grace_s:
        return Verdict(Result.WAIT)
    return Verdict(Result.FAILURE, FailureKind.NODE, "ended without an exit marker: nobody knows whether it succeeded")


def _by_code(known: Evidence, pc: int) -> Verdict:
    kind = _KINDS.get(pc, FailureKind.NODE)
    deeds: tuple[Deed, ...] = ()
    if (pc == 1 and not known.is_deleted_by_us) or pc == 8:
        deeds = (Deed.ALERT,)
    elif pc in (2, 3) and any(word in (known.reason or "") for word in _BUDGET_REASONS):
        deeds = (Deed.PAUSE,)
    words = _WORDS.get(pc, f"ended by the job manager with PJM code {pc}")
    return Verdict(Result.FAILURE, kind, _with_reason(words, known), deeds)


def _with_reason(words: str, known: Evidence) -> str:
    return f"{words}: {known.reason}" if known.reason else words
