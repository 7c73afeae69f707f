"""The tasks of the state document as they were at each taking of changes, for stores that write it whole."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

__all__ = ["Mirror"]

_UNREAD: Final = 64
"""After this many takings without one reading, nobody is taken to read."""


class Mirror:
    """Follows the changes lazily: applying them costs whoever reads, in whichever thread, and nobody else.

    One thread adds and one reads, in the order of the takings.
    """

    __slots__ = ("_log", "_taken", "_tasks")

    def __init__(self, tasks: dict[str, dict[str, Any]]) -> None:
        self._tasks: dict[str, dict[str, Any]] | None = tasks
        self._log: deque[tuple[int, list[tuple[int, str, dict[str, Any]]]]] = deque()
        self._taken = 0

    def add(self, changes: list[tuple[int, str, dict[str, Any]]]) -> int:
        """Note a taking of changes; returns its number."""
        self._taken += 1
        if self._tasks is not None:
            self._log.append((self._taken, changes))
            if len(self._log) > _UNREAD:
                self._tasks, self._log = None, deque()
        return self._taken

    def at(self, taking: int) -> dict[str, dict[str, Any]] | None:
        """Entries by task name as of a taking, those at their defaults left out. None if they are no longer known."""
        tasks, log = self._tasks, self._log
        if tasks is None:
            return None
        while log and log[0][0] <= taking:
            for _, name, entry in log.popleft()[1]:
                if entry:
                    tasks[name] = entry
                else:
                    tasks.pop(name, None)
        return dict(tasks)
