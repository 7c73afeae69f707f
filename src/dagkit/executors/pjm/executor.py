"""The executor port over PJM: refills under the gate, completion files, one listing for all that is in flight.

Jobs live on when this process ends. Whoever drives the run next finds them by the ledger and goes on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dagkit.errors import BackendError, ConfigError, UsageError
from dagkit.executors.books import Books, Library
from dagkit.executors.ledger import Phase, Submission
from dagkit.executors.pjm import autopsy
from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.jobs import Attempt, Job, Jobs, Project
from dagkit.executors.pjm.leftovers import Leftovers
from dagkit.executors.pjm.limits import Limits
from dagkit.executors.pjm.outcome import Deed, Evidence, Result, is_over, judge
from dagkit.executors.pjm.pauses import Pauses
from dagkit.executors.pjm.quota import Quota
from dagkit.executors.pjm.request import PjmQueue, Request, request_of
from dagkit.executors.pjm.submission import Answer, Deleted, Verdict
from dagkit.executors.pjm.submitter import Pending, Submitter
from dagkit.executors.pjm.watch import Look, Patience, Watch
from dagkit.executors.reports import failure, stop_text
from dagkit.executors.spool import Arrival
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store

__all__ = ["PjmExecutor"]

log = logging.getLogger("dagkit.executors.pjm")

_RENEW_S: Final = 30.0
_KEEP_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True, repr=False)
class _Receipt:
    """What acknowledging a completion needs."""

    books: Books
    submission: Submission
    position: int
    arrival: Arrival | None


class PjmExecutor:
    """Runs tasks as jobs of PJM. Used by one thread, except `interrupt`.

    Args:
        store: Where outputs and logs go; jobs must be able to open it too.
        queues: Settings by queue; `default` for queues that are not named.
        folder: For spools and the output of jobs, on a file system that the nodes share with this machine.
        ledgers: For the ledgers, on a local disk; default: beside the spools, or in /var/tmp if that is a network.
        submit_workers: Calls of pjsub at a time.
        clock: Seconds since the epoch; all waiting for PJM is by it.
        pools: Makes the threads for a number of them.
    """

    name = "pjm"
    reports_start = True
    lives_on = True

    def __init__(
        self,
        store: Store,
        *,
        folder: Path,
        queues: Mapping[str, PjmQueue] | None = None,
        default: PjmQueue | None = None,
        ledgers: Path | None = None,
        patience: Patience | None = None,
        client: Client | None = None,
        owner: str = "dagkit",
        submit_workers: int = 4,
        clock: Callable[[], float] = time.time,
        pools: Callable[[int], Pool] = ThreadPoolExecutor,
    ) -> None:
        self._store, self._queues, self._default = store, dict(queues or {}), default or PjmQueue()
        self._patience, self._clock, self.client = patience or Patience(), clock, client or Client()
        self._library = Library(folder.absolute(), ledgers, owner, clock)
        self._jobs, self._bell, self._is_interrupted = Jobs(), threading.Event(), False
        self._pools = [pools(1), pools(submit_workers), pools(1)]
        self._watch = Watch(self.client, self._patience, clock, self._pools[0], self._bell.set)
        interval_s = self._patience.submit_interval_s
        self._submitter = Submitter(store.url, self.client, self._jobs, self._pools[1], interval_s, self._bell.set)
        self._pauses = Pauses(self._patience.retry_s, clock)
        self._quotas: dict[Project, Quota] = {}
        self._deletion: Future[Deleted] | None = None
        self._to_delete: set[Job] = set()
        self._again: list[TaskMessage] = []
        self._reports: list[Completion | Started] = []
        self._strays: dict[str, Books] = {}
        self._absent: Counter[str] = Counter()
        self._leftovers = Leftovers(self.client, self._patience, clock, self._pools[2])
        self._is_waiting = False
        self._probe_at = self._next_files = self._next_renewal = 0.0

    # --- the port: out

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        """Take what the gate lets through; see the port. Nothing before PJM has said how much it would take."""
        again = {message.key for message in self._again}
        fresh = [
            place
            for place, message in enumerate(messages)
            if not self._is_carried(message) and message.key not in again
        ]
        taken = len(messages)
        for request, places in self._grouped(messages, fresh):
            sent = 0 if self._again else self._send(request, [messages[place] for place in places])
            if sent < len(places):
                taken = min(taken, places[sent])
        self._is_waiting = taken < len(messages)
        return taken

    def capacity(self) -> int | None:
        """0 until the next refill while something waits; else None: the gate decides when messages come."""
        is_open = any(quota.is_open for quota in self._quotas.values())
        return 0 if (self._is_waiting or self._again) and not is_open else None

    def open_refill(self, limit_s: float) -> bool:
        """Ask PJM how much it takes before there are messages; whether it has said so within `limit_s`."""
        self._is_waiting = True
        deadline = time.monotonic() + limit_s
        while self.capacity() == 0 and time.monotonic() < deadline:
            self._tend()
            self._bell.wait(0.01)
        self._is_waiting = False
        return any(quota.is_open for quota in self._quotas.values())

    def _is_carried(self, message: TaskMessage) -> bool:
        """Whether a job has it already, by this process or by one before."""
        self._books(message.workflow_id)
        attempt = self._jobs.attempts.get(message.key)
        if attempt is not None:
            attempt.message = message
        return attempt is not None

    def _grouped(self, messages: Sequence[TaskMessage], places: Iterable[int]) -> list[tuple[Request, list[int]]]:
        """Places by run and request; a task whose request cannot be made fails at once."""
        groups: dict[tuple[str, Request], list[int]] = {}
        for place in places:
            message = messages[place]
            try:
                request = request_of(message, self._queues.get(message.queue, self._default))
            except UsageError as error:
                self._reports.append(failure(message, str(error), FailureKind.CONFIG))
                continue
            groups.setdefault((message.workflow_id, request), []).append(place)
        return [(request, found) for (_, request), found in groups.items()]

    def _send(self, request: Request, messages: Sequence[TaskMessage]) -> int:
        """Submit from the front as the gate allows; how many were dealt with."""
        project = request.settings.project
        if self._pauses.is_paused(request.profile) or self._pauses.is_paused(project):
            return 0
        quota, pack, sent = self._quota(request), request.pack, 0
        pending = -(-len(messages) // pack)
        if self._pauses.is_trial(request.profile) or self._pauses.is_trial(project):
            pending = min(pending, 0 if self._submitter.pending else 1)
        calls = quota.calls(pending, self._jobs.active[project], request.settings.mode, request.settings.group_size)
        for call in calls:
            part = messages[sent : sent + call.jobs * pack]
            try:
                self._submitter.begin(self._books(part[0].workflow_id), request, quota, call, part)
            except ConfigError as error:
                self._reports += [failure(message, str(error), FailureKind.CONFIG) for message in messages[sent:]]
                return len(messages)
            except BackendError as error:
                log.warning("%s", error)
                break
            sent += len(part)
        return sent

    def _quota(self, request: Request) -> Quota:
        project = request.settings.project
        if project not in self._quotas:
            self._quotas[project] = Quota(request.settings.gate, self._patience.refill_s, self._clock)
        return self._quotas[project]

    # --- answers of pjsub

    def _take_answers(self) -> None:
        for pending, answer in self._submitter.answers():
            if isinstance(answer, BackendError):  # there is no pjsub: nothing was submitted
                log.warning("%s", answer)
                self._withdraw(pending, str(answer))
                pending.quota.close(str(answer))
            elif answer is None:
                self._withdraw(pending, "not begun")
            else:
                self._answered(pending, answer)

    def _answered(self, pending: Pending, answer: Answer) -> None:
        profile, project = pending.request.profile, pending.request.settings.project
        verdict = answer.verdict
        if verdict is Verdict.SUBMITTED and answer.job is not None:
            pending.quota.accepted(pending.submission.name)
            self._pauses.accepted(profile, project)
            self._submitter.found(pending.books, pending.submission, answer.job)
            self._watch.hasten()
        elif verdict is Verdict.AMBIGUOUS:
            log.warning("it is not known whether PJM has %s: %s", pending.submission.name, answer.text)
            self._watch.hasten()
        elif verdict is Verdict.CONFIG:
            self._misconfigured(pending, answer)
        else:
            self._withdraw(pending, answer.text, is_full=verdict is Verdict.QUEUE_FULL)
            self._put_off(pending, answer)

    def _put_off(self, pending: Pending, answer: Answer) -> None:
        profile, project = pending.request.profile, pending.request.settings.project
        if answer.verdict is Verdict.BUDGET:
            self._pauses.pause(project, f"the campaign is paused, no job fails: the budget is used up ({answer.text})")
            pending.quota.close(answer.text)
        elif answer.verdict is Verdict.RESTRICTED:
            self._pauses.pause(profile, f"queue {profile} is restricted by the operator for now: {answer.text}")
        elif answer.verdict is Verdict.BULK_DENIED:
            log.warning("bulk jobs are not allowed here (%s): going on with single ones", answer.text)
            pending.quota.may_bulk = False
        elif answer.verdict is Verdict.UNKNOWN_REJECT:
            self._pauses.reject(profile, answer.text)
            pending.quota.close(answer.text)

    def _misconfigured(self, pending: Pending, answer: Answer) -> None:
        """The first job of it fails, the others are tried again; after the second refusal nothing fails any more."""
        messages = self._submitter.withdraw(pending.books, pending.submission, pending.quota, answer.text)
        if self._pauses.strike(pending.request.profile, answer.text):
            pack = pending.request.pack
            text = f"pjsub refused the job: {answer.text}"
            self._reports += [failure(message, text, FailureKind.CONFIG) for message in messages[:pack]]
            messages = messages[pack:]
        self._again += messages

    def _withdraw(self, pending: Pending, why: str, *, is_full: bool = False) -> None:
        self._again += self._submitter.withdraw(pending.books, pending.submission, pending.quota, why, is_full=is_full)

    def _send_again(self) -> None:
        if not self._again or not any(quota.is_open for quota in self._quotas.values()):
            return
        messages, self._again = self._again, []
        for request, places in self._grouped(messages, range(len(messages))):
            group = [messages[place] for place in places]
            self._again += group[self._send(request, group) :]

    # --- the port: back

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """What happened since the last poll; see the port."""
        deadline, was_waiting = time.monotonic() + wait_s, self.capacity() == 0
        while True:
            self._bell.clear()
            self._tend()
            left_s = deadline - time.monotonic()
            has_opened = was_waiting and self.capacity() is None
            if self._reports or left_s <= 0 or self._is_interrupted or has_opened:
                self._is_interrupted = False
                reports, self._reports = self._reports, []
                return reports
            self._bell.wait(min(left_s, self._pause_s()))

    def _pause_s(self) -> float:
        """Until something is due."""
        now = self._clock()
        dues = [self._next_files - now, self._watch.due_in_s] if self._jobs.attempts else []
        if self._is_waiting or self._again:
            dues.append(self._probe_at - now)
        return min(1.0, max(0.01, min(dues, default=1.0)))

    def _tend(self) -> None:
        now = self._clock()
        if now >= self._next_renewal:
            self._next_renewal = now + _RENEW_S
            for books in self._library.open.values():
                books.renew()
        self._take_answers()
        if self._jobs.attempts and now >= self._next_files:
            self._take_arrivals()
        look = self._watch.take()
        if look is not None:
            self._take_look(look)
        self._send_again()
        self._judge()
        self._delete()
        self._leftovers.delete()
        self._begin_look()

    def _begin_look(self) -> None:
        now = self._clock()
        wants_limits = bool(self._is_waiting or self._again) and now >= self._probe_at
        wants_limits = wants_limits and not all(self._pauses.is_paused(key) for key in self._waiting_keys())
        history = bool(self._jobs.gone) or any(
            now - submission.intended_at > self._patience.look_s for submission in self._jobs.unanswered.values()
        )
        has_jobs = bool(self._jobs.attempts or self._jobs.unanswered or self._strays or self._leftovers)
        self._watch.begin(jobs=has_jobs, history=history, limits=wants_limits)

    def _waiting_keys(self) -> set[object]:
        """Profiles of what waits, as far as it is here; of what the coordinator keeps only the projects are known."""
        keys: set[object] = set()
        for message in self._again:
            with contextlib.suppress(UsageError):
                keys.add(request_of(message, self._queues.get(message.queue, self._default)).profile)
        if self._is_waiting or not keys:
            keys |= {queue.project for queue in (self._default, *self._queues.values())}
        return keys

    def _take_arrivals(self) -> None:
        for books in self._library.open.values():
            for arrival in books.spool.arrivals():
                self._arrived(books, arrival)
        self._next_files = self._clock() + self._patience.files_s

    def _arrived(self, books: Books, arrival: Arrival) -> None:
        job = self._jobs.by_place.get((arrival.submission, arrival.job))
        attempt = job.attempts.get(arrival.place) if job is not None else None
        if attempt is None:  # its end was reported by another sign, or was saved before a crash
            books.spool.forget([arrival])
            return
        done = arrival.completion
        if attempt.stop is not None and not done.success:
            done.error, done.kind = _stop_words(attempt), attempt.stop
        self._report(books, attempt, done, arrival)

    def _report(self, books: Books, attempt: Attempt, done: Completion, arrival: Arrival | None = None) -> None:
        done.receipt = _Receipt(books, attempt.job.submission, attempt.position, arrival)
        self._jobs.remove(attempt)
        self._reports.append(done)

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """These are saved: close them in the ledger, then remove their files."""
        by_books: dict[int, list[_Receipt]] = {}
        for completion in completions:
            if isinstance(completion.receipt, _Receipt):
                by_books.setdefault(id(completion.receipt.books), []).append(completion.receipt)
        for receipts in by_books.values():
            books = receipts[0].books
            books.ledger.member_ended([(receipt.submission, receipt.position) for receipt in receipts])
            books.spool.forget([receipt.arrival for receipt in receipts if receipt.arrival is not None])
            for name in {one.submission.name for one in receipts if one.submission.phase is Phase.ENDED}:
                books.spool.remove(name)

    # --- what PJM says

    def _take_look(self, look: Look) -> None:
        if look.has_asked_limits:
            self._take_limits(look)
        if look.rows is None:
            return
        self._leftovers.seen(look)
        self._reconcile(look)
        now = self._clock()
        for job_id, job in self._jobs.by_id.items():
            row = look.rows.get(job_id)
            if row is not None and not is_over(row.st):
                self._is_active(job, row.st or "", row.reason)
            elif row is not None or (look.is_whole and (job.submission.answered_at or 0.0) < look.began_at):
                job.gone_at, job.row = job.gone_at or now, row or job.row
                self._jobs.gone.add(job)
        self._last_names = look.names if look.is_complete else None

    _last_names: dict[str, str] | None = None

    def _take_limits(self, look: Look) -> None:
        self._probe_at = look.began_at + self._patience.refill_s
        for queue in (self._default, *self._queues.values()):
            if queue.project not in self._quotas:
                self._quotas[queue.project] = Quota(queue.gate, self._patience.refill_s, self._clock)
        for (unit, group), quota in self._quotas.items():
            before = quota.why
            limits = look.limits or Limits(())
            capacity = limits.capacity(unit, group)
            if look.limits is None:
                capacity = type(capacity).unknown(look.problem)
            quota.probed(capacity, look.began_at, self._jobs.unanswered)
            if quota.why and quota.why != before and self._jobs_of(unit, group):
                log.warning("nothing is submitted, how much PJM takes is not known: %s", quota.why)

    def _jobs_of(self, unit: str | None, group: str | None) -> bool:
        """Whether any queue that is used has this project."""
        return self._default.project == (unit, group) or any(
            queue.project == (unit, group) for queue in self._queues.values()
        )

    def _is_active(self, job: Job, state: str, reason: str | None) -> None:
        job.gone_at = job.row = None
        self._jobs.gone.discard(job)
        if state == "HLD" and job.state != "HLD":
            log.warning("PJM job %s is held (%s) and keeps its slot: pjrls or pjdel it", job.id, reason or "no reason")
        job.state = state
        if state == "RUN" and not job.is_start_told:
            job.is_start_told = True
            first = min(job.attempts.values(), key=lambda attempt: attempt.place)
            self._reports.append(Started(*first.key, self._clock()))

    def _reconcile(self, look: Look) -> None:
        """Submissions without an answer: PJM has them by their name, or certainly has not."""
        if not look.is_whole or not self._jobs.unanswered:
            self._absent.clear()
        for submission in list(self._jobs.unanswered.values()):
            books = self._library.of(_run_of(submission))
            job_id = look.names.get(submission.name)
            if self._submitter.is_pending(submission):
                continue
            if job_id is not None:
                self._submitter.found(books, submission, job_id)
            elif self._is_absent(submission, look):
                unit_group = tuple(submission.detail.get("project") or (None, None))
                quota = self._quotas.get(unit_group) or Quota(self._default.gate, 0.0, self._clock)
                self._again += self._submitter.withdraw(books, submission, quota, "not in PJM under its name")
                self._strays[submission.name] = books
                log.warning("PJM has no %s: its tasks are submitted again", submission.name)
        for name in self._strays.keys() & look.names.keys():  # it came after all, when nobody wanted it any more
            log.warning("PJM has %s after all: it is deleted", name)
            del self._strays[name]
            self._leftovers.add(row.id for row in _rows(look) if row.name == name)

    def _is_absent(self, submission: Submission, look: Look) -> bool:
        """Whether PJM certainly has not this submission: it would be listed by now, and is not, twice in a row. One
        listing may have been cut off where it cannot be seen."""
        if not look.is_complete or look.began_at - submission.intended_at <= self._patience.settle_s:
            return False
        self._absent[submission.name] += 1
        return self._absent[submission.name] > 1

    # --- jobs that are gone

    def _judge(self) -> None:
        """End the attempts of jobs that are gone and have left no completion in the time that is allowed for it."""
        now = self._clock()
        for job in list(self._jobs.gone):
            since_s, row = now - (job.gone_at or now), job.row
            if row is not None and row.st != "ERR" and not job.is_deleted and since_s < self._patience.short_grace_s:
                continue
            in_queue = None if self._last_names is None else self._is_elsewhere(job, self._last_names)
            known = Evidence(
                row.st if row else None,
                row.pc if row else None,
                row.ec if row else None,
                row.sn if row else None,
                row.reason if row else None,
                since_s=since_s,
                is_deleted_by_us=job.is_deleted,
                is_in_queue=in_queue if row is None else None,
            )
            missing_s = self._patience.short_grace_s if job.is_deleted else self._patience.missing_s
            verdict = judge(known, grace_s=self._patience.grace_s, missing_s=missing_s)
            if verdict.result is Result.FAILURE:
                self._bury(job, verdict.kind or FailureKind.LOST, verdict.words, verdict.deeds)

    def _is_elsewhere(self, job: Job, names: Mapping[str, str]) -> bool:
        """Whether PJM has its name under another id. Parts of a bulk job share a name: the others say nothing of it."""
        found = names.get(job.submission.name)
        return found is not None and (job.id is None or found != job.id.job)

    def _bury(self, job: Job, kind: FailureKind, words: str, deeds: Sequence[Deed]) -> None:
        books = self._library.of(_run_of(job.submission))
        self._take_arrivals()  # a last look: the file may have come since
        attempts = sorted(job.attempts.values(), key=lambda attempt: attempt.place)
        if Deed.DELETE in deeds and job.id is not None:
            self._leftovers.add([job.id])
        if Deed.ALERT in deeds and not any(attempt.stop for attempt in attempts):
            log.warning("PJM job %s: %s, and not by us", job.id, words)
        if Deed.PAUSE in deeds and all(attempt.message is not None for attempt in attempts):
            self._pauses.pause(job.project, f"the campaign is paused, no job fails: {words}")
            self._again += [attempt.message for attempt in attempts if attempt.message is not None]
            books.ledger.member_ended([(job.submission, attempt.position) for attempt in attempts])
            for attempt in attempts:
                self._jobs.remove(attempt)
            return
        if kind is FailureKind.CONFIG:
            self._pauses.strike(job.submission.profile, words)
        reports = autopsy.completions(job, attempts, kind, words, books.spool, self._store)
        for done, attempt in zip(reports, attempts, strict=True):
            if attempt.stop is not None:
                done.error, done.kind = _stop_words(attempt), attempt.stop
            self._report(books, attempt, done)

    # --- stopping

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        """Stop these attempts. A job of which others are still wanted goes on; what it says of these is ignored."""
        waiting = [message for message in self._again if message.key in keys]
        self._again = [message for message in self._again if message.key not in keys]
        self._reports += [failure(message, stop_text(message, kind), kind) for message in waiting]
        for key in keys:
            attempt = self._jobs.attempts.get(key)
            if attempt is not None and attempt.stop is None:
                attempt.stop = kind
                self._jobs.stopped.add(attempt)
        self._bell.set()

    def _delete(self) -> None:
        if self._deletion is not None and self._deletion.done():
            self._deleted(self._deletion)
        if self._deletion is not None or not self._jobs.stopped:
            return
        now, due = self._clock(), set[Job]()
        for job in {attempt.job for attempt in self._jobs.stopped}:
            if not all(attempt.stop is not None for attempt in job.attempts.values()):
                self._drop_places(job)
            elif job.id is not None and now >= job.delete_at:
                due.add(job)
        if due:
            self._to_delete = due
            self._deletion = self._pools[2].submit(self.client.pjdel, [job.id for job in due if job.id is not None])
            self._deletion.add_done_callback(lambda _: self._bell.set())

    def _deleted(self, deletion: Future[Deleted]) -> None:
        now, self._deletion = self._clock(), None
        try:
            said = deletion.result()
        except BackendError as error:
            log.warning("jobs could not be deleted, trying again: %s", error)
            said = Deleted()
        accepted = {*said.accepted, *said.gone}
        for job in self._to_delete:
            job.is_deleted = job.is_deleted or job.id in accepted
            job.delete_at = now + (self._patience.stop_s if job.id in accepted else self._patience.look_s)
        self._watch.hasten()

    def _drop_places(self, job: Job) -> None:
        books = self._library.of(_run_of(job.submission))
        for attempt in [attempt for attempt in job.attempts.values() if attempt.stop is not None]:
            kind = attempt.stop or FailureKind.CANCELLED
            self._report(books, attempt, autopsy.failed(attempt, _stop_words(attempt), kind))

    # --- after a restart

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """Adopt what the ledgers say PJM has; what was put off is submitted again, what none of them knows is lost."""
        lost: list[Completion] = []
        for message in running:
            if self._is_carried(message):
                continue
            if self._books(message.workflow_id).ledger.was_put_off(message.key):
                self._again.append(message)
                continue
            text = "no PJM job is known for this attempt; its ledger may be on another machine"
            lost.append(failure(message, text, FailureKind.LOST))
        self._watch.hasten()
        return lost

    def _books(self, workflow_id: str) -> Books:
        """The books of a run; what they say is in flight is taken over when they are opened."""
        books = self._library.open.get(workflow_id)
        if books is not None:
            return books
        books = self._library.of(workflow_id)
        books.ledger.forget(_KEEP_S)
        for submission in books.ledger.open():
            self._jobs.add(submission, [None] * (1 + max(member.position for member in submission.members)))
            if submission.job_id is not None:
                self._jobs.answered(submission, submission.job_id)
        if self._store.cancel_requested([workflow_id]):
            keys = [key for key in self._jobs.attempts if key.workflow_id == workflow_id]
            self.cancel(keys, FailureKind.CANCELLED)
        return books

    # --- the rest

    def problems(self) -> list[str]:
        """What keeps work from going on, for people: pauses, an unknown capacity, a PJM that does not answer."""
        found = [*self._pauses.why.values(), *([self._watch.problem] if self._watch.problem else [])]
        if self._is_waiting or self._again:
            found += [quota.why for quota in self._quotas.values() if quota.why and not quota.is_open]
        return list(dict.fromkeys(found))

    @property
    def is_stuck(self) -> bool:
        """Whether nothing is in PJM, and nothing will be submitted before somebody or an hour has changed something."""
        waits = bool(self._is_waiting or self._again)
        return waits and not self._jobs.attempts and bool(self._pauses.why)

    def states(self) -> dict[AttemptKey, str]:
        """PJM's word for the job of each attempt in flight; empty where it has not been seen yet."""
        return {key: attempt.job.state for key, attempt in self._jobs.attempts.items()}

    def interrupt(self) -> None:
        """Make a waiting `poll` return. Thread-safe."""
        self._is_interrupted = True
        self._bell.set()

    def close(self, grace_s: float = 5.0) -> None:
        """Make no more calls and stop looking; jobs go on. Waits for calls of pjsub that were begun."""
        self._submitter.stop()
        for pool in self._pools:
            pool.shutdown(wait=True)
        with contextlib.suppress(BackendError):
            self._take_answers()
        self._library.close()


def _rows(look: Look) -> Iterable[autopsy.Row]:
    return (look.rows or {}).values()


def _run_of(submission: Submission) -> str:
    return submission.members[0].key.workflow_id


def _stop_words(attempt: Attempt) -> str:
    kind = attempt.stop or FailureKind.CANCELLED
    return str(kind) if attempt.message is None else stop_text(attempt.message, kind)
