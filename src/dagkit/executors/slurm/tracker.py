"""What becomes of jobs in flight: by the completions that they leave, and by what the scheduler says of them."""

from __future__ import annotations

import logging
import time
from typing import Final

from dagkit.errors import BackendError
from dagkit.executors.books import Books, Library
from dagkit.executors.ledger import Submission
from dagkit.executors.slurm import autopsy
from dagkit.executors.slurm.elements import Element, Elements
from dagkit.executors.slurm.outbox import Outbox, stopped
from dagkit.executors.slurm.outcome import Verdict, is_active, verdict_of
from dagkit.executors.slurm.submitter import Submitter
from dagkit.executors.slurm.watch import Look, Patience
from dagkit.executors.spool import Arrival
from dagkit.model.messages import Started, TaskMessage
from dagkit.stores.base import Store

__all__ = ["WORRIES", "Tracker"]

log = logging.getLogger("dagkit.executors.slurm")

#: Reasons for which a pending job may wait for ever (squeue(1), "JOB REASON CODES").
WORRIES: Final = (
    "DependencyNeverSatisfied",
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "PartitionConfig",
    "PartitionDown",
    "PartitionInactive",
    "ReqNodeNotAvail",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
)
_GROWTH: Final = 1.3
_LEAST_FILES_S: Final = 0.05


class Tracker:
    """Finds the ends of attempts and reports each once. The coordinator's thread only."""

    def __init__(
        self,
        store: Store,
        library: Library,
        elements: Elements,
        outbox: Outbox,
        submitter: Submitter,
        patience: Patience,
    ) -> None:
        self._store, self._library, self._elements, self._outbox = store, library, elements, outbox
        self._submitter, self._patience = submitter, patience
        self._files_s = min(_LEAST_FILES_S, patience.files_s)
        self._missed: dict[str, float] = {}
        self.files_due = 0.0
        """When to look at the spools again, by the monotonic clock."""

    # --- completions

    def take_arrivals(self) -> None:
        """Report what jobs have left; look again sooner if there was something."""
        has_some = False
        for workflow_id in list(self._elements.runs):
            books = self._library.of(workflow_id)
            for arrival in books.spool.arrivals():
                has_some = True
                self._arrived(books, arrival)
        least_s, most_s = min(_LEAST_FILES_S, self._patience.files_s), self._patience.files_s
        self._files_s = least_s if has_some else min(self._files_s * _GROWTH, most_s)
        self.files_due = time.monotonic() + self._files_s

    def _arrived(self, books: Books, arrival: Arrival) -> None:
        element = self._elements.by_place.get((arrival.submission, arrival.job))
        attempt = element.attempts.get(arrival.place) if element is not None else None
        if attempt is None:  # its end was reported by another sign, or was saved before a crash
            books.spool.forget([arrival])
        else:
            self._outbox.end(books, attempt, arrival.completion, arrival)
            if attempt.element.state == "RUNNING":
                self._next_begins(attempt.element)

    def _next_begins(self, element: Element) -> None:
        """Of the tasks of a job, the first that has not ended is the one that runs: say once that it has begun."""
        wanted = [attempt for attempt in element.attempts.values() if attempt.stop is None]
        first = min(wanted, key=lambda attempt: attempt.place, default=None)
        if first is not None and not first.is_start_told:
            first.is_start_told = True
            self._outbox.add(Started(*first.key, time.time()))

    # --- what the scheduler says

    def take_look(self, look: Look) -> list[TaskMessage]:
        """Take in a look; returns tasks that were submitted without an answer, and that Slurm has not."""
        again = self._reconcile(look)
        now = time.monotonic()
        for element in self._elements.by_id.values():
            row = look.listed.get(element.id or "")
            if row is not None and is_active(row.state):
                self._is_active(element, row.state, row.reason)
            elif (element.submission.answered_at or 0.0) < look.began_at:
                element.gone_at = element.gone_at or now
                self._elements.gone.add(element)
                element.ended = look.ended.get(element.id or "", element.ended)
        return again

    def _is_active(self, element: Element, state: str, reason: str) -> None:
        element.gone_at = element.ended = None
        self._elements.gone.discard(element)
        if state == "PENDING" and reason != element.reason and any(worry in reason for worry in WORRIES):
            log.warning("Slurm job %s (%s) may wait for ever: %s", element.id, element.submission.name, reason)
        element.state, element.reason = state, reason
        if state == "PENDING":  # after a requeue too: the time of an attempt counts from its last start
            for attempt in element.attempts.values():
                attempt.is_start_told = False
        elif state == "RUNNING":
            self._next_begins(element)

    def _reconcile(self, look: Look) -> list[TaskMessage]:
        """Submissions without an answer: Slurm has them by their name, or certainly has not."""
        again: list[TaskMessage] = []
        self._missed = {name: at for name, at in self._missed.items() if name in self._elements.unanswered}
        for submission in list(self._elements.unanswered.values()):
            books = self._library.of(_run_of(submission))
            job_id = look.names.get(submission.name)
            if job_id is not None:
                self._submitter.found(books, submission, job_id)
            elif look.is_accounted and self._has_settled(submission.name, look.began_at):
                books.ledger.refused(submission, "not in Slurm under its name")
                attempts = self._elements.withdraw(submission)
                books.spool.remove(submission.name)
                again += [attempt.message for attempt in attempts if attempt.message is not None]
                log.warning("Slurm has no %s: its tasks are submitted again", submission.name)
        return again

    def _has_settled(self, name: str, began_at: float) -> bool:
        """Whether it has been missing for long enough, from the first answer on. A controller that was busy takes up
        requests in any order: one that was sent before this answer may still come after it."""
        return began_at - self._missed.setdefault(name, began_at) > self._patience.settle_s

    # --- jobs that are gone

    def judge(self) -> None:
        """End the attempts of jobs that are gone and have left no completion in the time that is allowed for it."""
        now = time.monotonic()
        due = [e for e in self._elements.gone if now - (e.gone_at or now) >= self._allowed_s(e)]
        if not due:
            return
        self.take_arrivals()  # a last look: a file may have come since
        for element in due:
            if element.attempts:
                self._bury(element)

    def _allowed_s(self, element: Element) -> float:
        patience, ended = self._patience, element.ended
        if element.is_cancelled and ended is not None and verdict_of(ended) is Verdict.ENDED:
            return 0.0
        if ended is None or verdict_of(ended) is Verdict.UNCLEAR:
            return patience.short_grace_s if element.is_cancelled else patience.gone_s
        return patience.grace_s if ended.state in ("COMPLETED", "OUT_OF_MEMORY") else patience.short_grace_s

    def _bury(self, element: Element) -> None:
        books = self._library.of(_run_of(element.submission))
        attempts = sorted(element.attempts.values(), key=lambda attempt: attempt.place)
        reports = autopsy.completions(element, attempts, books.spool, self._store)
        for done, attempt in zip(reports, attempts, strict=True):
            self._outbox.end(books, attempt, done)

    def drop_stopped(self, element: Element) -> None:
        """A job goes on for others of its pack: those that are to be stopped end here, and the job is told of it."""
        books = self._library.of(_run_of(element.submission))
        unwanted = [attempt for attempt in element.attempts.values() if attempt.stop is not None]
        try:
            books.spool.folder(element.submission.name).stop(element.index, [attempt.place for attempt in unwanted])
        except BackendError as error:
            log.warning("Slurm job %s cannot be told to stop a task of its pack, which runs on: %s", element.id, error)
        for attempt in unwanted:
            self._outbox.end(books, attempt, stopped(attempt))
        if element.state == "RUNNING":
            self._next_begins(element)


def _run_of(submission: Submission) -> str:
    return submission.members[0].key.workflow_id
