"""The attempts of a task in words: what each died of, what the next one asked for instead, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagkit.rows import TaskRow

__all__ = ["advice", "attempts_of", "failure_words"]

#: By failure kind: what the person who reads it can do. A task's own exception speaks for itself.
_ADVICE: Final = {
    "memory": "it needs more memory: raise memory=, or let it grow with resource_scales={'memory': 1.5}",
    "timeout": "it needs more time: raise timeout= or runtime=, or let it grow with resource_scales={'runtime': 1.5}",
    "preempted": "its machine was taken away: retry it, and allow more retries= if that happens often",
    "node": "its machine failed: retry it",
    "lost": "nobody knows what became of it: retry it, and see dagkit doctor if that happens again",
    "config": "it cannot run as it is declared: correct that and rerun; dagkit doctor checks what is around it",
}


def advice(row: TaskRow) -> str:
    """What would help a task that failed; empty if nobody but its author can know."""
    return _ADVICE.get(row.kind or "", "") if row.error else ""


def attempts_of(row: TaskRow, declared: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Attempts oldest first, each with what it used and died of, and its `resources`; the last has a `state`.

    `declared`: what the definition asks for, which is not repeated in the state.
    """
    if not row.attempt:
        return []
    earlier = [one for one in row.past if one.get("attempt") != row.attempt]
    past = [{**one, "resources": one.get("resources") or declared or {}} for one in earlier]
    last = {"attempt": row.attempt, "kind": row.kind, "resources": row.resources, "queue": row.queue}
    return [*past, {**last, **row.usage, "state": row.state.value}]


def failure_words(attempt: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """`attempt 2 failed (memory): memory 27G → 40G`: what the next attempt asks for, if that is something else."""
    text = f"attempt {attempt.get('attempt', '?')} failed ({attempt.get('kind') or 'user'})"
    before, after = attempt.get("resources") or {}, then.get("resources") or {}
    grown = [
        f"{key} {before.get(key, '')} → {value}".replace("  ", " ")
        for key, value in after.items()
        if before.get(key) != value
    ]
    return f"{text}: {', '.join(grown)}" if grown else text
