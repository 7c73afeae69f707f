"""Runs and tasks as the words and numbers of the live view: JSON of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dagkit.model.names import fold_id
from dagkit.model.records import Counts
from dagkit.model.states import SEGMENT_ORDER, TaskState
from dagkit.notebook.lettering import shorten
from dagkit.progress import format_duration
from dagkit.rows import TaskRow
from dagkit.viewing import Event, GroupUsage, GroupView, Page, Snapshot, advice, failure_words

__all__ = ["details_of", "memory", "of_events", "of_group", "of_page", "of_snapshot", "of_task", "of_usage"]

ERROR_CHARS: Final = 8_000
_MESSAGE_CELLS: Final = 160
_MOST_ATTEMPTS: Final = 11
_MOST_USAGE: Final = 60


def memory(size: float) -> str:
    """`1.2 GiB`, `340 MiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def of_snapshot(shown: Snapshot, is_here: bool) -> dict[str, Any]:
    """The head of the view. `is_here`: this process drives the run."""
    counts = shown.row.counts
    return {
        "id": shown.row.workflow_id,
        "short": fold_id(shown.row.workflow_id),
        "name": shorten(shown.row.name, 60),
        "status": str(shown.row.status),
        "over": shown.is_over,
        "counts": numbers(counts),
        "ended": counts.ended,
        "total": counts.total,
        "rate": "" if shown.rate is None else rate_words(shown.rate),
        "left": "" if shown.left_s is None else f"about {format_duration(shown.left_s)} left",
        "elapsed_s": round(shown.elapsed_s, 1),
        "age_s": round(shown.age_s, 1),
        "driver": driver_words(shown, is_here),
        "hint": _hint(shown, is_here),
        "cancelling": bool(shown.row.cancel_requested and not shown.is_over),
        "failures": [of_row(row) for row in shown.failures[:3]],
        "problem": "",
    }


def _hint(shown: Snapshot, is_here: bool) -> str:
    """What to do about a run that stands still."""
    if shown.is_over or is_here or shown.driven_by:
        return ""
    how = f"dagkit.attach({shown.row.workflow_id!r}) here, or dagkit coordinator in a terminal"
    return f"Nobody drives this run, so nothing happens. It goes on with {how}."


def driver_words(shown: Snapshot, is_here: bool) -> str:
    """Who drives the run: this kernel, another process, or nobody."""
    if shown.is_over:
        return ""
    if is_here:
        return "driven by this kernel"
    return f"driven by {shorten(shown.driven_by, 60)}" if shown.driven_by else "driven by nobody"


def rate_words(rate: float) -> str:
    """`4.2 tasks/s`, `12 tasks/min`."""
    if rate >= 1:
        return f"{rate:,.0f} tasks/s" if rate >= 10 else f"{rate:.1f} tasks/s"
    return f"{rate * 60:.0f} tasks/min" if rate >= 1 / 60 else f"{rate * 3600:.0f} tasks/h"


def numbers(counts: Counts) -> list[int]:
    """In the order of every bar."""
    return [counts.of(state) for state in SEGMENT_ORDER]


def of_group(group: GroupView) -> list[Any]:
    """[counts, what is known of its tasks]; groups stand in the order of the scene's boxes."""
    return [numbers(group.counts), details_of(group)]


def details_of(group: GroupView) -> str:
    """`median 38 s · 39.8 GiB`."""
    words = []
    if group.median_s is not None:
        words.append(("median " if group.size > 1 else "") + format_duration(group.median_s))
    if group.peak_bytes:
        words.append(memory(group.peak_bytes))
    return " · ".join(words)


def of_row(row: TaskRow) -> list[Any]:
    """[name, state, attempts, seconds or None, started at or None, peak, queue, first line of the error]."""
    peak = row.usage.get("peak_rss_bytes")
    started = row.started_at if row.state is TaskState.RUNNING else None
    return [
        row.name,
        row.state.value,
        f"{row.attempt}/{row.max_attempts}" if row.attempt else "–",
        None if row.duration_s is None else round(row.duration_s, 6),
        started,
        memory(peak) if peak else "",
        row.queue,
        shorten(row.error.partition("\n")[0], _MESSAGE_CELLS) if row.error else "",
    ]


def of_page(page: Page, now: float) -> dict[str, Any]:
    return {"offset": page.offset, "total": page.total, "now": now, "rows": [of_row(row) for row in page.rows]}


def of_task(row: TaskRow, group: str | None, attempts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """What is said of the task that is selected; of a long error the end, where the cause stands."""
    error = row.error if len(row.error) <= ERROR_CHARS else f"{row.error[:500]}\n…\n{row.error[-ERROR_CHARS:]}"
    parents = ", ".join(row.depends_on[:3]) + (f" and {len(row.depends_on) - 3:,} more" * (len(row.depends_on) > 3))
    return {
        "name": row.name,
        "state": row.state.value,
        "group": group,
        "error": error,
        "facts": " · ".join(_facts(row)),
        "after": f"after {shorten(parents, 200)}" if parents else "",
        "history": [failure_words(one, then) for one, then in itertools.pairwise(attempts)],
        "advice": advice(row) if row.state is TaskState.FAILED else "",
        "attempts": [_of_attempt(one) for one in attempts[-_MOST_ATTEMPTS:]],
    }


def _facts(row: TaskRow) -> list[str]:
    facts = [f"attempt {row.attempt} of {row.max_attempts}" if row.attempt else "not begun", row.queue]
    if row.state is TaskState.RUNNING and row.started_at is None:
        facts.append("handed to its queue, has not been seen to begin")
    if host := row.usage.get("host"):
        facts.append(f"on {shorten(str(host), 40)}")
    if row.duration_s is not None and row.state is not TaskState.RUNNING:
        facts.append(format_duration(row.duration_s))
    if peak := row.usage.get("peak_rss_bytes"):
        facts.append(memory(peak))
    if row.resources:
        facts.append(f"asked for {shorten(row.asks_for, 80)}")
    if row.kind:
        facts.append(f"kind: {row.kind}")
    return facts


def _of_attempt(attempt: Mapping[str, Any]) -> list[str]:
    """[number, how it ended, time, peak, asked for, where]."""
    state, kind, wall_s = attempt.get("state", "failed"), attempt.get("kind"), attempt.get("wall_s")
    peak, asked = attempt.get("peak_rss_bytes"), attempt.get("resources") or {}
    return [
        str(attempt.get("attempt", "")),
        TaskState(state).words + (f" ({kind})" if kind and state == "failed" else ""),
        "" if wall_s is None else format_duration(wall_s),
        memory(peak) if peak else "",
        shorten(", ".join(f"{key} {'?' if isinstance(v, Mapping) else v}" for key, v in asked.items()), 60),
        shorten(str(attempt.get("host") or attempt.get("queue") or ""), 40),
    ]


def of_usage(rows: Sequence[tuple[GroupView, GroupUsage]]) -> dict[str, Any]:
    """[group, measured, tasks, median, longest, peak, asked for, cores, waited] of groups of which it is known."""
    known = [(group, used) for group, used in rows if used.measured or used.peak_bytes]
    return {"rows": [_of_usage(group, used) for group, used in known[:_MOST_USAGE]], "more": len(known[_MOST_USAGE:])}


def _of_usage(group: GroupView, used: GroupUsage) -> list[Any]:
    times = [used.median_s, used.longest_s, used.wait_s]
    median, longest, waited = ["" if time is None else format_duration(time) for time in times]
    return [
        shorten(group.title, 40),
        used.measured,
        group.size,
        median,
        longest if group.size > 1 else "",
        memory(used.peak_bytes) if used.peak_bytes else "",
        shorten(used.asked, 60),
        "" if used.cores is None else f"{used.cores:.1f}",
        waited,
    ]


def of_events(events: Sequence[Event]) -> dict[str, Any]:
    """[at, state, subject, task, text], newest first."""
    rows = [[round(one.at, 1), one.state, shorten(one.subject, 60), one.task, shorten(one.text, 140)] for one in events]
    return {"rows": rows}
