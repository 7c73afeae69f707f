"""All about one task: its state, error, attempts, what it asks for, and the tasks around it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.run import Run
from dagkit.viewing import advice
from dagkit.wording import ago, count, duration, memory
from dagkit_tui import actions, words
from dagkit_tui.looks import TaskLook, TaskLooker
from dagkit_tui.screens.base import DagkitScreen

__all__ = ["TaskScreen"]


class TaskScreen(DagkitScreen):
    """What `enter` on a task opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("l", "log", "Log"),
        Binding("r", "retry", "Retry"),
        Binding("R", "rerun", "Rerun from"),
        Binding("x", "set_status", "Set status"),
    ]

    def __init__(self, run: Run, task: str) -> None:
        super().__init__()
        self._run_, self._name_ = run, task
        self._look: TaskLook | None = None
        self._looked_at = 0.0

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="trouble", markup=False)
        with VerticalScroll(id="facts-scroll"):
            yield Static(id="facts", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.query_one("#facts-scroll").focus()
        self.watch_store(TaskLooker(self._run_, self._name_), self._show)
        self.set_interval(1.0, self._tick)
        self._tick()

    def _show(self, look: TaskLook) -> None:
        self._look, self._looked_at = look, time.monotonic()
        self._tick()

    def _tick(self) -> None:
        heading = Text(" ").append_text(words.own(self._run_.name)).append(" › ")
        heading.append_text(words.own(self._name_, "bold"))
        if self._look is not None:
            heading.append("   ").append_text(words.state_words(self._look.row.state, self.is_dark))
            now = self._look.now + time.monotonic() - self._looked_at
            self.query_one("#facts", Static).update(_facts(self._look, now, self.is_dark))
        self.query_one("#heading", Static).update(heading)

    # --- keys

    def action_back(self) -> None:
        self.dismiss()

    def action_log(self) -> None:
        from dagkit_tui.screens.log import LogScreen

        self.app.push_screen(LogScreen(self._run_, self._name_))

    def action_retry(self) -> None:
        actions.retry(self, self._run_, self._name_)

    def action_rerun(self) -> None:
        actions.rerun(self, self._run_, self._name_)

    def action_set_status(self) -> None:
        actions.set_status(self, self._run_, self._name_)


def _facts(look: TaskLook, now: float, is_dark: bool) -> Text:
    blocks = [
        _about(look, now),
        _error(look.row, is_dark),
        _attempts(look.attempts),
        _neighbours("after", look.above, look.more_above, is_dark),
        _neighbours("before", look.below, look.more_below, is_dark),
    ]
    return Text("\n\n").join([block for block in blocks if block])


def _about(look: TaskLook, now: float) -> Text:
    row = look.row
    pairs = [
        ("attempt", f"{row.attempt} of {row.max_attempts}" if row.attempt else f"none yet, of {row.max_attempts}"),
        ("queue", row.queue),
        ("asks for", row.asks_for),
        ("time", _time(row, now)),
        ("peak", memory(row.usage["peak_rss_bytes"]) if row.usage.get("peak_rss_bytes") else ""),
        ("host", str(row.usage.get("host") or "")),
        ("condition", look.condition),
        ("command", look.command),
    ]
    lines = [Text().append(f"{name:<10}", "dim").append_text(words.own(value)) for name, value in pairs if value]
    return Text("\n").join(lines)


def _time(row: TaskRow, now: float) -> str:
    if row.state is TaskState.RUNNING and row.started_at is not None:
        return f"{duration(now - row.started_at)} so far"
    took = "" if row.duration_s is None else duration(row.duration_s)
    return took + (f", ended {ago(now - row.completed_at)} ago" if row.completed_at is not None else "")


def _error(row: TaskRow, is_dark: bool) -> Text:
    if not row.error:
        return Text()
    first, *rest = words.without_marks(row.error)
    kind = f" ({row.kind})" if row.kind else ""
    text = (
        Text()
        .append("✗ ", words.style_of(row.state, is_dark))
        .append_text(words.own(first, "bold"))
        .append(kind, "dim")
    )
    if helps := advice(row):
        text.append("\n→ ").append_text(words.own(helps))
    for line in rest:
        text.append("\n").append_text(words.own(line))
    return text


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> Text:
    if not attempts:
        return Text()
    lines = [Text("attempts", "dim"), *[Text("  ").append_text(_attempt(one)) for one in attempts]]
    return Text("\n").join(lines)


def _attempt(one: Mapping[str, Any]) -> Text:
    return words.own("  ".join(_attempt_words(one)))


def _attempt_words(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{one.get('attempt', '?')}"
    yield str(one.get("state") or f"failed ({one.get('kind') or 'user'})").replace("_", " ")
    if (wall := one.get("wall_s")) is not None:
        yield duration(float(wall))
    if peak := one.get("peak_rss_bytes"):
        yield memory(peak)
    if (code := one.get("exit_code")) is not None:
        yield f"exit code {code}"
    if signal := one.get("signal"):
        yield f"signal {signal}"
    if host := one.get("host"):
        yield f"on {host}"
    if resources := one.get("resources"):
        yield "asked for " + ", ".join(f"{key} {value}" for key, value in resources.items())


def _neighbours(title: str, rows: Sequence[TaskRow], more: int, is_dark: bool) -> Text:
    if not rows:
        return Text()
    lines = [Text(title, "dim")]
    for row in rows:
        words_of_state = words.state_words(row.state, is_dark)
        space = " " * max(2, 20 - words_of_state.cell_len)
        lines.append(Text("  ").append_text(words_of_state).append(space).append_text(words.own(row.name)))
    if more:
        lines.append(Text(f"  and {count(more, 'more task')}", "dim"))
    return Text("\n").join(lines)
