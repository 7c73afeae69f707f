"""Handing groups of attempts to Slurm: written down first, submitted as one job or array, and what came of it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.books import Books
from dagkit.executors.ledger import Submission
from dagkit.executors.slurm.commands import Commands, Refused
from dagkit.executors.slurm.elements import Elements, packed
from dagkit.executors.slurm.refusals import Refusal, clear_words
from dagkit.executors.slurm.request import Request
from dagkit.executors.slurm.script import job_name, script_of
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import TaskMessage
from dagkit.runtime.environment import is_traced

__all__ = ["Answer", "Submitter"]

log = logging.getLogger("dagkit.executors.slurm")

_ENTRY = "dagkit.executors.job"


class Answer(Enum):
    """What became of one call of sbatch."""

    TAKEN = "taken"
    """Slurm has it, or may have it: that is found out later."""
    DEFERRED = "deferred"
    """Not now: a limit on the number of jobs."""


class Submitter:
    """Makes one submission at a time. The coordinator's thread only."""

    def __init__(self, store_url: str, commands: Commands, elements: Elements) -> None:
        self._store_url, self._commands, self._elements = store_url, commands, elements

    def submit(self, books: Books, request: Request, messages: Sequence[TaskMessage]) -> Answer:
        """One job for each pack of messages, as one array.

        Raises `ConfigError` if it can never be taken, `BackendError` if it could not be written down, or not be handed
        over for lack of an sbatch; nothing of it is in Slurm then, and nothing is left in the books.
        """
        jobs = packed(messages, request.pack)
        name = job_name(request.template, secrets.token_hex(5))
        detail = {"pack": request.pack, "jobs": len(jobs), "is_array": len(jobs) > 1}
        submission = books.ledger.intend(name, request.queue, [message.key for message in messages], detail)
        self._elements.add(submission, request.pack, messages)
        try:
            folder = books.spool.folder(name)
            folder.write(self._store_url, jobs, self._options(request))
            script = self._write_script(folder, request, name, len(jobs))
            job_id = self._commands.sbatch(script, has_jobs=sum(self._elements.active.values()) > len(jobs))
        except Refused as refused:
            return self._refused(books, submission, request, refused)
        except (ConfigError, BackendError) as error:
            self._withdraw(books, submission, str(error))
            raise
        self.found(books, submission, job_id)
        return Answer.TAKEN

    def found(self, books: Books, submission: Submission, job_id: str) -> None:
        """Slurm has a submission under this id, by its answer or by a listing."""
        self._elements.answered(submission, job_id)
        try:
            books.ledger.accepted(submission, job_id)
        except BackendError as error:
            log.warning("Slurm job %s (%s) could not be written down: %s", job_id, submission.name, error)

    def _refused(self, books: Books, submission: Submission, request: Request, refused: Refused) -> Answer:
        if refused.refusal is Refusal.UNCERTAIN:
            log.warning("it is not known whether Slurm has %s: %s", submission.name, refused.said)
            return Answer.TAKEN
        self._withdraw(books, submission, refused.said)
        if refused.refusal is Refusal.CONFIG:
            raise ConfigError(clear_words(refused.said, request.settings.partition)) from refused
        log.info("Slurm takes no more jobs in queue %s now: %s", request.queue, refused.said)
        return Answer.DEFERRED

    def _withdraw(self, books: Books, submission: Submission, why: str) -> None:
        self._elements.withdraw(submission)
        with contextlib.suppress(BackendError):  # it stays an intent, and is looked for in vain after a restart
            books.ledger.refused(submission, why)
        books.spool.remove(submission.name)

    def _options(self, request: Request) -> dict[str, Any]:
        told = {"traced": True} if is_traced(os.environ) else {}
        return {"path": sys.path, "on_stop": "leave", "srun": request.srun, **told}

    def _write_script(self, folder: JobFolder, request: Request, name: str, count: int) -> Path:
        index = "SLURM_ARRAY_TASK_ID" if count > 1 else "0"
        text = script_of(request, name, folder.path, count, ["-m", _ENTRY, str(folder.path), index])
        path = folder.path / "script.sh"
        try:
            path.write_text(text)
        except OSError as error:
            raise BackendError(f"{path}: writing the script of a job failed: {error.strerror}") from error
        return path
