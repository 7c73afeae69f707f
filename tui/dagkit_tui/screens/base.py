"""What all screens have in common: a heading, watches that end with them, actions in threads, and what went wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from dagkit.wording import plain
from dagkit_tui.watching import Told, Watch, words_of

if TYPE_CHECKING:
    from dagkit_tui.app import DagkitApp

__all__ = ["DagkitScreen"]

T = TypeVar("T")


class DagkitScreen(Screen[None]):
    """A screen of dagkit. Whatever reads or changes a store happens in threads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._watches: list[Watch[Any]] = []

    @property
    def dagkit(self) -> DagkitApp:
        from dagkit_tui.app import DagkitApp

        return cast(DagkitApp, self.app)

    @property
    def is_dark(self) -> bool:
        return bool(self.app.current_theme.dark)

    # --- looking

    def watch_store(self, look: Callable[[], T], show: Callable[[T], None]) -> Watch[T]:
        """Look again and again until the screen is left; paused while another one is before it."""
        watch = Watch(self, look, show, self._say_trouble)
        self._watches.append(watch)
        watch.start()
        return watch

    def on_told(self, event: Told) -> None:
        if self.is_attached:
            event.say()

    def on_screen_suspend(self) -> None:
        for watch in self._watches:
            watch.pause()

    def on_screen_resume(self) -> None:
        for watch in self._watches:
            watch.pause(False)

    def on_unmount(self) -> None:
        for watch in self._watches:
            watch.stop()

    def _say_trouble(self, words: str) -> None:
        """In the line for it, as long as the store cannot be read; what is shown stays."""
        line = self.query_one("#trouble", Static)
        line.update(Text(f"✗ cannot refresh: {plain(words)}"))
        line.display = bool(words)

    # --- doing

    def act(self, do: Callable[[], str]) -> None:
        """Do something to the store in a thread, and say what it returns, or what went wrong."""
        app = self.app

        def work() -> None:
            try:
                words, severity = do(), "information"
            except Exception as error:  # whatever it is, it is one notice
                words, severity = words_of(error), "error"
            app.post_message(Told(lambda: self._said(words, severity)))

        threading.Thread(target=work, name="dagkit-tui-act", daemon=True).start()

    def _said(self, words: str, severity: Any) -> None:
        self.app.notify(plain(words), severity=severity, markup=False, timeout=8)
        for watch in self._watches:
            watch.ask()

    def find_out(self, ask: Callable[[], T], then: Callable[[T], None]) -> None:
        """Ask the store something in a thread, and go on with the answer."""
        app = self.app

        def work() -> None:
            try:
                found = ask()
            except Exception as error:  # as in `act`
                words = words_of(error)
                app.post_message(Told(lambda: self._said(words, "error")))
                return
            self.post_message(Told(lambda: then(found)))

        threading.Thread(target=work, name="dagkit-tui-ask", daemon=True).start()

    def action_help(self) -> None:
        from dagkit_tui.dialogs import Help
        from dagkit_tui.keys import help_text

        self.app.push_screen(Help(help_text(self.is_dark)))
