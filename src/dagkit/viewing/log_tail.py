"""The end of a task's log, followed: what was added since the last look, attempt after attempt."""

from __future__ import annotations

import codecs
from typing import Final

from dagkit.rows import TaskRow
from dagkit.stores.base import Store

__all__ = ["LogTail"]

TAIL_BYTES: Final = 64_000


class LogTail:
    """Follows one task. Each `read` costs one or two calls of the store and at most `limit` bytes.

    Attributes:
        key: Attempt whose log is read (`<generation>.<attempt>`).
        is_cut: The beginning of the log was left out.
    """

    def __init__(self, store: Store, workflow_id: str, task: str, limit: int = TAIL_BYTES) -> None:
        self._store, self._id, self.task, self._limit = store, workflow_id, task, limit
        self.key, self.is_cut, self._offset = "", False, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, row: TaskRow) -> tuple[str, bool]:
        """(text that is new, whether it begins anew because there is another attempt)."""
        is_new = row.log_key != self.key
        if is_new:
            self._begin(row.log_key)
        data = self._store.read_log(self._id, self.task, self.key, self._offset, self._limit)
        if len(data) == self._limit:  # there may be more: go on at the end
            end = self._size()
            is_new, self.is_cut = True, self.is_cut or end > self._limit
            self._offset = max(0, end - self._limit)
            self._decoder.reset()
            data = self._store.read_log(self._id, self.task, self.key, self._offset, self._limit)
        self._offset += len(data)
        return self._decoder.decode(data), is_new

    def _begin(self, key: str) -> None:
        self.key, self.is_cut, self._offset = key, False, 0
        self._decoder.reset()

    def _size(self) -> int:
        """Bytes of the log now, found by halving: the port has no call for it."""
        low, high = self._offset + self._limit - 1, self._offset + self._limit
        while self._store.read_log(self._id, self.task, self.key, high, 1):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._store.read_log(self._id, self.task, self.key, middle, 1):
                low = middle
            else:
                high = middle
        return high
