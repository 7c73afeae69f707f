"""What became of a job, by the cases of the facts and by properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dagkit.executors.pjm.outcome import Deed, Evidence, Result, judge
from dagkit.model.states import FailureKind

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "pjm_outcomes.yaml").read_text())["cases"]


def evidence(case: dict[str, Any]) -> Evidence:
    marker = case.get("marker")
    counts = isinstance(marker, dict) and not case.get("other_attempt")
    outputs, since_s = case.get("outputs"), case.get("since_s", 0)
    is_there = outputs in (None, "all") or (isinstance(outputs, dict) and since_s >= outputs["appear_s"])
    return Evidence(
        None if case.get("absent") else case["st"],
        case.get("pc"),
        case.get("ec"),
        case.get("sn"),
        case.get("reason"),
        marker_rc=marker["rc"] if counts else None,
        missing_outputs=() if is_there else ("out.dat",),
        since_s=since_s,
        is_deleted_by_us=case.get("we_deleted", False),
        is_in_queue=case.get("in_queue_by_name"),
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_the_cases_of_the_facts(case: dict[str, Any]) -> None:
    verdict = judge(evidence(case), grace_s=case.get("grace_s", 90), missing_s=case.get("missing_s", 300))

    assert verdict.result.value == case["result"]
    if "kind" in case:
        assert verdict.kind is FailureKind(case["kind"])
    if "charged" in case:
        assert verdict.charged is case["charged"]
    assert {deed.value for deed in verdict.deeds} >= set(case.get("does", ()))
    assert all(word in verdict.words for word in case.get("mentions", ()))


def test_a_job_that_nobody_knows_is_looked_for_by_name_before_it_is_lost() -> None:
    absent = Evidence(None, since_s=301)

    assert judge(absent).deeds == (Deed.LOOK,)
    assert judge(absent).result is Result.ACTIVE
    assert judge(Evidence(None, since_s=301, is_in_queue=True)).result is Result.ACTIVE
    lost = judge(Evidence(None, since_s=301, is_in_queue=False))
    assert (lost.result, lost.kind, lost.charged) == (Result.FAILURE, FailureKind.LOST, False)


def test_a_job_that_nobody_knows_is_judged_by_its_marker() -> None:
    assert judge(Evidence(None, marker_rc=0)).result is Result.SUCCESS
    assert judge(Evidence(None, marker_rc=2)).kind is FailureKind.USER


def test_a_marker_makes_a_deleted_job_a_success() -> None:
    assert judge(Evidence("CCL", pc=1, marker_rc=0, is_deleted_by_us=True)).result is Result.SUCCESS


def test_somebody_elses_pjdel_is_reported() -> None:
    verdict = judge(Evidence("CCL", pc=1))
    assert (verdict.kind, verdict.deeds) == (FailureKind.CANCELLED, (Deed.ALERT,))


def test_a_shortage_of_the_budget_pauses() -> None:
    verdict = judge(Evidence("RJT", pc=3, reason="Computing resources shortage occurred.[group]"))
    assert verdict.deeds == (Deed.PAUSE,)


def test_an_error_keeps_its_slot_even_if_the_command_had_succeeded() -> None:
    verdict = judge(Evidence("ERR", pc=140, marker_rc=0))
    assert (verdict.result, verdict.deeds) == (Result.SUCCESS, (Deed.DELETE,))


def test_without_a_marker_an_ended_job_is_waited_for_and_then_nobody_knows() -> None:
    assert judge(Evidence("EXT", pc=0, ec=0, sn=0, since_s=90)).result is Result.WAIT
    late = judge(Evidence("EXT", pc=0, ec=0, sn=0, since_s=91))
    assert (late.result, late.kind, "marker" in late.words) == (Result.FAILURE, FailureKind.NODE, True)


numbers = st.none() | st.integers(-1, 200)


@given(
    st.none()
    | st.sampled_from(["ACC", "QUE", "RNA", "RNP", "RUN", "RNE", "RNO", "SPP", "SPD", "RSM", "XYZ", "EXT"])
    | st.sampled_from(["EXT", "CCL", "RJT", "ERR", "HLD"]),
    numbers,
    numbers,
    numbers,
    st.none() | st.integers(0, 255),
    st.booleans(),
    st.floats(0, 1e6),
    st.booleans(),
    st.none() | st.booleans(),
)
def test_everything_known_has_one_verdict(state, pc, ec, sn, rc, is_missing, since_s, is_ours, is_in_queue):
    verdict = judge(Evidence(state, pc, ec, sn, None, rc, ("x",) if is_missing else (), since_s, is_ours, is_in_queue))

    assert (verdict.kind is not None) == (verdict.result is Result.FAILURE)
    if verdict.result is Result.SUCCESS:
        assert rc == 0
        assert not is_missing
    if state not in (None, "EXT", "CCL", "RJT", "ERR"):
        assert verdict.result is Result.ACTIVE
    if verdict.result is Result.FAILURE:
        assert verdict.words
    if since_s > 300 and is_in_queue is False and state in (None, "EXT", "CCL", "RJT", "ERR"):
        assert verdict.result in (Result.SUCCESS, Result.FAILURE)  # nothing waits for ever
