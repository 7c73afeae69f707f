"""Looking at all jobs with one call of `squeue`, and one of `sacct` for those that are gone; less often while nothing
changes. The commands run in a thread of their own: a slow controller holds up nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from dagkit.errors import BackendError
from dagkit.executors.slurm.commands import Commands, NoAccounting
from dagkit.executors.slurm.listing import Ended, Listed
from dagkit.executors.slurm.outcome import is_active

__all__ = ["Look", "Patience", "Watch"]

log = logging.getLogger("dagkit.executors.slurm")

_GROWTH = 1.5
_BACK_S = 86_400


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is waited for; seconds.

    Attributes:
        collect_s: For more tasks to become ready, before an array is submitted.
        look_s, most_look_s: Between looks at the scheduler, at first and after nothing has changed for long.
        grace_s: For a completion to appear after its job has ended well (shared file systems show files late).
        short_grace_s: The same after a job that was killed.
        gone_s: For news of a job of which nobody knows anything.
        settle_s: For a submission without an answer that a first listing did not have.
        files_s: Between looks at the spool.
        stop_s: Until a job that was cancelled, and is still there, is cancelled again.
    """

    collect_s: float = 0.2
    look_s: float = 2.0
    most_look_s: float = 60.0
    grace_s: float = 60.0
    short_grace_s: float = 5.0
    gone_s: float = 180.0
    settle_s: float = 60.0
    files_s: float = 0.5
    stop_s: float = 90.0


@dataclass(slots=True)
class Look:
    """What was seen. `ended` and `names` hold what accounting knows of jobs that are gone, or that are looked for.

    Attributes:
        began_at: Seconds since the epoch before the first command ran: what was submitted later is not in it.
        names: Id of the job, or of the array, by the job's name.
        is_accounted: Accounting did not fail to answer: what it does not know now is not there.
    """

    began_at: float
    listed: dict[str, Listed]
    ended: dict[str, Ended] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    is_accounted: bool = True


class Watch:
    """Begins looks when they are due and hands out what they saw. Owns one thread; `close` joins it."""

    def __init__(self, commands: Commands, patience: Patience, wake: Callable[[], None]) -> None:
        self._commands, self._patience, self._wake = commands, patience, wake
        self._pool = ThreadPoolExecutor(1, "dagkit-slurm")
        self._pending: Future[Look] | None = None
        self._interval_s = patience.look_s
        self._due = 0.0
        self._last: dict[str, Listed] = {}
        self.has_accounting = True

    def hasten(self) -> None:
        """Something has changed: the next look is soon."""
        self._interval_s = self._patience.look_s
        self._due = min(self._due, time.monotonic() + self._interval_s)

    @property
    def has_news(self) -> bool:
        """Whether a look has ended that was not taken."""
        return self._pending is not None and self._pending.done()

    def begin(self, gone: Collection[str], sought: Collection[str]) -> None:
        """Look now if it is due: at all jobs, at the arrays or jobs `gone` from the list, for the names `sought`."""
        if self._pending is None and time.monotonic() >= self._due:
            self._pending = self._pool.submit(self._look, set(gone), set(sought))
            self._pending.add_done_callback(lambda _: self._wake())

    def take(self) -> Look | None:
        """What a look that has ended saw; None if there is none, or the scheduler did not answer."""
        if self._pending is None or not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        try:
            look = pending.result()
        except BackendError as error:
            self._interval_s = min(self._interval_s * _GROWTH, self._patience.most_look_s)
            self._due = time.monotonic() + self._interval_s
            log.warning("Slurm cannot be asked, trying again in %.0f s: %s", self._interval_s, error)
            return None
        has_changed, self._last = look.listed != self._last, look.listed
        grown = min(self._interval_s * _GROWTH, self._patience.most_look_s)
        self._interval_s = self._patience.look_s if has_changed or look.ended else grown
        self._due = time.monotonic() + self._interval_s
        return look

    def _look(self, gone: set[str], sought: set[str]) -> Look:
        began_at = time.time()
        listed = self._commands.squeue(with_ended=not self.has_accounting)
        look = Look(began_at, listed)
        for job, row in listed.items():
            if row.name in sought:
                look.names[row.name] = job.partition("_")[0]
        if self.has_accounting and (gone or sought - look.names.keys()):
            self._ask_accounting(look, gone, sought - look.names.keys())
        if not self.has_accounting:
            ended = {job: row for job, row in listed.items() if not is_active(row.state)}
            look.ended.update({job: Ended(row.state, None, None, row.name) for job, row in ended.items()})
        return look

    def _ask_accounting(self, look: Look, gone: set[str], sought: set[str]) -> None:
        try:
            if gone:
                look.ended = self._commands.sacct(gone)
            if sought:
                for job, row in self._commands.sacct_named(sought, _BACK_S).items():
                    look.names[row.name] = job.partition("_")[0]
        except NoAccounting as error:
            log.warning("jobs are judged without accounting from now on: %s", error)
            self.has_accounting = False
            look.listed = self._commands.squeue(with_ended=True)
            for job, listed in look.listed.items():
                if listed.name in sought:
                    look.names[listed.name] = job.partition("_")[0]
        except BackendError as error:  # what the controller said is worth something by itself
            look.is_accounted = False
            log.warning("Slurm's accounting cannot be asked now: %s", error)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
