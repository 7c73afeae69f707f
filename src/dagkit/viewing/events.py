"""What happened in a run, newest first: read off the states of its tasks, for nobody writes it down as it happens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagkit.model.records import RunRow
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState
from dagkit.rows import TaskRow, seconds_of, task_row
from dagkit.viewing.attempts import attempts_of, failure_words
from dagkit.viewing.snapshot import GroupView, is_over

__all__ = ["Event", "happened"]

MAX_EVENTS: Final = 100
_NOTABLE: Final = {TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.SKIPPED, TaskState.CANCELLED}

Entries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        at: Seconds since the epoch.
        state: What it is shown like: a state of tasks or of runs; `ready` for a retry.
        subject: A task, or a group in words; empty for the run itself.
        task: The task to be looked at; empty if it is about more than one.
        text: In words.
    """

    at: float
    state: str
    subject: str
    task: str
    text: str


def happened(
    spec: WorkflowSpec, row: RunRow, groups: Sequence[GroupView], members: Mapping[str, Sequence[str]], entries: Entries
) -> tuple[Event, ...]:
    """The newest hundred events. O(tasks). `members`: names of the tasks of each group, by its key."""
    found = [*_of_run(row), *_of_groups(groups, members, entries)]
    found += heapq.nlargest(MAX_EVENTS, _of_tasks(spec, entries), key=lambda event: event.at)
    return tuple(sorted(found, key=lambda event: event.at, reverse=True)[:MAX_EVENTS])


def _of_tasks(spec: WorkflowSpec, entries: Entries) -> Iterator[Event]:
    for name, entry in entries.items():
        state = entry.get("state", "pending")
        if entry.get("past") and (place := spec.index.get(name)) is not None:
            yield from _of_retries(task_row(spec, place, dict(entry)), spec.tasks[place].resources)
        if state in _NOTABLE and (at := seconds_of(entry.get("completed_at"))) is not None:
            yield Event(at, state, name, name, str(entry.get("error") or "").partition("\n")[0])


def _of_retries(row: TaskRow, declared: Mapping[str, Any] | None) -> Iterator[Event]:
    attempts = attempts_of(row, declared)
    for i, attempt in enumerate(attempts[:-1]):
        if began := attempt.get("started_at"):
            words = failure_words(attempt, attempts[i + 1])
            yield Event(began + (attempt.get("wall_s") or 0.0), "ready", row.name, row.name, words)


def _of_groups(groups: Sequence[GroupView], members: Mapping[str, Sequence[str]], entries: Entries) -> Iterator[Event]:
    """The end of each group of more than one task."""
    for group in groups:
        if group.size < 2 or group.counts.ended < group.size:
            continue
        ends = [seconds_of(entries.get(name, {}).get("completed_at")) for name in members.get(group.key, ())]
        known = [end for end in ends if end is not None]
        if known:
            bad = group.size - group.counts.completed
            text = f"all {group.size:,} have ended" + (f", {bad:,} of them not completed" if bad else "")
            yield Event(max(known), "failed" if group.counts.failed else "completed", group.title, "", text)


def _of_run(row: RunRow) -> Iterator[Event]:
    yield Event(row.created_at, "pending", "", "", f"submitted: {row.counts.total:,} tasks")
    if is_over(row):
        yield Event(row.updated_at, str(row.status), "", "", f"the run {_ENDS.get(str(row.status), 'ended')}")


_ENDS: Final = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}
