"""Progress of a run while somebody waits for it: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, Any, Protocol

from dagkit.model.names import fold_id
from dagkit.model.records import Counts, RunRow
from dagkit.model.states import SEGMENT_ORDER, TaskState

__all__ = ["GLYPHS", "Progress", "format_counts", "format_duration", "progress_for"]

LINE_INTERVAL_S = 10.0

GLYPHS = {
    TaskState.PENDING: "·",
    TaskState.READY: "○",
    TaskState.RUNNING: "◐",
    TaskState.COMPLETED: "✓",
    TaskState.FAILED: "✗",
    TaskState.UPSTREAM_FAILED: "⊘",
    TaskState.SKIPPED: "↷",
    TaskState.CANCELLED: "⊖",
}


class Progress(Protocol):
    """Shows a run; `update` may be called as often as wanted."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *details: Any) -> None: ...
    def update(self, row: RunRow) -> None: ...


def progress_for(wanted: bool | None, stream: IO[str] | None = None) -> Progress:
    """The bar on a terminal, lines elsewhere, nothing if `wanted` is False.

    By default on stderr; in a notebook, which shows that as an alarm, on stdout.
    """
    if stream is None:
        stream = sys.stdout if "ipykernel" in sys.modules else sys.stderr
    if wanted is False:
        return NoProgress()
    if stream.isatty():
        return BarProgress(stream)
    return LineProgress(stream)


def format_counts(counts: Counts) -> str:
    """`✓ 92  ✗ 2  ◐ 8`: the states that occur, in the order of every bar."""
    return "  ".join(f"{GLYPHS[state]} {counts.of(state)}" for state in SEGMENT_ORDER if counts.of(state))


def format_duration(seconds: float) -> str:
    """`3 ms`, `0.4 s`, `12 s`, `3:05`, `2:10:00`."""
    if 0 < seconds < 0.095:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class NoProgress:
    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    def update(self, row: RunRow) -> None:
        return None


class LineProgress:
    """A line when something notable happened: a first failure, the end; else at most one every ten seconds.

    `at_once`: the first one at the first look, for whoever comes to a run that is under way.
    """

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic, *, at_once: bool = False) -> None:
        self._stream, self._clock, self._failed = stream, clock, False
        self._next = clock() + (0 if at_once else LINE_INTERVAL_S)
        self._said = ""

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    def update(self, row: RunRow) -> None:
        failed, now = row.counts.failed > 0, self._clock()
        if (failed and not self._failed) or now >= self._next or _is_over(row):
            self._failed, self._next = failed, now + LINE_INTERVAL_S
            self._say(row)

    def _say(self, row: RunRow) -> None:
        counts = row.counts
        line = (
            f"{row.name} {fold_id(row.workflow_id)}  {row.status}  {counts.ended} of {counts.total}  "
            f"{format_counts(counts)}  {format_duration(max(0.0, row.updated_at - row.created_at))}"
        )
        if line != self._said:
            self._said = line
            self._stream.write(line + "\n")
            self._stream.flush()


class BarProgress(AbstractContextManager["BarProgress"]):
    """A bar with the counts by state, the rate and the time that is left."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        self._rich = Rich(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=36, complete_style="#0072b2", finished_style="#009e73"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(file=stream),
            refresh_per_second=8,
        )
        self._task = self._rich.add_task("", total=None, counts="")

    def __enter__(self) -> BarProgress:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()

    def update(self, row: RunRow) -> None:
        self._rich.update(
            self._task,
            description=row.name,
            total=row.counts.total,
            completed=row.counts.ended,
            counts=format_counts(row.counts),
        )


def _is_over(row: RunRow) -> bool:
    return str(row.status) in ("completed", "failed", "cancelled")
