"""What somebody who watches a run has chosen to see: a page of tasks, one task, its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagkit.model.states import TaskState
from dagkit.notebook import wording
from dagkit.viewing import Filter, LogTail, RunViewer

__all__ = ["Selection"]

MAX_ROWS: Final = 80
LOG_CHARS: Final = 16_000


class Selection:
    """Kept in the kernel, so that a page that is loaded again shows the same. One thread at a time."""

    def __init__(self, viewer: RunViewer) -> None:
        self._viewer = viewer
        self._filter, self._offset, self._limit = Filter(), 0, 40
        self._task: str | None = None
        self._tail: LogTail | None = None
        self._log = ""
        self._has_changed = True

    def choose(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Another page: `group`, `states`, `text` (`name*` is a prefix), `offset`, `limit`."""
        text = str(question.get("text") or "")[:200]
        is_prefix = len(text) > 1 and text.endswith("*")
        self._filter = Filter(
            states=frozenset(TaskState(state) for state in question.get("states") or ()),
            group=question.get("group"),
            prefix=text[:-1] if is_prefix else "",
            text="" if is_prefix else text,
        )
        self._offset = int(question.get("offset") or 0)
        self._limit = max(1, min(MAX_ROWS, int(question.get("limit") or 40)))
        self._has_changed = True
        chosen = {"group": self._filter.group, "states": sorted(self._filter.states), "text": text, "task": self._task}
        return {"chosen": chosen}

    def choose_task(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Another task, by `name`; None for no task."""
        name = question.get("name")
        if name is None:
            self._task, self._tail, self._log = None, None, ""
            return {"task": {}, "log": {}}
        self._viewer.detail(str(name))
        self._task, self._tail, self._log = str(name), self._viewer.log(str(name)), ""
        self._has_changed = True
        return {}

    def refreshed(self, has_run_changed: bool) -> dict[str, Any]:
        """What is chosen as it is now: the page and the task if something changed, the log as far as it has grown."""
        update: dict[str, Any] = {}
        if has_run_changed or self._has_changed:
            page = self._viewer.page(self._filter, self._offset, self._limit)
            update["page"] = wording.of_page(page, self._viewer.run.store.now())
        if self._task is not None and self._tail is not None:
            row = self._viewer.detail(self._task)
            update["task"] = wording.of_task(row, self._viewer.group_of(self._task))
            piece, is_new = self._tail.read(row)
            self._log = (piece if is_new else self._log + piece)[-LOG_CHARS:]
            is_cut = self._tail.is_cut or len(self._log) == LOG_CHARS
            update["log"] = {"name": self._task, "attempt": row.attempt, "text": self._log, "cut": is_cut}
        self._has_changed = False
        return update
