"""The table of facts/resources.md, "Slurm: from accounting state to failure kind", row by row."""

from __future__ import annotations

import pytest

from dagkit.executors.slurm.listing import Ended
from dagkit.executors.slurm.outcome import Verdict, is_active, kind_of, verdict_of, words
from dagkit.model.states import FailureKind

OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4.batch."
OVER = "slurmstepd: error: Exceeded job memory limit"


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "stderr", "kind"),
    [
        # its completion file is missing after the grace period
        ("COMPLETED", 0, 0, "", FailureKind.LOST),
        ("FAILED", 3, 0, "", FailureKind.USER),
        ("FAILED", 137, 0, OOM, FailureKind.MEMORY),
        ("FAILED", 9, 0, OVER, FailureKind.MEMORY),
        # as OverMemoryKill of jobacct_gather reports it
        ("FAILED", 0, 9, OVER, FailureKind.MEMORY),
        ("FAILED", 137, 0, "Killed", FailureKind.USER),
        ("OUT_OF_MEMORY", 0, 125, "", FailureKind.MEMORY),
        ("TIMEOUT", 0, 0, "", FailureKind.TIMEOUT),
        ("DEADLINE", 0, 0, "", FailureKind.TIMEOUT),
        ("PREEMPTED", 0, 0, "", FailureKind.PREEMPTED),
        ("REQUEUED", 0, 0, "", FailureKind.PREEMPTED),
        ("SUSPENDED", 0, 0, "", FailureKind.PREEMPTED),
        ("NODE_FAIL", 0, 0, "", FailureKind.NODE),
        ("BOOT_FAIL", 0, 0, "", FailureKind.NODE),
        ("CANCELLED", 0, 15, "", FailureKind.CANCELLED),
        # a word of a later Slurm, after the grace period
        ("TELEPORTED", 0, 0, "", FailureKind.LOST),
    ],
)
def test_kind(state: str, exit_code: int, signal: int, stderr: str, kind: FailureKind) -> None:
    assert kind_of(Ended(state, exit_code, signal), stderr) is kind


@pytest.mark.parametrize(
    "state",
    ["COMPLETING", "PENDING", "RUNNING", "CONFIGURING", "REQUEUE_HOLD", "SUSPENDED", "REQUEUED", "TELEPORTED"],
)
def test_what_is_listed_with_such_a_word_is_still_active(state: str) -> None:
    assert is_active(state)
    assert verdict_of(Ended(state, 0, 0)) is Verdict.UNCLEAR


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED"])
def test_what_has_ended_is_not(state: str) -> None:
    assert not is_active(state)
    assert verdict_of(Ended(state, 0, 0)) is Verdict.ENDED


def test_what_nobody_knows_is_unclear_and_in_the_end_lost() -> None:
    assert verdict_of(None) is Verdict.UNCLEAR
    assert kind_of(None) is FailureKind.LOST
    assert kind_of(None, OOM) is FailureKind.MEMORY


def test_the_words_name_the_job_the_state_and_who_cancelled() -> None:
    text = words("12_3", Ended("CANCELLED", 0, 15), FailureKind.CANCELLED)

    assert "12_3" in text
    assert "outside of this run" in text
    assert "CANCELLED, exit 0:15" in text
