"""Handing groups of attempts to PJM: written down first, then pjsub in a few threads, at most so many a second."""

from __future__ import annotations

import contextlib
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.errors import BackendError
from dagkit.executors.books import Books
from dagkit.executors.ledger import Submission
from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.jobs import Jobs
from dagkit.executors.pjm.names import job_name
from dagkit.executors.pjm.quota import Call, Quota
from dagkit.executors.pjm.request import Request
from dagkit.executors.pjm.script import arguments_of, script_of
from dagkit.executors.pjm.submission import Answer, Verdict
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import TaskMessage

__all__ = ["Pending", "Submitter"]

log = logging.getLogger("dagkit.executors.pjm")

_SCRIPT: Final = "job.sh"


@dataclass(slots=True, eq=False)
class Pending:
    """A call of pjsub that was begun. Its future holds None if the call was not made after all."""

    books: Books
    submission: Submission
    request: Request
    quota: Quota
    future: Future[Answer | None]


class _Pace:
    """Lets a call through once in so many seconds. Thread-safe."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s, self._next, self._lock = interval_s, 0.0, threading.Lock()

    def wait(self, stopped: threading.Event) -> None:
        with self._lock:
            now = time.monotonic()
            wait_s, self._next = self._next - now, max(self._next, now) + self._interval_s
        if wait_s > 0:
            stopped.wait(wait_s)


class Submitter:
    """Begins submissions. The coordinator's thread; pjsub itself runs in `pool`."""

    def __init__(
        self,
        store_url: str,
        client: Client,
        jobs: Jobs,
        pool: Executor,
        interval_s: float,
        wake: Callable[[], None],
    ) -> None:
        self._store_url, self._client, self._jobs, self._pool, self._wake = store_url, client, jobs, pool, wake
        self._pace, self._stopped = _Pace(interval_s), threading.Event()
        self.pending: list[Pending] = []

    def begin(self, books: Books, request: Request, quota: Quota, call: Call, messages: Sequence[TaskMessage]) -> None:
        """Write down one submission and hand it to pjsub.

        Raises `ConfigError` if it has no script, `BackendError` if it could not be written down; it is nowhere then.
        """
        packs = [messages[start : start + request.pack] for start in range(0, len(messages), request.pack)]
        name = job_name(f"{request.template}-{secrets.token_hex(6)}")
        folder = books.spool.folder(name)
        script = script_of(request, folder.path, is_bulk=call.is_bulk)
        detail = {
            "pack": request.pack,
            "jobs": len(packs),
            "is_bulk": call.is_bulk,
            "project": list(request.settings.project),
        }
        submission = books.ledger.intend(name, request.profile, [message.key for message in messages], detail)
        self._jobs.add(submission, messages)
        quota.intended(name, len(packs))
        try:
            folder.write(self._store_url, packs, {"path": sys.path, "on_stop": "leave"})
            path = _write_script(folder, script)
        except BackendError as error:
            self.withdraw(books, submission, quota, str(error))
            raise
        arguments = arguments_of(request, name, folder.path, len(packs) if call.is_bulk else None)
        future = self._pool.submit(self._call, quota, arguments, path)
        self.pending.append(Pending(books, submission, request, quota, future))
        future.add_done_callback(lambda _: self._wake())

    def _call(self, quota: Quota, arguments: Sequence[str], script: Path) -> Answer | None:
        self._pace.wait(self._stopped)
        if self._stopped.is_set() or not quota.is_open:
            return None  # the queue is full, or this process ends: whatever was not begun is not begun
        answer = self._client.pjsub(arguments, script)
        if answer.verdict not in (Verdict.SUBMITTED, Verdict.AMBIGUOUS, Verdict.BULK_DENIED):
            quota.close(answer.text)  # here, so that no other thread begins another call that is refused as well
        return answer

    def answers(self) -> list[tuple[Pending, Answer | BackendError | None]]:
        """Calls that have ended since the last time."""
        done = [pending for pending in self.pending if pending.future.done()]
        self.pending = [pending for pending in self.pending if pending not in done]
        return [(pending, _result(pending.future)) for pending in done]

    def is_pending(self, submission: Submission) -> bool:
        """Whether its call of pjsub has not ended, or its answer has not been taken."""
        return any(pending.submission is submission for pending in self.pending)

    def found(self, books: Books, submission: Submission, job_id: str) -> None:
        """PJM has a submission under this id, by its answer or by a listing."""
        self._jobs.answered(submission, job_id)
        try:
            books.ledger.accepted(submission, job_id)
        except BackendError as error:
            log.warning("PJM job %s (%s) could not be written down: %s", job_id, submission.name, error)

    def withdraw(
        self, books: Books, submission: Submission, quota: Quota, why: str, *, is_full: bool = False
    ) -> list[TaskMessage]:
        """PJM certainly does not have it; returns its messages."""
        attempts = self._jobs.withdraw(submission)
        quota.withdrawn(submission.name, is_full=is_full)
        with contextlib.suppress(BackendError):  # it stays an intent, and is looked for in vain after a restart
            books.ledger.refused(submission, why)
        books.spool.remove(submission.name)
        return [attempt.message for attempt in attempts if attempt.message is not None]

    def stop(self) -> None:
        """Make no more calls."""
        self._stopped.set()


def _result(future: Future[Answer | None]) -> Any:
    try:
        return future.result()
    except BackendError as error:
        return error


def _write_script(folder: JobFolder, text: str) -> Path:
    path = folder.path / _SCRIPT
    try:
        path.write_text(text)
    except OSError as error:
        raise BackendError(f"{path}: writing the script of a job failed: {error.strerror}") from error
    return path
