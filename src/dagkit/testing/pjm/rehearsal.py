"""A campaign in simulated time: how long it takes, how often it is refused, what it asks of PJM."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from typing import Final

from dagkit.errors import UsageError
from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.model.messages import Completion, TaskMessage
from dagkit.stores import open_store
from dagkit.testing.pjm.driver import leave_completions, virtual_executor
from dagkit.testing.pjm.oracle import Oracle
from dagkit.testing.pjm.simulator import PjmSimulator
from dagkit.testing.pjm.site import Site

__all__ = ["Campaign", "Rehearsal", "rehearse"]

_BEGIN: Final = 1_800_000_000.0
_ACCEPT: Final = "ru-accept"
_BULK: Final = "ru-accept-bulksubjob"
#: A campaign that is not over after so many times its ideal will not be.
_MOST: Final = 60


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is to run, and where.

    Attributes:
        jobs, run_s: How many jobs, and how long each of them runs.
        queue: How they are submitted: mode, group size, gate.
        patience: How often PJM is asked.
        nodes: Of the machine, all of them ours.
        limits: Of our own user, by name (`ru-accept`).
        neighbours: Least and most that other members of the group take of the group's `ru-accept`, changing every
            minute. The limit of the user becomes that of the group then.
        prepare: Called with the machine before anything is submitted: for faults.
        most_s: After which it is given up; default: many times its ideal.
        step_s: Seconds of the machine's time from one step of the driver to the next.
    """

    jobs: int
    run_s: float
    queue: PjmQueue
    patience: Patience = field(default_factory=Patience)
    nodes: int = 384
    limits: Mapping[str, int | None] = field(default_factory=dict)
    neighbours: tuple[int, int] | None = None
    prepare: Callable[[PjmSimulator], object] | None = None
    most_s: float | None = None
    step_s: float = 5.0

    @property
    def ideal_s(self) -> float:
        """Without any time between jobs, with every slot taken, and all jobs as single ones unless bulk is allowed."""
        is_single = self.queue.mode == "single"
        accept, bulk = self.limits.get(_ACCEPT), self.limits.get(_BULK)
        slots = accept if is_single else max(accept or inf, bulk or inf)
        return ceil(self.jobs / min(self.nodes, slots or inf)) * self.run_s


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How a campaign went.

    Attributes:
        elapsed_s, ideal_s: By the machine's clock.
        timeline: Seconds, jobs that PJM had, those of them that were on nodes, and jobs done, at every step.
        oracle: The machine's own record.
    """

    elapsed_s: float
    ideal_s: float
    timeline: tuple[tuple[float, int, int, int], ...]
    oracle: Oracle

    @property
    def ratio(self) -> float:
        return self.elapsed_s / self.ideal_s

    @property
    def refused_share(self) -> float:
        """How many of the calls of pjsub the machine refused because the queue was full."""
        return self.oracle.queue_full / max(1, len(self.oracle.submits))


def rehearse(campaign: Campaign) -> Rehearsal:
    """Run a campaign on a simulated PJM, by its clock. `UsageError` if it does not come to an end."""
    with (
        tempfile.TemporaryDirectory(prefix="dagkit-rehearsal-") as text,
        closing(open_store(Path(text) / "s")) as store,
    ):
        folder = Path(text)
        pjm = _machine(campaign, folder)
        executor = virtual_executor(pjm, store, folder / "spools", campaign.queue, campaign.patience)
        with closing(executor):
            return _drive(campaign, pjm, executor)


def _machine(campaign: Campaign, folder: Path) -> PjmSimulator:
    groups = (campaign.queue.group,) if campaign.queue.group else ("group1",)
    site = Site(mode="plan", nodes=campaign.nodes, groups=groups, is_group_needed=False)
    pjm = PjmSimulator(folder / "pjm", site, at=_BEGIN, speed=None, outcome=leave_completions)
    pjm.rule(run_s=campaign.run_s)
    pjm.limit(_ACCEPT, None)
    for name, most in campaign.limits.items():
        is_shared = campaign.neighbours is not None and name == _ACCEPT
        pjm.limit(name, most, "GROUP" if is_shared else "USER")
    if campaign.neighbours is not None:
        pjm.neighbours(_ACCEPT, *campaign.neighbours)
    if campaign.prepare is not None:
        campaign.prepare(pjm)
    return pjm


def _drive(campaign: Campaign, pjm: PjmSimulator, executor: PjmExecutor) -> Rehearsal:
    rest = [_message(number) for number in range(campaign.jobs)]
    timeline: list[tuple[float, int, int, int]] = []
    done: set[str] = set()
    step_s = min(campaign.step_s, campaign.patience.refill_s / 2)  # within a refill what waits has to be offered
    while len(done) < campaign.jobs:
        if rest and executor.capacity() != 0:
            del rest[: executor.submit(rest)]
        for _ in range(2):  # what a look begins, the next poll takes
            found = [report for report in executor.poll(0) if isinstance(report, Completion)]
            executor.acknowledge(found)
            done |= {one.task for one in found if one.success}
            rest += [_again(one) for one in found if not one.success]
        timeline.append((pjm.now - _BEGIN, *pjm.counts(), len(done)))
        if timeline[-1][0] > (campaign.most_s or _MOST * campaign.ideal_s + 7200):
            why = "; ".join(executor.problems()) or "nothing is known to be wrong"
            raise UsageError(f"{len(done)} of {campaign.jobs} jobs are done after {timeline[-1][0]:.0f} s: {why}")
        pjm.tick(step_s)
    return Rehearsal(timeline[-1][0], campaign.ideal_s, tuple(timeline), pjm.oracle())


def _message(number: int) -> TaskMessage:
    return TaskMessage("rehearsal", f"job-{number}", 1, 0, "default", {"cmd": "true"}, template="job")


def _again(one: Completion) -> TaskMessage:
    """The next attempt of a job that has failed."""
    return replace(_message(int(one.task.partition("-")[2])), attempt=(one.attempt or 0) + 1)
