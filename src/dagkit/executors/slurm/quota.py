"""How many jobs a queue takes now: its submit limit if one is set, and what was learnt from refusals."""

from __future__ import annotations

import time
from math import inf

from dagkit.engine.gate import Constraint, Gate, GateOptions, Room

__all__ = ["Quota"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0


class Quota:
    """The gate of one queue, with a `limit` on one's jobs if one is known.

    A refusal of a single job says where the limit is, until one more is tried for. Elements of arrays count one by one,
    as they do for Slurm.
    """

    def __init__(self, limit: int | None, max_array: int) -> None:
        self._limit = limit
        self._gate = Gate(GateOptions(safety_margin=0, max_submit_per_refill=max_array, window=max_array))
        self._full_at: int | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._try_at = 0.0

    def allowed(self, pending: int, active: int) -> int:
        """How many of `pending` jobs may be submitted in one call, beside `active` ones."""
        room = Room((Constraint(self._bound(), active, "of jobs"),))
        return self._gate.decide(room, pending=pending, own_active=active).allowed

    def room(self, active: int) -> int | None:
        """How many more jobs there is room for; None for no known limit."""
        bound = self._bound()
        return None if bound is None else max(0, bound - active)

    @property
    def opens_in_s(self) -> float:
        """Seconds until one more is tried for, though the limit was met; infinite if none is."""
        left_s = self._try_at - time.monotonic()
        return left_s if self._full_at is not None and left_s > 0 else inf

    def accepted(self, count: int) -> None:
        self._gate.learn(count, 0)
        self._pause_s = _FIRST_PAUSE_S

    def refused(self, count: int, active: int) -> bool:
        """The limit was met with `count` more jobs. Whether fewer may be tried at once."""
        self._gate.window = min(self._gate.window, count)
        self._gate.learn(0, count)
        if count > 1:
            return True
        self._full_at = active
        self._try_at = time.monotonic() + self._pause_s
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        return False

    def _bound(self) -> int | None:
        """The limit by the settings, or by the last refusal as long as that is fresh."""
        learnt = self._full_at
        if learnt is not None and time.monotonic() >= self._try_at:
            learnt += 1
        bounds = [bound for bound in (self._limit, learnt) if bound is not None]
        return min(bounds, default=None)
