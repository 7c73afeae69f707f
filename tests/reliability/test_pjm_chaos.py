"""Campaigns on a simulated PJM where anything may go wrong at any time: every job is done, once, within all limits.

Twelve campaigns; with DAGKIT_PJM_CHAOS=200 in the environment as many as it says.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Final

import pytest

from dagkit.engine.gate import GateOptions
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.testing.pjm import PjmSimulator
from dagkit.testing.pjm.rehearsal import Campaign, rehearse

SEEDS: Final = int(os.environ.get("DAGKIT_PJM_CHAOS", "12"))
#: What may happen, and with which values; the machine's seconds.
FAULTS: Final = (
    ("accept-kill", ""),
    ("accept-garbled", ""),
    ("accept-silent", ""),
    ("submit-killed", ""),
    ("submit-fails", ""),
    ("queue-full", ""),
    ("restricted", ""),
    ("budget", ""),
    ("warning", ""),
    ("stat-fails", ""),
    ("stat-cut", ""),
    ("stat-empty", ""),
    ("history-empty", ""),
    ("limits-fail", ""),
    ("limits-stale", "30"),
    ("delete-fails", ""),
    ("job-error", ""),
    ("job-requeued", "10"),
    ("job-moved", "large"),
    ("job-preempted", "20"),
    ("node-down", "15"),
    ("job-vanishes", ""),
)
OUTAGES: Final = ("stat-fails", "limits-fail")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_goes_wrong_every_job_is_done_once(seed: int) -> None:
    dice = random.Random(seed)
    did: list[str] = []

    def prepare(pjm: PjmSimulator) -> None:
        for kind, value in dice.sample(FAULTS, dice.randrange(2, 8)):
            after_s, times = dice.choice((0, 0, 30, 100, 200)), dice.randrange(1, 4)
            did.append(f"{kind} x {times} after {after_s} s")
            pjm.fault(kind, times=times, value=value, prob=dice.choice((1.0, 0.5, 0.1)), after_s=after_s)
        for kind in dice.sample(OUTAGES, dice.randrange(0, 2)):
            after_s = dice.randrange(300)
            did.append(f"{kind} for 600 s after {after_s} s")
            pjm.fault(kind, times=None, for_s=600, after_s=after_s)
        pjm.set(history_lag_s=dice.choice((5.0, 5.0, 60.0, 120.0)), has_extra_column=dice.random() < 0.3)

    jobs = dice.randrange(5, 60)
    gate = GateOptions(max_submit_per_refill=dice.choice((10, 50, 500)), safety_margin=dice.choice((0, 5, 20)))
    queue = PjmQueue(
        group="group1",
        elapse_s=600,
        mode=dice.choice(("single", "bulk", "auto")),
        pack=dice.choice((1, 1, 3)),
        group_size=dice.choice((3, 10, 100)),
        gate=gate,
    )
    campaign = Campaign(
        jobs,
        dice.choice((1.0, 30.0, 90.0)),
        queue,
        Patience(submit_interval_s=0.0, refill_s=dice.choice((15.0, 60.0)), retry_s=600.0),
        nodes=dice.choice((2, 10, 100)),
        limits={"ru-accept": dice.choice((3, 10, 40)), "ru-accept-bulksubjob": dice.choice((5, 50, 500))},
        neighbours=dice.choice((None, None, (0, 2))),
        prepare=prepare,
        crashes=tuple(dice.uniform(0, 400) for _ in range(dice.choice((0, 0, 1, 3)))),
        most_s=20_000,
    )

    found = rehearse(campaign)

    assert found.done == Counter({f"job-{number}": 1 for number in range(jobs)}), did
    assert (found.oracle.duplicates, found.oracle.over) == ({}, ()), did
    assert found.left == (), did
