"""All runs of a store, trouble first, and what is the matter with the one under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from dagkit.model.records import RunRow
from dagkit.model.states import RunStatus
from dagkit.run import Run
from dagkit.wording import ago, count, duration
from dagkit_tui import words
from dagkit_tui.actions import cancel, retry
from dagkit_tui.looks import RunLook, RunLooker, RunsLook, RunsLooker, Wanted
from dagkit_tui.screens.base import DagkitScreen
from dagkit_tui.table import Column, Table

__all__ = ["RunsScreen"]

_FILTERS: Final[dict[str, Callable[[RunRow], bool]]] = {
    "all": lambda row: True,
    "in trouble": lambda row: _trouble(row) == 0,
    "under way": lambda row: not _is_over(row),
    "over": lambda row: _is_over(row),
}
_SORTS: Final[dict[str, Callable[[RunRow], tuple[object, ...]]]] = {
    "trouble first": lambda row: (_trouble(row), -row.updated_at if _is_over(row) else -row.created_at),
    "newest first": lambda row: (-row.created_at,),
    "by name": lambda row: (row.name, -row.created_at),
}
_SHOWN_FAILURES: Final = 20


def _is_over(row: RunRow) -> bool:
    return isinstance(row.status, RunStatus) and row.status.is_over


def _trouble(row: RunRow) -> int:
    """0 for runs that somebody should look at, 1 for those under way, 2 for the rest."""
    if row.counts.failed or row.status == RunStatus.FAILED:
        return 0
    return 2 if _is_over(row) else 1


class RunsScreen(DagkitScreen):
    """The first screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("f", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
        Binding("c", "cancel", "Cancel"),
        Binding("r", "retry", "Retry"),
        Binding("q", "queues", "Queues"),
        Binding("escape", "leave_search", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._look: RunsLook | None = None
        self._looked_at = 0.0
        self._wanted, self._order = "all", "trouble first"
        self._text = ""
        self._preview_of: str | None = None
        self._looker: RunLooker | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="trouble", markup=False)
        yield Table[RunRow](self._columns(), lambda row: row.workflow_id, empty="reading the store …", id="runs")
        yield Static(id="preview", markup=False)
        yield Input(placeholder="part of a name or id", id="search")
        yield Footer()

    def _columns(self) -> list[Column[RunRow]]:
        def state(row: RunRow, width: int) -> Text:
            return words.state_words(row.status, self.is_dark)

        return [
            Column("run", 18, lambda row, width: words.run_title(row), grow=2),
            Column("status", 12, state),
            Column("progress", 8, lambda row, width: words.bar(row.counts, width, self.is_dark), grow=3, least=70),
            Column("tasks", 13, self._tasks, is_right=True),
            Column("rate", 7, self._rate, is_right=True, least=90),
            Column("age", 6, self._age, is_right=True),
            Column("left", 7, self._left, is_right=True, least=80),
            Column("driven by", 12, self._driven_by, grow=1, least=100),
        ]

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.query_one("#search").display = False
        self.query_one("#runs").focus()
        self._runs_watch = self.watch_store(RunsLooker(self.dagkit.store, time.monotonic), self._show)
        self._preview_watch = self.watch_store(self._look_at_current, self._show_preview)
        self.set_interval(1.0, self._tick)
        self._tick()

    @property
    def table(self) -> Table[RunRow]:
        return self.query_one("#runs", Table)

    # --- what is shown

    def _show(self, look: RunsLook) -> None:
        self._look, self._looked_at = look, time.monotonic()
        self._fill()

    def _fill(self, *, anew: bool = False) -> None:
        if self._look is None:
            return
        text = self._text.casefold()
        rows = [
            row
            for row in self._look.rows
            if _FILTERS[self._wanted](row) and (text in row.name.casefold() or text in row.workflow_id.casefold())
        ]
        rows.sort(key=_SORTS[self._order])
        nothing = "no runs yet: dagkit run FILE starts one" if not self._look.rows else "no run passes the filter"
        self.table.empty = nothing
        self.table.fill(dict(enumerate(rows)), len(rows), anew=anew or self._order != "by name")
        self._tick()

    def _now(self) -> float:
        """By the store's clock."""
        return self._look.now + time.monotonic() - self._looked_at if self._look else 0.0

    def _tick(self) -> None:
        self.query_one("#heading", Static).update(self._heading())
        self.table.refresh()

    def _heading(self) -> Text:
        left = Text().append(" dagkit", "bold").append(" · ").append_text(words.own(self.dagkit.store_name))
        if self._wanted != "all" or self._text:
            left.append(f" · {self._wanted}" + (f" · /{self._text}" if self._text else ""))
        if self._order != "trouble first":
            left.append(f" · {self._order}")
        right = self._summary().append(f"   {time.strftime('%H:%M:%S')} ")
        space = max(1, self.size.width - left.cell_len - right.cell_len)
        if left.cell_len + right.cell_len >= self.size.width:
            left.truncate(max(10, self.size.width - right.cell_len - 1), overflow="ellipsis")
        return left.append(" " * space).append_text(right)

    def _summary(self) -> Text:
        rows = self._look.rows if self._look else ()
        going = sum(not _is_over(row) for row in rows)
        failed = sum(row.status == RunStatus.FAILED for row in rows)
        done = sum(row.status == RunStatus.COMPLETED for row in rows)
        parts = [f"{going:,} running" if going else "", f"{failed:,} failed" if failed else "", f"{done:,} done"]
        return Text(" · ".join(filter(None, parts)) if rows else "", no_wrap=True)

    def _tasks(self, row: RunRow, width: int) -> Text:
        return Text(f"{row.counts.ended:,}/{row.counts.total:,}")

    def _rate(self, row: RunRow, width: int) -> Text:
        rate = self._look.rates.get(row.workflow_id) if self._look else None
        return Text(f"{rate:,.1f}/s" if rate else "–")

    def _age(self, row: RunRow, width: int) -> Text:
        return Text(ago(self._now() - row.created_at))

    def _left(self, row: RunRow, width: int) -> Text:
        left = self._look.left_s(row) if self._look else None
        return Text("–" if left is None else duration(left))

    def _driven_by(self, row: RunRow, width: int) -> Text:
        return words.own(row.driven_by.split(" #", 1)[0]) if row.driven_by else Text("–")

    # --- the run under the cursor

    @on(Table.Highlighted, "#runs")
    def _look_elsewhere(self) -> None:
        current = self.table.current
        name = current.workflow_id if current else None
        if name != self._preview_of:
            self._preview_of = name
            self._preview_watch.ask()

    def _look_at_current(self) -> RunLook | None:
        """In the thread of the watch."""
        name = self._preview_of
        if name is None:
            return None
        if self._looker is None or self._looker.run.id != name:
            self._looker = RunLooker(Run(self.dagkit.store, name, self.dagkit.settings))
            self._looker.wanted = Wanted(limit=1)
        return self._looker()

    def _show_preview(self, look: RunLook | None) -> None:
        preview = self.query_one("#preview", Static)
        if look is None or look.snapshot.row.workflow_id != self._preview_of:
            preview.update("")
            return
        lines = [words.run_title(look.snapshot.row).append("   ").append_text(self._counted(look))]
        failures: Sequence[Text] = [
            Text()
            .append("✗ ", words.style_of(failed.state, self.is_dark))
            .append_text(words.own(failed.name, "bold"))
            .append("   ")
            .append_text(words.own(failed.error.partition("\n")[0]))
            for failed in look.snapshot.failures[:_SHOWN_FAILURES]
        ]
        rest = look.snapshot.row.counts.failed - len(failures)
        lines += failures or [self._calm(look)]
        if rest > 0:
            lines.append(Text(f"and {count(rest, 'more failed task')}"))
        preview.update(Text("\n").join(lines))

    def _counted(self, look: RunLook) -> Text:
        return words.counted(look.snapshot.row.counts, self.is_dark)

    def _calm(self, look: RunLook) -> Text:
        running = [group for group in look.snapshot.groups if group.counts.running]
        parts = [
            words.state_words(look.snapshot.row.status, self.is_dark),
            *[words.own(f"{group.title}: {group.counts.running:,} running") for group in running[:5]],
        ]
        return Text("   ").join(parts)

    # --- keys

    @on(Table.Opened, "#runs")
    def action_open(self) -> None:
        from dagkit_tui.screens.run import RunScreen

        if (row := self.table.current) is not None:
            self.app.push_screen(RunScreen(row.workflow_id))

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.display = True
        search.focus()

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        self._text = event.value.strip()
        self._fill(anew=True)

    @on(Input.Submitted, "#search")
    def _searched(self) -> None:
        self.table.focus()

    def action_leave_search(self) -> None:
        search = self.query_one("#search", Input)
        search.value = ""
        search.display = False
        self.table.focus()

    def action_filter(self) -> None:
        self._wanted = _after(self._wanted, list(_FILTERS))
        self._fill(anew=True)

    def action_sort(self) -> None:
        self._order = _after(self._order, list(_SORTS))
        self._fill(anew=True)

    def action_cancel(self) -> None:
        if (row := self.table.current) is not None:
            cancel(self, Run(self.dagkit.store, row.workflow_id, self.dagkit.settings))

    def action_retry(self) -> None:
        if (row := self.table.current) is not None:
            retry(self, Run(self.dagkit.store, row.workflow_id, self.dagkit.settings))

    def action_queues(self) -> None:
        from dagkit_tui.screens.queues import QueuesScreen

        self.app.push_screen(QueuesScreen())


def _after(one: str, others: Sequence[str]) -> str:
    return others[(others.index(one) + 1) % len(others)]
