"""What sbatch says (Slurm 22.05, on the cluster that tests start, and from the manual) and what it means."""

from __future__ import annotations

import pytest

from dagkit.executors.slurm.refusals import Refusal, clear_words, refusal_of

POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", Refusal.DEFERRED),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", Refusal.DEFERRED),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", Refusal.DEFERRED),
        # the same policy text for a job that is too large
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", Refusal.CONFIG),
        (f"sbatch: error: QOSMaxCpuPerUserLimit\n{POLICY}", Refusal.CONFIG),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", Refusal.DEFERRED),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", Refusal.DEFERRED),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            Refusal.UNCERTAIN,
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            Refusal.UNCERTAIN,
        ),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", Refusal.UNCERTAIN),
        (
            "sbatch: error: invalid partition specified: x\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            Refusal.CONFIG,
        ),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", Refusal.CONFIG),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            Refusal.CONFIG,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            Refusal.CONFIG,
        ),
        ("sbatch: unrecognized option '--bogus'", Refusal.CONFIG),
        ("", Refusal.CONFIG),
    ],
)
def test_refusal(said: str, refusal: Refusal) -> None:
    assert refusal_of(said, has_jobs=True) is refusal


def test_the_policy_alone_is_a_full_limit_only_where_something_fills_it() -> None:
    assert refusal_of(POLICY, has_jobs=True) is Refusal.DEFERRED
    assert refusal_of(POLICY, has_jobs=False) is Refusal.CONFIG


def test_a_named_submit_limit_is_full_even_if_the_jobs_are_not_ours() -> None:
    assert refusal_of(f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", has_jobs=False) is Refusal.DEFERRED


def test_the_words_are_one_line_with_what_to_look_at() -> None:
    said = (
        "sbatch: error: invalid partition specified: gpu\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified"
    )

    text = clear_words(said, "gpu")

    assert "\n" not in text
    assert "partition gpu" in text
    assert "invalid partition specified: gpu" in text
    assert "sinfo -s" in text


def test_silence_is_said_too() -> None:
    assert "without a word" in clear_words("", None)
