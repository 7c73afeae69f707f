"""The log of a task, followed while it runs."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Log, Static

from dagkit.run import Run
from dagkit.wording import plain
from dagkit_tui import words
from dagkit_tui.looks import LogLook, LogLooker
from dagkit_tui.screens.base import DagkitScreen

__all__ = ["LogScreen"]

_LINES: Final = 5000


class LogScreen(DagkitScreen):
    """What `l` on a task opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("f", "follow", "Follow"),
        Binding("g", "top", "First line", show=False),
        Binding("G", "bottom", "Last line", show=False),
    ]

    def __init__(self, run: Run, task: str) -> None:
        super().__init__()
        self._run_, self._name_ = run, task
        self._look: LogLook | None = None
        self._has_text = False

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="trouble", markup=False)
        yield Log(max_lines=_LINES, id="log")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.log_.focus()
        self.watch_store(LogLooker(self._run_, self._name_), self._show)
        self._say()

    @property
    def log_(self) -> Log:
        return self.query_one("#log", Log)

    def _show(self, look: LogLook) -> None:
        if look.is_new:
            self.log_.clear()
            self._has_text = False
            if look.is_cut:
                self.log_.write_line("… the beginning is left out: dagkit logs prints all of it")
        if look.text:
            self._has_text = True
            self.log_.write(_readable(look.text))
        self._look = look
        self._say()

    def _say(self) -> None:
        heading = Text(" ").append_text(words.own(self._run_.name)).append(" › ")
        heading.append_text(words.own(self._name_, "bold")).append(" › log")
        if self._look is not None:
            row = self._look.row
            heading.append("   ").append_text(words.state_words(row.state, self.is_dark))
            heading.append(f"   attempt {row.attempt} of {row.max_attempts}" if row.attempt else "   not started")
            if not self._has_text:
                heading.append("   nothing written yet" if not row.completed_at else "   it has written nothing")
        heading.append("   following" if self.log_.auto_scroll else "   standing still, f follows")
        self.query_one("#heading", Static).update(heading)

    # --- keys

    def action_back(self) -> None:
        self.dismiss()

    def action_follow(self) -> None:
        self.log_.auto_scroll = not self.log_.auto_scroll
        if self.log_.auto_scroll:
            self.log_.scroll_end(animate=False)
        self._say()

    def action_top(self) -> None:
        self.log_.auto_scroll = False
        self.log_.scroll_home(animate=False)
        self._say()

    def action_bottom(self) -> None:
        self.log_.auto_scroll = True
        self.log_.scroll_end(animate=False)
        self._say()


def _readable(text: str) -> str:
    """Without colours; of lines that were drawn over and over (progress bars), what was drawn last."""
    lines = text.replace("\r\n", "\n").split("\n")
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return "\n".join(plain(Text.from_ansi(line).plain, keep_lines=True) for line in drawn)
