"""The app: a store, its screens, and how they look."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from dagkit.config import Settings
from dagkit.queues.base import Transport
from dagkit.stores.base import Store
from dagkit_tui.screens.run import RunScreen
from dagkit_tui.screens.runs import RunsScreen
from dagkit_tui.watching import Told

__all__ = ["DagkitApp"]


class DagkitApp(App[None]):
    """Shows the runs of a store, and what people do about them.

    Args:
        settings: Where the store and its queues are.
        store: Opened, and closed, by the caller.
        run_id: Begin with this run.
        is_dark: Colours for a dark background; `D` changes that.
    """

    TITLE = "dagkit"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012 - Textual declares it so
    VERTICAL_BREAKPOINTS = [(0, "-low"), (28, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("D", "turn", "Dark or light", show=False),
        Binding("ctrl+q", "quit", "Quit", show=True, priority=True),
    ]
    CSS = """
    #heading { height: auto; min-height: 1; padding: 0; text-style: none; border-bottom: solid $surface-lighten-2; }
    #trouble { height: auto; max-height: 3; background: $error-darken-2; color: $text; padding: 0 1; }
    #search { height: 1; border: none; background: $surface; padding: 0 1; }
    #search:focus { border: none; background: $boost; }
    Table { height: 1fr; }
    Table > .table--heading { color: $text-muted; }
    Table > .table--cursor { background: $primary-muted; text-style: bold; }
    Table > .table--blurred { background: $surface-lighten-1; }
    #preview { height: auto; max-height: 40%; border-top: solid $surface-lighten-2; padding: 0 1; }
    .-low #preview { max-height: 4; }
    #panes { height: 1fr; }
    #groups { width: 2fr; min-width: 40; max-width: 60; border-right: solid $surface-lighten-2; }
    #right { width: 3fr; }
    #crumbs { height: 1; color: $text-muted; }
    #detail { height: auto; max-height: 45%; border-top: solid $surface-lighten-2; padding: 0 1; }
    .-low #detail { max-height: 4; }
    .-narrow #panes { layout: vertical; }
    .-narrow #groups { width: 100%; max-width: 100%; height: 1fr; border-right: none;
                       border-bottom: solid $surface-lighten-2; }
    .-narrow #right { width: 100%; height: 2fr; }
    #facts-scroll { height: 1fr; padding: 0 1; }
    #log { height: 1fr; }
    ModalScreen { align: center middle; }
    .dialog { width: 72; max-width: 95%; height: auto; max-height: 90%; padding: 1 2;
              border: round $primary; background: $surface; }
    .help { width: 88; }
    .dialog .question { text-style: bold; margin-bottom: 1; }
    .dialog .detail { color: $text-muted; margin-bottom: 1; }
    .dialog .buttons { height: auto; align-horizontal: right; }
    .dialog Button { margin-left: 2; }
    """

    def __init__(self, settings: Settings, store: Store, run_id: str | None = None, *, is_dark: bool = True) -> None:
        super().__init__()
        self.settings, self.store, self._run_id = settings, store, run_id
        self.theme = "textual-dark" if is_dark else "textual-light"

    @property
    def store_name(self) -> str:
        return self.store.url

    @cached_property
    def transport(self) -> Transport:
        """The queues; opened by the thread that looks at them first."""
        return self.settings.open_transport()

    def on_mount(self) -> None:
        self.push_screen(RunsScreen())
        if self._run_id is not None:
            self.push_screen(RunScreen(self._run_id))

    def on_unmount(self) -> None:
        if "transport" in self.__dict__:
            self.transport.close()

    def on_told(self, event: Told) -> None:
        event.say()

    def action_turn(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
