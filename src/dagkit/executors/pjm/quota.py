"""How many jobs of a project go in one refill, and as what: the gate, what PJM said, what was submitted since."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import inf

from dagkit.engine.gate import Capacity, Gate, GateOptions, Room, group_sizes

__all__ = ["Call", "Quota"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of pjsub: of how many jobs, and whether as one bulk job."""

    jobs: int
    is_bulk: bool


class Quota:
    """Refills of one project. A refill is open from an answer of `pjstat --limit` until it is used up or is old.

    Attributes:
        why: What keeps more from being submitted, for people.
    """

    def __init__(self, options: GateOptions, refill_s: float, clock: Callable[[], float]) -> None:
        self.gate, self._refill_s, self._clock = Gate(options), refill_s, clock
        self._capacity: Capacity | None = None
        self._probed_at = -inf
        self._used = self._accepted = self._refused = 0
        self._since: dict[str, tuple[int, float | None]] = {}
        self._is_closed = True
        self.may_bulk = True
        self.why = ""

    # --- the refill

    @property
    def is_open(self) -> bool:
        return not self._is_closed and self._clock() - self._probed_at < self._refill_s

    def probed(self, capacity: Capacity, began_at: float, unanswered: Container[str] = ()) -> None:
        """A new refill, with what PJM said in answer to a question that was asked at `began_at`.

        Submissions that are `unanswered`, by name, may not be in its answer; the others are counted by it.
        """
        self.gate.learn(self._accepted, self._refused)
        self._used = self._accepted = self._refused = 0
        self._since = {
            name: (jobs, at)
            for name, (jobs, at) in self._since.items()
            if (name in unanswered if at is None else at >= began_at)
        }
        self._capacity, self._probed_at, self._is_closed = capacity, began_at, capacity.jobs is None
        self.why = capacity.problem

    def close(self, why: str) -> None:
        """Nothing more goes in this refill."""
        self._is_closed, self.why = True, why

    def calls(self, pending: int, own_active: int, mode: str, group_size: int) -> Sequence[Call]:
        """How to submit as many of `pending` jobs as may go now."""
        if not self.is_open or self._capacity is None:
            return ()
        single = self._decide(self._capacity.jobs, pending, own_active)
        bulk = self._groups(pending, own_active, group_size) if self._prefers_bulk(mode, pending) else ()
        if (mode == "bulk" and self.may_bulk) or (bulk and sum(bulk) >= single):
            chosen = [Call(size, True) for size in bulk]
        else:
            chosen = [Call(1, False)] * single
        if not chosen:
            self.close(self.why)
        return chosen

    def _prefers_bulk(self, mode: str, pending: int) -> bool:
        if mode == "single" or not self.may_bulk or self._capacity is None or self._capacity.jobs is None:
            return False
        margin = self.gate.options.safety_margin
        return mode == "bulk" or pending > self._capacity.jobs.free(margin) - self._submitted

    def _groups(self, pending: int, own_active: int, group_size: int) -> Sequence[int]:
        capacity = self._capacity
        if capacity is None or capacity.bulk_calls is None or capacity.bulk_subjobs is None:
            return ()
        allowed = self._decide(capacity.bulk_subjobs, pending, own_active)
        calls_free = capacity.bulk_calls.free(self.gate.options.safety_margin) - len(self._since)
        return group_sizes(
            subjobs_free=allowed, calls_free=calls_free, group_size=group_size, per_refill=allowed, pending=pending
        )

    def _decide(self, room: Room | None, pending: int, own_active: int) -> int:
        left = min(self.gate.per_refill, self.gate.window) - self._used
        decision = self.gate.decide(room, pending=pending, own_active=own_active, submitted_since_probe=self._submitted)
        self.why = decision.why
        return max(0, min(decision.allowed, left))

    @property
    def _submitted(self) -> int:
        """Jobs that PJM did not count in its answer, as far as is known."""
        return sum(jobs for jobs, _ in self._since.values())

    # --- what became of calls

    def intended(self, name: str, jobs: int) -> None:
        self._since[name] = (jobs, None)
        self._used += jobs

    def accepted(self, name: str) -> None:
        jobs, _ = self._since.get(name, (1, None))
        self._since[name] = (jobs, self._clock())
        self._accepted += jobs

    def withdrawn(self, name: str, *, is_full: bool) -> None:
        """It is not in PJM; `is_full` because the queue was."""
        jobs, _ = self._since.pop(name, (0, None))
        if is_full:
            self._refused += jobs
            self.close("the queue is full")
