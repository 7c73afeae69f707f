"""Campaigns in simulated time: as long as they must be, never refused for nothing, through outages and neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit.engine.gate import GateOptions
from dagkit.errors import UsageError
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.testing.pjm import PjmSimulator
from dagkit.testing.pjm.rehearsal import Campaign, rehearse

BEGIN = 1_800_000_000.0
JOBS = 90
GATE = GateOptions(max_submit_per_refill=500)
QUICK = Patience(submit_interval_s=0.0, refill_s=30.0)


def campaign(mode: str = "auto", **more: Any) -> Campaign:
    queue = PjmQueue(rscgrp="small", group="group1", elapse_s=600, mode=mode, gate=GATE)
    fields: dict[str, Any] = {"nodes": 24, "limits": {"ru-accept": 8, "ru-accept-bulksubjob": 400}, **more}
    return Campaign(JOBS, 60.0, queue, QUICK, **fields)


@pytest.mark.parametrize("mode", ["single", "bulk", "auto"])
def test_every_job_runs_once_and_no_limit_is_exceeded(mode: str) -> None:
    found = rehearse(campaign(mode))

    assert sum(found.oracle.runs.values()) == JOBS
    assert (found.oracle.duplicates, found.oracle.over, found.oracle.queue_full) == ({}, (), 0)
    assert found.timeline[-1][-1] == JOBS
    assert 1 < found.ratio < 3


def test_auto_is_as_fast_as_bulk_where_calls_are_scarce() -> None:
    assert rehearse(campaign("auto")).elapsed_s < 0.7 * rehearse(campaign("single")).elapsed_s


@pytest.mark.parametrize("begin_s", [0.0, 100.0])
def test_an_outage_of_ten_minutes_submits_too_much_to_nobody_and_loses_nothing(begin_s: float) -> None:
    def prepare(pjm: PjmSimulator) -> None:
        pjm.fault("stat-fails", times=None, for_s=600, after_s=begin_s)

    found = rehearse(campaign("single", limits={"ru-accept": 20}, prepare=prepare))

    assert (found.oracle.duplicates, found.oracle.over, found.oracle.queue_full) == ({}, (), 0)
    assert sum(found.oracle.runs.values()) == JOBS
    between = [one for one in found.oracle.submits if BEGIN + begin_s + 60 < one.at < BEGIN + begin_s + 600]
    assert between == []


def test_a_campaign_that_cannot_end_says_why() -> None:
    def prepare(pjm: PjmSimulator) -> None:
        pjm.fault("stat-fails", times=None)

    with pytest.raises(UsageError, match=r"0 of 90 jobs are done after .*pjstat"):
        rehearse(campaign("single", prepare=prepare, most_s=1200))


def test_noisy_neighbours_refuse_less_than_one_of_a_hundred() -> None:
    found = rehearse(campaign("single", limits={"ru-accept": 60}, neighbours=(10, 40)))

    assert found.refused_share < 0.01
    assert found.oracle.over == ()
    assert sum(found.oracle.runs.values()) == JOBS


def test_nodes_that_fail_cost_a_run_and_no_job() -> None:
    def prepare(pjm: PjmSimulator) -> None:
        pjm.fault("node-down", times=4, prob=0.2, value=20)
        pjm.fault("job-preempted", times=3, prob=0.2, value=30)
        pjm.fault("job-error", times=2, prob=0.1)

    found = rehearse(campaign("single", prepare=prepare))

    assert found.timeline[-1][-1] == JOBS
    assert found.oracle.duplicates == {}
    assert sum(found.oracle.runs.values()) == JOBS + 4 + 3
