"""One run: its groups as a tree, their tasks, and what is the matter with the one under the cursor."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, Input, Static

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.run import Run
from dagkit.viewing import Filter, GroupView, advice
from dagkit.wording import ago, duration, memory, plain
from dagkit_tui import actions, words
from dagkit_tui.looks import RunLook, RunLooker, Wanted
from dagkit_tui.screens.base import DagkitScreen
from dagkit_tui.table import Column, Table

__all__ = ["RunScreen"]

_TROUBLE: Final = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED})
_FILTERS: Final[dict[str, frozenset[TaskState]]] = {
    "all": frozenset(),
    "in trouble": _TROUBLE,
    **{state.words: frozenset({state}) for state in (TaskState.RUNNING, TaskState.READY, TaskState.PENDING)},
    **{state.words: frozenset({state}) for state in (TaskState.COMPLETED, TaskState.SKIPPED)},
}
_AROUND: Final = 100
_DETAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tree: a group, or all of them."""

    key: str
    branch: str
    title: str
    group: GroupView | None


class RunScreen(DagkitScreen):
    """What `enter` on a run opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("l", "log", "Log"),
        Binding("e", "error", "Error"),
        Binding("r", "retry", "Retry"),
        Binding("R", "rerun", "Rerun from"),
        Binding("x", "set_status", "Set status"),
        Binding("m", "limit", "Limit"),
        Binding("c", "cancel", "Cancel"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("f", "filter", "Filter"),
    ]

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id
        self._wanted = "all"
        self._filter = Filter()
        self._shown_filter: Filter | None = None
        self._looked_at = 0.0
        self._look: RunLook | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="trouble", markup=False)
        with Horizontal(id="panes"):
            yield Table[_Line](self._group_columns(), lambda line: line.key, empty="reading …", id="groups")
            with Vertical(id="right"):
                yield Static(id="crumbs", markup=False)
                yield Table[TaskRow](self._task_columns(), lambda row: row.name, empty="reading …", id="tasks")
                yield Static(id="detail", markup=False)
        yield Input(placeholder="part of a task's name or of its error", id="search")
        yield Footer()

    def _group_columns(self) -> list[Column[_Line]]:
        return [
            Column("group", 16, self._group_title, grow=1),
            Column("done", 11, self._group_done, is_right=True),
            Column("", 8, self._group_bar),
        ]

    def _task_columns(self) -> list[Column[TaskRow]]:
        def error(row: TaskRow, width: int) -> Text:
            return words.own(row.error.partition("\n")[0])

        return [
            Column("task", 16, lambda row, width: words.own(row.name), grow=1),
            Column("state", 17, lambda row, width: words.state_words(row.state, self.is_dark)),
            Column("try", 5, lambda row, width: Text(f"{row.attempt}/{row.max_attempts}" if row.attempt else "–")),
            Column("time", 7, self._task_time, is_right=True, least=56),
            Column("peak", 9, self._task_peak, is_right=True, least=80),
            Column("queue", 10, lambda row, width: words.own(row.queue), least=92),
            Column("message", 10, error, grow=3, least=64),
        ]

    def on_mount(self) -> None:
        self.query_one("#trouble").display = False
        self.query_one("#search").display = False
        self.tasks.focus()
        self._looker = RunLooker(Run(self.dagkit.store, self.run_id, self.dagkit.settings))
        self._run_watch = self.watch_store(self._looker, self._show)
        self.set_interval(1.0, self._tick)
        self._tick()

    @property
    def run_(self) -> Run:
        return self._looker.run

    @property
    def groups(self) -> Table[_Line]:
        return self.query_one("#groups", Table)

    @property
    def tasks(self) -> Table[TaskRow]:
        return self.query_one("#tasks", Table)

    # --- what is shown

    def _show(self, look: RunLook) -> None:
        self._look, self._looked_at = look, time.monotonic()
        lines = [_Line("", "", "all tasks", None)]
        lines += [
            _Line(group.key, branch, group.title, group)
            for place, branch in look.branches
            for group in (look.snapshot.groups[place],)
        ]
        self.groups.fill(dict(enumerate(lines)), len(lines))
        if look.wanted.filter == self._filter:
            page, is_new = look.page, self._shown_filter != self._filter
            self._shown_filter = self._filter
            self.tasks.empty = "no task passes the filter"
            self.tasks.fill({page.offset + n: row for n, row in enumerate(page.rows)}, page.total, anew=is_new)
        self._tick()
        self._show_detail()

    def _now(self) -> float:
        return self._look.snapshot.now + time.monotonic() - self._looked_at if self._look else 0.0

    def _tick(self) -> None:
        self.query_one("#heading", Static).update(self._heading())
        self.query_one("#crumbs", Static).update(self._crumbs())
        self.tasks.refresh()

    def _heading(self) -> Text:
        if self._look is None:
            return Text(" ").append_text(words.own(self.run_id)).append("   reading the store …\n")
        snapshot, row = self._look.snapshot, self._look.snapshot.row
        first = Text(" ").append_text(words.run_title(row)).append("   ")
        first.append_text(words.state_words(row.status, self.is_dark))
        parts = [f"{row.counts.ended:,} of {row.counts.total:,}"]
        if snapshot.is_over:
            parts += [f"took {duration(snapshot.elapsed_s)}", f"{ago(self._now() - row.updated_at)} ago"]
        else:
            parts += [f"{snapshot.rate:.1f}/s"] if snapshot.rate else []
            parts += [f"about {duration(snapshot.left_s)} left"] if snapshot.left_s is not None else []
            parts += [f"driven by {plain(snapshot.driven_by or 'nobody')}"]
            parts += [f"last change {ago(self._now() - row.updated_at)} ago"]
        if row.cancel_requested and not snapshot.is_over:
            parts.append("cancel requested")
        for part in parts:
            if first.cell_len + len(part) + 3 <= self.size.width:
                first.append(f"   {part}")
        counted = words.counted(row.counts, self.is_dark)
        columns = max(10, min(60, self.size.width - counted.cell_len - 4))
        return first.append("\n ").append_text(words.bar(row.counts, columns, self.is_dark)).append("  ") + counted

    def _crumbs(self) -> Text:
        group = self.groups.current
        text = Text(" ").append_text(words.own(group.title if group else "all tasks"))
        if self._look is not None and group is not None and group.group is not None and group.group.waits:
            text.append(" · ").append_text(words.own(group.group.waits))
        if self._wanted != "all":
            text.append(f" · {self._wanted}", "bold")
        if self._filter.text:
            text.append(" · /").append_text(words.own(self._filter.text, "bold"))
        return text.append(f" · {self.tasks.total:,}")

    def _group_title(self, line: _Line, width: int) -> Text:
        return Text().append(line.branch, "dim").append_text(words.own(line.title))

    def _group_done(self, line: _Line, width: int) -> Text:
        counts = self._counts(line)
        size = line.group.size if line.group else counts.total
        return Text(f"{counts.ended:,}/{size:,}")

    def _group_bar(self, line: _Line, width: int) -> Text:
        return words.bar(self._counts(line), width, self.is_dark)

    def _counts(self, line: _Line) -> Counts:
        if line.group is not None:
            return line.group.counts
        return self._look.snapshot.row.counts if self._look else Counts()

    def _task_time(self, row: TaskRow, width: int) -> Text:
        if row.state is TaskState.RUNNING and row.started_at is not None:
            return Text(duration(self._now() - row.started_at))
        return Text("–" if row.duration_s is None else duration(row.duration_s))

    def _task_peak(self, row: TaskRow, width: int) -> Text:
        peak = row.usage.get("peak_rss_bytes")
        return Text(memory(peak) if peak else "–")

    def _show_detail(self) -> None:
        row, detail = self.tasks.current, self.query_one("#detail", Static)
        detail.display = row is not None and bool(row.error)
        if row is None or not row.error:
            return
        lines = words.without_marks(row.error)
        first = Text().append("✗ ", words.style_of(row.state, self.is_dark)).append_text(words.own(row.name, "bold"))
        first.append(f"  attempt {row.attempt} of {row.max_attempts}, {row.kind or 'user'}")
        shown = [first, words.own(lines[0]), *[words.own(line, "dim") for line in lines[1:][-_DETAIL_LINES:]]]
        if helps := advice(row):
            shown.insert(2, words.own(f"→ {helps}"))
        detail.update(Text("\n").join(shown))

    # --- what is looked at

    @on(Table.Highlighted, "#groups")
    def _choose_group(self) -> None:
        line = self.groups.current
        self._look_at(replace(self._filter, group=(line.key or None) if line else None))

    @on(Table.Highlighted, "#tasks")
    def _choose_task(self) -> None:
        self._show_detail()

    @on(Table.Wanted, "#tasks")
    def _need_rows(self, event: Table.Wanted) -> None:
        first = max(0, event.first - _AROUND)
        self._looker.wanted = Wanted(self._filter, first, event.last - first + _AROUND)
        self._run_watch.ask()

    def _look_at(self, wanted: Filter) -> None:
        if wanted != self._filter:
            self._filter = wanted
            self._looker.wanted = Wanted(wanted)
            self._run_watch.ask()
            self._tick()

    # --- keys

    def action_back(self) -> None:
        search = self.query_one("#search", Input)
        if search.display:
            search.value, search.display = "", False
            self.tasks.focus()
        else:
            self.dismiss()

    @on(Table.Opened, "#groups")
    def _open_group(self) -> None:
        self.tasks.focus()

    @on(Table.Opened, "#tasks")
    def action_error(self) -> None:
        from dagkit_tui.screens.task import TaskScreen

        if (task := self._chosen_task()) is not None:
            self.app.push_screen(TaskScreen(self.run_, task))

    def action_log(self) -> None:
        from dagkit_tui.screens.log import LogScreen

        if (task := self._chosen_task()) is not None:
            self.app.push_screen(LogScreen(self.run_, task))

    def _chosen_task(self) -> str | None:
        """Name of the task under the cursor of the table of tasks; says so if there is none."""
        row = self.tasks.current
        if row is None:
            self.app.notify("no task is chosen: tab goes to the tasks, the arrows choose one", severity="warning")
        return row.name if row else None

    def action_retry(self) -> None:
        """All that failed; of one task it is a key of the screen about that task."""
        actions.retry(self, self.run_)

    def action_rerun(self) -> None:
        if (task := self._chosen_task()) is not None:
            actions.rerun(self, self.run_, task)

    def action_set_status(self) -> None:
        if (task := self._chosen_task()) is not None:
            actions.set_status(self, self.run_, task)

    def action_limit(self) -> None:
        """Of the template of the group under the cursor, where it has one; of the run at `all tasks`."""
        line = self.groups.current
        template = None
        if line is not None and line.group is not None:
            index = self.run_.spec.index
            template = self.run_.spec.tasks[index[line.key]].template if line.key in index else None
        actions.limit(self, self.run_, template)

    def action_cancel(self) -> None:
        actions.cancel(self, self.run_)

    def action_filter(self) -> None:
        names = list(_FILTERS)
        self._wanted = names[(names.index(self._wanted) + 1) % len(names)]
        self._look_at(replace(self._filter, states=_FILTERS[self._wanted]))

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.display = True
        search.focus()

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        self._look_at(replace(self._filter, text=event.value.strip()))

    @on(Input.Submitted, "#search")
    def _searched(self) -> None:
        self.tasks.focus()
