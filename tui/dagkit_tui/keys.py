"""What the keys do and what the glyphs mean, as the help shows it."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from dagkit.model.states import SEGMENT_ORDER, TaskState
from dagkit_tui.words import state_words

__all__ = ["help_text"]

_KEYS: Final = (
    (
        "Everywhere",
        (
            ("↑ ↓ pgup pgdn", "move; j k g G and home end do too"),
            ("tab", "the next pane"),
            ("enter", "open what is under the cursor; a double click does too"),
            ("escape", "back"),
            ("D", "dark or light"),
            ("? / ctrl+q", "this help / leave"),
        ),
    ),
    (
        "Runs",
        (
            ("/", "search names and ids"),
            ("f", "only runs in trouble, under way, over; all"),
            ("s", "sort: trouble first, newest, name"),
            ("c r", "cancel the run; retry what failed in it"),
            ("q", "queues"),
        ),
    ),
    (
        "A run",
        (
            ("/", "search tasks and errors"),
            ("f", "only tasks in one state; all"),
            ("enter", "on a group: its tasks; on a task: all about it"),
            ("l e", "log of the task, its error"),
            ("r R", "retry all that failed, or the task that is open; rerun from the task"),
            ("x", "set the task's status by hand"),
            ("m", "limit how many tasks run at a time; 0 pauses"),
            ("c", "cancel the run"),
        ),
    ),
)
_MEANING: Final = {
    TaskState.PENDING: "waits for what it depends on",
    TaskState.READY: "may run, waits for room",
    TaskState.RUNNING: "handed to its queue or being worked on",
    TaskState.COMPLETED: "done",
    TaskState.FAILED: "attempts used up",
    TaskState.UPSTREAM_FAILED: "cannot run, because of what it depends on",
    TaskState.SKIPPED: "its condition did not hold",
    TaskState.CANCELLED: "stopped by a person or by fail fast",
}
_COLUMNS: Final = 20


def help_text(is_dark: bool) -> Text:
    """All keys by screen, then all states."""
    text = Text()
    for title, keys in _KEYS:
        text.append(f"{title}\n", "bold")
        for key, meaning in keys:
            text.append(f"  {key:<{_COLUMNS}}{meaning}\n")
        text.append("\n")
    text.append("States\n", "bold")
    for state in SEGMENT_ORDER:
        words = state_words(state, is_dark)
        text.append("  ").append_text(words).append(" " * (_COLUMNS - words.cell_len)).append(f"{_MEANING[state]}\n")
    text.rstrip()
    return text
