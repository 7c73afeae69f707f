"""How many jobs may be submitted now."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dagkit.engine.gate import Capacity, Constraint, Gate, GateOptions, Room, group_sizes

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "pjm_gate.yaml").read_text())["cases"]


def cases(shape: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if shape in case]


def room_of(constraints: Any) -> Room | None:
    return None if constraints == "unknown" else Room(tuple(Constraint(limit, used) for limit, used in constraints))


@pytest.mark.parametrize("case", cases("gate"))
def test_one_decision(case: dict[str, Any]) -> None:
    given_ = {"margin": 20, "target": None, "per_refill": 50, "window": 1000, **case["gate"]}
    options = GateOptions(
        safety_margin=given_["margin"],
        target_active_jobs=given_["target"],
        max_submit_per_refill=given_["per_refill"],
        window=given_["window"],
    )

    decision = Gate(options).decide(
        room_of(given_["constraints"]),
        pending=given_.get("pending", 1000),
        own_active=given_.get("own_active", 0),
        submitted_since_probe=given_.get("submitted_since_probe", 0),
    )

    assert decision.allowed == case["allowed"]


@pytest.mark.parametrize("case", cases("window"))
def test_the_window_over_time(case: dict[str, Any]) -> None:
    start = case["window"]
    gate = Gate(GateOptions(window=start["start"], max_submit_per_refill=start["per_refill"]))
    reports = {"queue_full": (1, 1), "accepted": (1, 0), "idle": (0, 0)}

    seen = []
    for cycle in start["cycles"]:
        gate.learn(*reports[cycle])
        seen.append(gate.window)

    assert seen == case["then"]


def test_a_window_grows_by_a_quarter_of_a_refill_and_never_closes() -> None:
    gate = Gate(GateOptions(window=3, max_submit_per_refill=100))
    for accepted, refused, window in ((0, 5, 1), (0, 5, 1), (1, 0, 26), (0, 0, 26), (9, 1, 13)):
        gate.learn(accepted, refused)
        assert gate.window == window
    small = Gate(GateOptions(window=3, max_submit_per_refill=2))
    small.learn(1, 0)
    assert small.window == 4


@pytest.mark.parametrize("case", cases("campaign"))
def test_refills_of_a_campaign(case: dict[str, Any]) -> None:
    plan = case["campaign"]
    gate = Gate(
        GateOptions(initial_submit_count=plan["initial_submit_count"], max_submit_per_refill=plan["per_refill"])
    )
    pending, active, submitted = plan["pending"], 0, []
    for _ in range(plan["refills"]):
        room = Room((Constraint(plan["slots"], active),))
        count = gate.decide(room, pending=pending, own_active=active).allowed
        gate.learn(count, 0)
        pending, active = pending - count, active + count
        submitted.append(count)

    assert submitted == case["submitted"]


def test_the_first_refill_stays_small_until_a_job_was_accepted() -> None:
    gate = Gate(GateOptions(initial_submit_count=2))
    room = Room((Constraint(1000, 0),))
    assert gate.decide(room, pending=100, own_active=0).allowed == 2
    gate.learn(0, 2)
    assert gate.decide(room, pending=100, own_active=0).allowed == 2
    gate.learn(1, 0)
    assert gate.decide(room, pending=100, own_active=1).allowed == 50


@pytest.mark.parametrize("case", cases("bulk"))
def test_sizes_of_bulk_groups(case: dict[str, Any]) -> None:
    bulk = case["bulk"]

    sizes = group_sizes(
        subjobs_free=bulk["subjobs_free"],
        calls_free=bulk["calls_free"],
        group_size=bulk["group_size"],
        per_refill=bulk["per_refill"],
        pending=bulk["pending"],
    )

    assert list(sizes) == case["groups"]


def test_every_case_of_a_decision_is_run() -> None:
    shapes = ("gate", "window", "campaign", "bulk", "limits")
    assert all(any(shape in case for shape in shapes) for case in CASES)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Gate().decide(Room(), pending=0, own_active=0), "nothing waits"),
        (Gate().decide(None, pending=5, own_active=0, problem="pjstat timed out after 60 s"), "pjstat timed out"),
        (Gate().decide(None, pending=5, own_active=0), "has not said"),
        (
            Gate().decide(Room((Constraint(1000, 985, "GROUP ru-accept"),)), pending=5, own_active=0),
            "limit GROUP ru-accept 1000, 985 used, 20 left to others",
        ),
        (
            Gate(GateOptions(max_active_jobs=5)).decide(Room(), pending=9, own_active=5),
            "5 of our own jobs are active, of 5 at most",
        ),
        (Gate().decide(Room(), pending=900, own_active=0), "50 in one refill"),
        (Gate(GateOptions(window=7)).decide(Room(), pending=900, own_active=0), "7 at once after the queue was full"),
        (Gate().decide(Room(), pending=3, own_active=0), "all that wait"),
    ],
)
def test_a_decision_says_what_keeps_it_from_being_more(decision: Any, words: str) -> None:
    assert words in decision.why


def test_the_smaller_of_both_own_caps_holds() -> None:
    assert GateOptions().own_cap == inf
    assert GateOptions(max_active_jobs=10, target_active_jobs=3).own_cap == 3
    assert GateOptions(max_active_jobs=2, target_active_jobs=3).own_cap == 2


def test_unknown_capacity_is_unknown_for_every_kind_of_submission() -> None:
    capacity = Capacity.unknown("no answer")
    assert (capacity.jobs, capacity.bulk_calls, capacity.bulk_subjobs) == (None, None, None)
    assert capacity.problem == "no answer"


constraints = st.builds(Constraint, st.none() | st.integers(0, 5000), st.integers(0, 6000))


@given(
    st.lists(constraints, max_size=4),
    st.builds(
        GateOptions,
        safety_margin=st.integers(0, 100),
        max_active_jobs=st.none() | st.integers(0, 2000),
        target_active_jobs=st.none() | st.integers(0, 2000),
        initial_submit_count=st.none() | st.integers(0, 200),
        max_submit_per_refill=st.integers(0, 300),
    ),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=12),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(0, 500),
)
def test_no_bound_is_ever_passed(limits, options, refills, pending, active, since):
    gate, room = Gate(options), Room(tuple(limits))
    for accepted, refused in refills:
        gate.learn(accepted, refused)

    allowed = gate.decide(room, pending=pending, own_active=active, submitted_since_probe=since).allowed

    assert 0 <= allowed <= min(pending, gate.per_refill, gate.window)
    if allowed:
        assert allowed + active <= options.own_cap
        assert all(c.limit is None or allowed + since + c.used <= c.limit for c in limits)


@given(st.integers(1, 5000))
def test_a_small_limit_never_blocks_for_good(limit):
    """A margin of 20 would keep a limit of 10 closed for ever: it is at most a tenth of the limit."""
    assert Gate().decide(Room((Constraint(limit, 0),)), pending=10_000, own_active=0).allowed >= 1


@given(
    st.integers(0, 5000) | st.just(inf),
    st.integers(0, 50) | st.just(inf),
    st.integers(1, 300),
    st.integers(0, 1000),
    st.integers(0, 2000),
)
def test_groups_fit_into_everything(subjobs, calls, group_size, per_refill, pending):
    sizes = group_sizes(
        subjobs_free=subjobs, calls_free=calls, group_size=group_size, per_refill=per_refill, pending=pending
    )

    assert all(1 <= size <= group_size for size in sizes)
    assert len(sizes) <= calls
    assert sum(sizes) <= min(subjobs, per_refill, pending)
    assert len(sizes) == calls or sum(sizes) == min(subjobs, per_refill, pending)
