"""Looks at PJM: one listing for all jobs, and with it either the history or the limits, so two commands at most.

The commands run in a thread of their own: a slow manager holds up nobody. What fails is a visible state, not a zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dagkit.errors import BackendError
from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.ids import JobId
from dagkit.executors.pjm.limits import Limits
from dagkit.executors.pjm.listing import Listing, Row

__all__ = ["Look", "Patience", "Watch"]

log = logging.getLogger("dagkit.executors.pjm")

_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is waited for; seconds (facts: pjm 9).

    Attributes:
        look_s, most_look_s: Between looks at PJM, at first and after nothing has changed for long.
        refill_s: Between two refills, and so between two questions for the limits.
        submit_interval_s: Between two calls of pjsub.
        grace_s: For a completion to appear after its job has ended well; `short_grace_s` after one that was killed.
        missing_s: For a job that neither the live view nor the history has.
        settle_s: After a submission without an answer, until its absence from both counts. Longer than pjsub may take.
        files_s: Between looks at the spool.
        stop_s: Until a job that was deleted, and is still there, is deleted again.
        retry_s: Until a paused queue is tried again with one job.
        history_days: How far back the history is asked for.
    """

    look_s: float = 10.0
    most_look_s: float = 120.0
    refill_s: float = 60.0
    submit_interval_s: float = 1.0
    grace_s: float = 90.0
    short_grace_s: float = 10.0
    missing_s: float = 300.0
    settle_s: float = 180.0
    files_s: float = 1.0
    stop_s: float = 120.0
    retry_s: float = 3600.0
    history_days: int = 7


@dataclass(slots=True)
class Look:
    """What was seen.

    Attributes:
        began_at: Before the first command ran: what was submitted later is not in it.
        rows: The last word on each job and sub-job; `names` the job that has a name.
        is_whole: Every row could be read; one that was cut off may have hidden others.
        has_history: The history was asked for, and has answered.
        limits: None if they were not asked for; `problem` why they are not known.
    """

    began_at: float
    rows: dict[JobId, Row] | None = None
    names: dict[str, str] = field(default_factory=dict)
    is_whole: bool = True
    has_history: bool = False
    limits: Limits | None = None
    has_asked_limits: bool = False
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether what is not in it is not in PJM."""
        return self.is_whole and self.has_history


class Watch:
    """Begins looks when they are due and hands out what they saw. `pool` runs one at a time."""

    def __init__(
        self,
        client: Client,
        patience: Patience,
        clock: Callable[[], float],
        pool: Executor,
        wake: Callable[[], None],
    ) -> None:
        self._client, self._patience, self._clock = client, patience, clock
        self._pool, self._wake = pool, wake
        self._pending: Future[Look] | None = None
        self._interval_s = patience.look_s
        self._due = 0.0
        self._last_states: dict[JobId, str | None] = {}
        self._had_history = False
        self.problem = ""
        """Why PJM could not be asked; empty when it answers."""

    def hasten(self) -> None:
        """Something has changed: the next look is soon."""
        self._interval_s = self._patience.look_s
        self._due = min(self._due, self._clock() + self._interval_s)

    @property
    def due_in_s(self) -> float:
        return self._due - self._clock()

    def begin(self, *, jobs: bool, history: bool, limits: bool) -> None:
        """Look now: at the jobs if there are any and it is due, at the limits if they are asked for."""
        if self._pending is not None:
            return
        is_due = jobs and self._clock() >= self._due
        if not is_due and not limits:
            return
        if history and limits and is_due:  # two commands at most: by turns
            history, limits = not self._had_history, self._had_history
        if is_due:
            self._had_history = history
        self._pending = self._pool.submit(self._look, is_due, history and is_due, limits)
        self._pending.add_done_callback(lambda _: self._wake())

    def take(self) -> Look | None:
        """What a look that has ended saw; its `rows` are None if PJM was not asked for them, or did not answer."""
        if self._pending is None or not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        look = pending.result()
        if look.rows is not None:
            states = {job: row.st for job, row in look.rows.items()}
            has_changed, self._last_states = states != self._last_states, states
            self._schedule(self._patience.look_s if has_changed else self._interval_s * _GROWTH)
        return look

    def _schedule(self, interval_s: float) -> None:
        self._interval_s = min(interval_s, self._patience.most_look_s)
        self._due = self._clock() + self._interval_s

    def _look(self, jobs: bool, history: bool, limits: bool) -> Look:
        look, now = Look(self._clock()), datetime.fromtimestamp(self._clock())
        if jobs:
            self._look_at_jobs(look, history, now)
        if limits:
            look.has_asked_limits = True
            try:
                look.limits = self._client.limits()
            except BackendError as error:
                look.problem = str(error)
        return look

    def _look_at_jobs(self, look: Look, history: bool, now: datetime) -> None:
        try:
            live = self._client.live(now)
        except BackendError as error:
            self._schedule(self._interval_s * _GROWTH)
            self._tell(f"pjstat cannot be asked, everything counts as active: {error}")
            return
        self._tell("")
        look.rows = {}
        if history:
            try:
                self._take_rows(look, self._client.history(self._patience.history_days, now))
                look.has_history = True
            except BackendError as error:  # the live view is worth something by itself
                log.warning("the history of PJM cannot be asked now: %s", error)
        self._take_rows(look, live)

    def _take_rows(self, look: Look, listing: Listing) -> None:
        assert look.rows is not None
        look.is_whole = look.is_whole and not listing.dropped
        if listing.dropped:
            log.warning("pjstat: %d rows could not be read and are left out", listing.dropped)
        for row in listing.rows:
            look.rows[row.id] = row
            if row.name is not None:
                look.names[row.name] = row.id.job

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem
