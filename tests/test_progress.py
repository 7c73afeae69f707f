"""Progress: a bar on a terminal, few lines elsewhere, nothing when it is not wanted."""

from __future__ import annotations

import io

import pytest

from dagkit.model.records import Counts, RunRow
from dagkit.model.states import RunStatus
from dagkit.progress import LineProgress, format_counts, format_duration, progress_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(status: RunStatus = RunStatus.RUNNING, **counts: int) -> RunRow:
    return RunRow(
        "3f9c0000000000000000000000000000", "sweep", status, Counts(**counts), created_at=100.0, updated_at=141.0
    )


def test_a_terminal_gets_a_bar_with_counts_and_what_is_left() -> None:
    terminal = Terminal()

    with progress_for(None, terminal) as progress:
        progress.update(row(completed=92, failed=2, running=8, pending=20))

    text = terminal.getvalue()
    assert "94/122" in text
    assert "✗ 2" in text
    assert "left" in text


def test_names_with_markup_are_shown_as_they_are() -> None:
    terminal = Terminal()
    hostile = row(running=1)
    hostile.name = "[/red] [bold"

    with progress_for(True, terminal) as progress:
        progress.update(hostile)

    assert "[/red] [bold" in terminal.getvalue()


def test_elsewhere_a_line_says_the_first_failure_and_the_end_and_little_more() -> None:
    stream = io.StringIO()

    with progress_for(None, stream) as progress:
        for done in range(50):
            progress.update(row(completed=done, running=2))
        progress.update(row(completed=50, failed=1, running=1))
        progress.update(row(completed=50, failed=2))
        progress.update(row(RunStatus.FAILED, completed=50, failed=2))

    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "✗ 1" in lines[0]
    assert "failed  52 of 52" in lines[1]


def test_a_long_quiet_run_says_something_every_ten_seconds() -> None:
    now, stream = [0.0], io.StringIO()
    progress = LineProgress(stream, clock=lambda: now[0])

    for second in range(35):
        now[0] = float(second)
        progress.update(row(completed=second, running=1))

    assert len(stream.getvalue().splitlines()) == 3


def test_silence_is_silence() -> None:
    terminal = Terminal()

    with progress_for(False, terminal) as progress:
        progress.update(row(RunStatus.FAILED, failed=3))

    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0004, "<1 ms"),
        (0.012, "12 ms"),
        (0.44, "0.4 s"),
        (12.3, "12 s"),
        (185, "3:05"),
        (7_800, "2:10:00"),
        (59.9, "60 s"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_counts_come_in_the_order_of_every_bar() -> None:
    counts = Counts(pending=1, ready=2, running=3, cancelled=4, skipped=5, upstream_failed=6, failed=7, completed=8)

    assert format_counts(counts) == "✓ 8  ✗ 7  ⊘ 6  ↷ 5  ⊖ 4  ◐ 3  ○ 2  · 1"
