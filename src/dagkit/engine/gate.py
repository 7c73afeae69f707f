"""How many jobs may be submitted now: the gate between what waits and a scheduler's queue (facts: pjm 8.4).

The scheduler's limits count everybody's jobs, its answer is old by the time it is used, and members of the same group
submit too: so some slots are left to others, what was submitted since the answer is subtracted, and a refusal halves
what is tried next. What is not known is not submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["Capacity", "Constraint", "Decision", "Gate", "GateOptions", "Room", "group_sizes"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One limit that a job counts against; `used` counts everybody's. A `limit` of None is unlimited."""

    limit: int | None
    used: int
    name: str = ""

    def free(self, margin: int) -> float:
        """Slots left, less those that are left to others: `margin`, but never more than a tenth of the limit."""
        if self.limit is None:
            return inf
        return self.limit - self.used - min(margin, self.limit // 10)


@dataclass(frozen=True, slots=True)
class Room:
    """What one kind of submission counts against: single jobs, say, or the sub-jobs of a bulk job."""

    constraints: tuple[Constraint, ...] = ()

    def free(self, margin: int = 0) -> float:
        """Slots by the tightest limit; infinite if nothing limits it."""
        return min((constraint.free(margin) for constraint in self.constraints), default=inf)

    def tightest(self, margin: int = 0) -> Constraint | None:
        """The limit that binds; None if nothing limits it."""
        finite = [constraint for constraint in self.constraints if constraint.limit is not None]
        return min(finite, key=lambda constraint: constraint.free(margin), default=None)


@dataclass(frozen=True, slots=True)
class Capacity:
    """A scheduler's answer to how much it would take.

    Attributes:
        jobs: For single jobs; None if that is not known.
        bulk_calls, bulk_subjobs: For bulk submissions, counted by calls and by sub-jobs; None as above.
        problem: Why something is not known.
    """

    jobs: Room | None
    bulk_calls: Room | None = None
    bulk_subjobs: Room | None = None
    problem: str = ""

    @classmethod
    def unknown(cls, problem: str) -> Capacity:
        return cls(None, None, None, problem)


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What people set; counts of jobs.

    Attributes:
        safety_margin: Slots of each limit that are left to others; never more than a tenth of the limit.
        max_active_jobs: Most of our own jobs in the scheduler at a time, running or not; None for no such cap.
        target_active_jobs: The same, for who would rather have fewer.
        initial_submit_count: Size of the first refill, until a job has been accepted; None for that of the others.
        max_submit_per_refill: Most jobs in one refill.
        window: How many are tried at once at the beginning; halved by each refill that meets a full queue.
    """

    safety_margin: int = 20
    max_active_jobs: int | None = None
    target_active_jobs: int | None = None
    initial_submit_count: int | None = None
    max_submit_per_refill: int = 50
    window: int = 1000

    @property
    def own_cap(self) -> float:
        """Most of our own jobs at a time."""
        caps = (self.max_active_jobs, self.target_active_jobs)
        return min((cap for cap in caps if cap is not None), default=inf)


@dataclass(frozen=True, slots=True)
class Decision:
    """How many may be submitted now, and what keeps it from being more."""

    allowed: int
    why: str


class Gate:
    """Decides for one queue of a scheduler, and learns from what becomes of its decisions."""

    def __init__(self, options: GateOptions | None = None) -> None:
        self.options = options or GateOptions()
        self.window = self.options.window
        self.has_accepted = False

    @property
    def per_refill(self) -> int:
        """Most jobs in the next refill."""
        first = self.options.initial_submit_count
        return self.options.max_submit_per_refill if first is None or self.has_accepted else first

    def decide(
        self,
        room: Room | None,
        *,
        pending: int,
        own_active: int,
        submitted_since_probe: int = 0,
        problem: str = "",
    ) -> Decision:
        """How many of `pending` jobs may go.

        Args:
            room: What they count against by the last answer of the scheduler; None if that is not known.
            own_active: Our jobs that run, wait, are being submitted or are of unknown state.
            submitted_since_probe: By us, since that answer.
            problem: Why the room is not known.
        """
        if pending <= 0:
            return Decision(0, "nothing waits")
        if room is None:
            return Decision(0, f"how much the queue takes is not known: {problem or 'the scheduler has not said'}")
        options, margin = self.options, self.options.safety_margin
        bounds: list[tuple[float, str]] = [
            (room.free(margin) - submitted_since_probe, _limit_words(room.tightest(margin), margin)),
            (options.own_cap - own_active, f"{own_active} of our own jobs are active, of {options.own_cap} at most"),
            (self.per_refill, f"{self.per_refill} in one refill"),
            (self.window, f"{self.window} at once after the queue was full"),
            (pending, "all that wait"),
        ]
        allowed, why = min(bounds, key=lambda bound: bound[0])
        return Decision(max(0, int(allowed)), why)

    def learn(self, accepted: int, refused: int) -> None:
        """Take in a refill: how many jobs were accepted, and how many refused because the queue was full."""
        if accepted:
            self.has_accepted = True
        if refused:
            self.window = max(1, self.window // 2)
        elif accepted:
            self.window += max(1, self.options.max_submit_per_refill // 4)


def group_sizes(
    *, subjobs_free: float, calls_free: float, group_size: int, per_refill: int, pending: int
) -> Sequence[int]:
    """Sizes of the bulk submissions of one refill: as many as there are free calls, each of at most `group_size`
    sub-jobs, together at most the free sub-jobs, the refill and what waits."""
    left = int(max(0, min(subjobs_free, per_refill, pending)))
    sizes: list[int] = []
    while left > 0 and len(sizes) < calls_free:
        sizes.append(min(left, group_size))
        left -= sizes[-1]
    return sizes


def _limit_words(constraint: Constraint | None, margin: int) -> str:
    if constraint is None or constraint.limit is None:
        return "no limit"
    kept = min(margin, constraint.limit // 10)
    name = f"{constraint.name} " if constraint.name else ""
    return f"limit {name}{constraint.limit}, {constraint.used} used, {kept} left to others"
