"""What somebody who watches a run has chosen to see: a page of tasks, one task, its log, what was used and happened."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from dagkit.model.states import TaskState
from dagkit.notebook import wording
from dagkit.rows import TaskRow
from dagkit.viewing import Filter, LogTail, RunViewer
from dagkit.viewing.pace import Allowance

__all__ = ["Selection"]

MAX_ROWS: Final = 80
LOG_CHARS: Final = 16_000
_SHARE: Final = 0.1
_MOST_VIEWS: Final = 20


class Selection:
    """Kept in the kernel, so that a page that is loaded again shows the same. One thread at a time.

    Rows of tasks are read again when the run has changed and that has not taken more than a tenth of the time: in some
    stores the state of a run is one blob, and to read a row is to read all of it.
    """

    def __init__(self, viewer: RunViewer, clock: Callable[[], float] = time.monotonic) -> None:
        self._viewer = viewer
        self._filter, self._offset, self._limit = Filter(), 0, 40
        self._row: TaskRow | None = None
        self._tail: LogTail | None = None
        self._log, self._attempt = "", 0
        self._tabs: dict[str, str] = {}
        self._allowance = Allowance(clock, _SHARE, 0.0)
        self._is_asked, self._is_behind = True, True

    def choose(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Another page: `group`, `states`, `text` (`name*` is a prefix), `calm` (as defined), `offset`, `limit`."""
        text = str(question.get("text") or "")[:200]
        is_prefix = len(text) > 1 and text.endswith("*")
        self._filter = Filter(
            states=frozenset(TaskState(state) for state in question.get("states") or ()),
            group=question.get("group"),
            prefix=text[:-1] if is_prefix else "",
            text="" if is_prefix else text,
            trouble_first=not question.get("calm"),
        )
        self._offset = int(question.get("offset") or 0)
        self._limit = max(1, min(MAX_ROWS, int(question.get("limit") or 40)))
        self._is_asked = True
        chosen = {"group": self._filter.group, "states": sorted(self._filter.states), "text": text}
        return {"chosen": {**chosen, "calm": not self._filter.trouble_first, "task": self._row and self._row.name}}

    def choose_task(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Another task, by `name`; None for no task. `attempt`: whose log is read, if not that of the last one."""
        name = question.get("name")
        if name is None:
            self._row, self._tail, self._log = None, None, ""
            return {"task": {}, "log": {}}
        self._row = self._viewer.detail(str(name))
        self._tail, self._log = self._viewer.log(self._row.name), ""
        self._attempt = int(question.get("attempt") or 0)
        self._is_asked = True
        return {}

    def choose_tab(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What a front end has open: `usage` and `events` are published only while somebody looks."""
        view = str(question.get("view", ""))[:40]
        self.forget(view)
        self._tabs[view] = str(question.get("name"))[:20]
        while len(self._tabs) > _MOST_VIEWS:
            del self._tabs[next(iter(self._tabs))]
        self._is_asked = True
        return {}

    def forget(self, view: str) -> None:
        """A front end is gone."""
        self._tabs.pop(view, None)

    def refreshed(self, has_run_changed: bool) -> dict[str, Any]:
        """What is chosen as it is now: rows if something changed, the log as far as it has grown."""
        self._is_behind |= has_run_changed
        update: dict[str, Any] = {}
        if self._is_asked or (self._is_behind and self._allowance.is_due):
            with self._allowance.spending():
                update, is_current = self._rows()
            self._is_asked, self._is_behind = False, not is_current
        update.update(self._about_the_whole())
        if self._row is not None and self._tail is not None:
            update["log"] = self._followed(self._row, self._tail)
        return update

    def _rows(self) -> tuple[dict[str, Any], bool]:
        """The page and the task, and whether which tasks the page has is as of now."""
        viewer = self._viewer
        page = viewer.page(self._filter, self._offset, self._limit)
        update: dict[str, Any] = {"page": wording.of_page(page, viewer.run.store.now())}
        if self._row is not None:
            self._row = row = viewer.detail(self._row.name)
            update["task"] = wording.of_task(row, viewer.group_of(row.name), viewer.attempts(row))
        return update, page.is_current

    def _about_the_whole(self) -> dict[str, Any]:
        update, open_tabs = {}, set(self._tabs.values())
        if "usage" in open_tabs:
            update["usage"] = wording.of_usage(self._viewer.usage())
        if "events" in open_tabs:
            update["events"] = wording.of_events(self._viewer.events())
        return update

    def _followed(self, row: TaskRow, tail: LogTail) -> dict[str, Any]:
        if 0 < self._attempt < row.attempt:
            row = dataclasses.replace(row, attempt=self._attempt)
        piece, is_new = tail.read(row)
        self._log = (piece if is_new else self._log + piece)[-LOG_CHARS:]
        is_cut = tail.is_cut or len(self._log) == LOG_CHARS
        return {"name": row.name, "attempt": row.attempt, "text": self._log, "cut": is_cut}
