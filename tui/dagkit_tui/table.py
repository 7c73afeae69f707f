"""A table of any length: it draws the lines that are seen, and asks for those that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

__all__ = ["Column", "Table"]

T = TypeVar("T")

_GAP: Final = 2
_MARK: Final = "▸ "
_NO_MARK: Final = "  "


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column.

    Attributes:
        title: Its heading.
        width: Columns of the terminal; what `grow` columns get at least.
        cell: What stands in it, for a row and the columns there are.
        grow: Share of the space that is left over.
        is_right: Numbers stand on the right.
        least: Left out when the table is narrower than this.
    """

    title: str
    width: int
    cell: Callable[[T, int], Text]
    grow: int = 0
    is_right: bool = False
    least: int = 0


class Table(ScrollView, Generic[T], can_focus=True):
    """Rows by their place. One of them is under the cursor, and stays there while rows change.

    A heading of one line stays; rows that are not known yet are drawn as `…`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "jump(0)", "First", show=False),
        Binding("end,G", "jump(-1)", "Last", show=False),
        Binding("enter", "open", "Open"),
    ]
    DEFAULT_CSS = """
    Table { background: $background; color: $foreground; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--cursor", "table--heading", "table--blurred"}

    cursor: reactive[int] = reactive(0, always_update=False)

    class Highlighted(Message):
        """Another row is under the cursor."""

        def __init__(self, table: Table[Any]) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> Table[Any]:
            return self.table

    class Opened(Highlighted):
        """The row under the cursor was chosen."""

    class Wanted(Highlighted):
        """Rows are seen that are not known: `first` to `last`, the latter not included."""

        def __init__(self, table: Table[Any], first: int, last: int) -> None:
            super().__init__(table)
            self.first, self.last = first, last

    def __init__(
        self,
        columns: Sequence[Column[T]],
        key: Callable[[T], str],
        *,
        empty: str = "",
        id: str | None = None,  # noqa: A002 - the name Textual has for it
    ) -> None:
        super().__init__(id=id)
        self.columns, self.key, self.empty = columns, key, empty
        self.rows: dict[int, T] = {}
        self.total = 0
        self._asked: tuple[int, int] = (0, 0)

    # --- what is in it

    def fill(self, rows: Mapping[int, T], total: int, *, anew: bool = False) -> None:
        """These rows as they are now. `anew`: others than before; the cursor goes to the row it was on, or the first.

        Rows that were known and are not given stay as they are, but for those beyond `total`.
        """
        at = self.current
        if anew:
            self.rows = dict(rows)
        else:
            self.rows.update(rows)
        self.rows = {place: row for place, row in self.rows.items() if place < total}
        self.total, self._asked = total, (0, 0)
        self.virtual_size = Size(self.size.width, total + 1)
        self._find_again(at, anew)
        self.refresh()

    def _find_again(self, at: T | None, anew: bool) -> None:
        if at is not None and (now := self.rows.get(self.cursor)) is not None and self.key(now) == self.key(at):
            return
        place = self.cursor
        if at is not None:
            place = next((n for n, row in self.rows.items() if self.key(row) == self.key(at)), 0 if anew else place)
        place = max(0, min(place, self.total - 1))
        if place == self.cursor:
            self._highlight()
        self.cursor = place

    @property
    def current(self) -> T | None:
        """The row under the cursor, if it is known."""
        return self.rows.get(self.cursor)

    def select(self, key: str) -> bool:
        """Put the cursor on the row with this key; False if it is not known."""
        for place, row in self.rows.items():
            if self.key(row) == key:
                self.cursor = place
                return True
        return False

    # --- moving

    def watch_cursor(self) -> None:
        self._show_cursor()
        self._highlight()
        self.refresh()

    def _highlight(self) -> None:
        self.post_message(self.Highlighted(self))

    def _show_cursor(self) -> None:
        if self.cursor == 0:
            self.scroll_to(y=0, animate=False)
        else:
            self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False, force=True)

    def _move_to(self, place: int) -> None:
        self.cursor = max(0, min(place, self.total - 1))

    def action_move(self, by: int) -> None:
        self._move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._move_to(self.cursor + by * max(1, self.size.height - 2))

    def action_jump(self, place: int) -> None:
        self._move_to(place if place >= 0 else self.total - 1)

    def action_open(self) -> None:
        if self.current is not None:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        place = self.scroll_offset.y + event.y - 1
        if event.y < 1 or not 0 <= place < self.total:
            return
        was, self.cursor = self.cursor, place
        if event.chain > 1 and was == place:
            self.action_open()

    # --- drawing

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, self.total + 1)
        self.call_after_refresh(self._show_cursor)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._ask()

    def _ask(self) -> None:
        """Say which rows are seen and not known, once."""
        first = self.scroll_offset.y
        last = min(self.total, first + self.size.height)
        if all(place in self.rows for place in range(first, last)):
            return
        if not (self._asked[0] <= first and last <= self._asked[1]):
            self._asked = (first, last)
            self.post_message(self.Wanted(self, first, last))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style
        if y == 0:
            return self._line([Text(column.title) for column in self._shown()], _NO_MARK, self._style("heading", base))
        place = self.scroll_offset.y + y - 1
        if place >= self.total:
            text = self.empty if place == 0 else ""
            return Strip([Segment(f"{_NO_MARK}{text}", base)]).adjust_cell_length(width, base)
        is_current = place == self.cursor
        style = self._style("cursor" if self.has_focus else "blurred", base) if is_current else base
        mark = _MARK if is_current else _NO_MARK
        row = self.rows.get(place)
        if row is None:
            return self._line([Text("…")], mark, style)
        widths = self._widths()
        return self._line(
            [column.cell(row, width) for column, width in zip(self._shown(), widths, strict=True)], mark, style
        )

    def _style(self, name: str, base: Style) -> Style:
        return base + self.get_component_rich_style(f"table--{name}", partial=True)

    def _line(self, cells: Sequence[Text], mark: str, style: Style) -> Strip:
        line = Text(mark, style, no_wrap=True, end="")
        for column, width, cell in zip(self._shown(), self._widths(), cells, strict=False):
            cut = cell.copy()
            cut.truncate(width, overflow="ellipsis")
            space = " " * (width - cut.cell_len)
            line.append_text(Text(space) + cut if column.is_right else cut + Text(space))
            line.append(" " * _GAP)
        strip = Strip([*line.render(self.app.console, end="")])
        return strip.apply_style(Style(bgcolor=style.bgcolor)).adjust_cell_length(self.size.width, style)

    def _shown(self) -> list[Column[T]]:
        return [column for column in self.columns if column.least <= self.size.width]

    def _widths(self) -> list[int]:
        columns = self._shown()
        left = self.size.width - len(_MARK) - sum(column.width + _GAP for column in columns)
        shares = sum(column.grow for column in columns)
        return [column.width + (max(0, left) * column.grow // shares if shares else 0) for column in columns]
