"""A campaign in simulated time: how long it takes, how often it is refused, what it asks of PJM."""

from __future__ import annotations

import tempfile
from collections import Counter
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
from dagkit.testing.pjm.simulator import PjmSimulator, SimulatedJob
from dagkit.testing.pjm.site import Site

__all__ = ["Campaign", "Rehearsal", "rehearse"]

_BEGIN: Final = 1_800_000_000.0
_ACCEPT: Final = "ru-accept"
_BULK: Final = "ru-accept-bulksubjob"
_SETTLE_STEPS: Final = 40
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
        crashes: Seconds after which the driver dies, and another one takes over.
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
    crashes: tuple[float, ...] = ()
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
        done: How often each job was run to its end; the machine's knowledge, not the driver's.
        left: Parts of jobs that the machine still had some time after the campaign was over.
    """

    elapsed_s: float
    ideal_s: float
    timeline: tuple[tuple[float, int, int, int], ...]
    oracle: Oracle
    done: Counter[str]
    left: tuple[SimulatedJob, ...]

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
        did: Counter[str] = Counter()
        pjm = _machine(campaign, folder, lambda job: did.update(one.task for one in leave_completions(job)))

        def make() -> PjmExecutor:
            return virtual_executor(pjm, store, folder / "spools", campaign.queue, campaign.patience)

        driver = _Driver(campaign, pjm, make)
        try:
            return _drive(driver, campaign, pjm, did)
        finally:
            driver.executor.close()


def _machine(campaign: Campaign, folder: Path, outcome: Callable[[SimulatedJob], object]) -> PjmSimulator:
    groups = (campaign.queue.group,) if campaign.queue.group else ("group1",)
    site = Site(mode="plan", nodes=campaign.nodes, groups=groups, is_group_needed=False)
    pjm = PjmSimulator(folder / "pjm", site, at=_BEGIN, speed=None, outcome=outcome)
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


class _Driver:
    """What a coordinator does, by the machine's clock: offers what waits, takes what has ended."""

    def __init__(self, campaign: Campaign, pjm: PjmSimulator, make: Callable[[], PjmExecutor]) -> None:
        self._campaign, self._pjm, self._make, self.executor = campaign, pjm, make, make()
        self._rest = [_message(number) for number in range(campaign.jobs)]
        self._given: dict[str, TaskMessage] = {}
        self._crashes = sorted(campaign.crashes)
        self.done: set[str] = set()
        self.timeline: list[tuple[float, int, int, int]] = []

    def step(self) -> None:
        """One step, at whose end time goes by."""
        campaign = self._campaign
        if self._crashes and self._pjm.now - _BEGIN >= self._crashes[0]:
            self._crash()
        if self._rest and self.executor.capacity() != 0:
            taken = self.executor.submit(self._rest)
            self._given.update((message.task, message) for message in self._rest[:taken])
            del self._rest[:taken]
        for _ in range(2):  # what a look begins, the next poll takes
            found = [report for report in self.executor.poll(0) if isinstance(report, Completion)]
            self._take(found)
            self.executor.acknowledge(found)
        self.timeline.append((self._pjm.now - _BEGIN, *self._pjm.counts(), len(self.done)))
        # Within a refill what waits has to be offered.
        self._pjm.tick(min(campaign.step_s, campaign.patience.refill_s / 2))

    def _take(self, found: list[Completion]) -> None:
        for one in found:
            self._given.pop(one.task, None)
            if one.success:
                self.done.add(one.task)
            else:
                self._rest.append(replace(_message(int(one.task.partition("-")[2])), attempt=(one.attempt or 0) + 1))

    def _crash(self) -> None:
        """The driver dies, and another one finds what is written down."""
        self._crashes.pop(0)
        self.executor = self._make()
        self._take(self.executor.recover(list(self._given.values())))

    def check(self) -> None:
        """`UsageError` if it takes too long."""
        campaign, at = self._campaign, self.timeline[-1][0]
        if at > (campaign.most_s or _MOST * campaign.ideal_s + 7200):
            why = "; ".join(self.executor.problems()) or "nothing is known to be wrong"
            raise UsageError(f"{len(self.done)} of {campaign.jobs} jobs are done after {at:.0f} s: {why}")


def _drive(driver: _Driver, campaign: Campaign, pjm: PjmSimulator, did: Counter[str]) -> Rehearsal:
    while len(driver.done) < campaign.jobs:
        driver.step()
        driver.check()
    timeline = tuple(driver.timeline)
    for _ in range(_SETTLE_STEPS):  # what failed may still have to be deleted, and accepted deletions take effect
        driver.step()
    left = tuple(job for job in pjm.jobs() if not job.is_over)
    return Rehearsal(timeline[-1][0], campaign.ideal_s, timeline, pjm.oracle(), did, left)


def _message(number: int) -> TaskMessage:
    return TaskMessage("rehearsal", f"job-{number}", 1, 0, "default", {"cmd": "true"}, template="job")
