"""Submissions of which only the spool knows: they were made on another machine, whose ledger is not here.

The spool is on the file system that all login nodes share. What a manifest there names, and the store does not know
ended, is written into the ledger of this machine as an intent; the scheduler says under its name what became of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from dagkit.errors import DagkitError, UnknownRun
from dagkit.executors.books import Books
from dagkit.model.messages import AttemptKey, TaskMessage
from dagkit.stores.base import Store

__all__ = ["adopt"]

log = logging.getLogger("dagkit.executors.slurm")


def adopt(books: Books, store: Store, workflow_id: str) -> int:
    """Write down what the ledger does not know; returns how many submissions there were."""
    names = books.spool.submissions()
    strange = sorted(set(names) - books.ledger.known(names)) if names else []
    return sum(_is_adopted(books, store, workflow_id, name) for name in strange)


def _is_adopted(books: Books, store: Store, workflow_id: str, name: str) -> bool:
    try:
        jobs = books.spool.folder(name).read_all()
    except DagkitError:  # it was never handed over: the manifest is complete before sbatch is called
        return False
    messages = [message for job in jobs for message in job]
    over = {place for place, message in enumerate(messages) if message.workflow_id != workflow_id}
    over |= _ended(store, workflow_id, messages)
    if len(over) == len(messages):
        books.spool.remove(name)
        return False
    detail = {"pack": max(map(len, jobs)), "jobs": len(jobs), "is_array": len(jobs) > 1}
    submission = books.ledger.intend(name, messages[0].queue, [message.key for message in messages], detail)
    if over:
        books.ledger.member_ended([(submission, place) for place in over])
    log.info("%s was submitted on another machine: %d of its tasks are followed", name, len(messages) - len(over))
    return True


def _ended(store: Store, workflow_id: str, messages: list[TaskMessage]) -> set[int]:
    """Places of attempts that have ended by the saved state."""
    try:
        entries = store.task_entries(workflow_id, [message.task for message in messages])
    except UnknownRun:
        return set()
    return {place for place, one in enumerate(messages) if _is_over(one.key, entries.get(one.task, {}))}


def _is_over(key: AttemptKey, entry: Mapping[str, Any]) -> bool:
    saved = (int(entry.get("generation", 0)), int(entry.get("attempt_no", 0)))
    this = (key.generation, key.attempt)
    return this < saved or (this == saved and entry.get("state") != "running")
