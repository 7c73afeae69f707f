"""What an executor does with the store for its workers: answers their questions, keeps logs they cannot keep."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from dagkit.errors import BackendError
from dagkit.model.messages import TaskMessage
from dagkit.stores.base import Store

__all__ = ["Keeper"]


class Keeper:
    """A store as its workers see it through the pipe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def answer(self, what: str, about: Any) -> tuple[Any, str | None]:
        """The answer to a question (`dagkit.runtime.storage.Ask`), or the words of what went wrong."""
        try:
            if what == "output":
                return self._store.get_output(about), None
            if what == "payload":
                return self._store.get_payload(about), None
            if what == "put":
                return self._store.put_output(*about), None
            return about in self._store.cancel_requested([about]), None
        except Exception as error:  # whatever it is, it is the asking task that has to hear it
            return None, str(error) or type(error).__name__

    def keep_log(self, message: TaskMessage, data: bytes | None) -> None:
        """Store the log of an attempt. One that cannot be kept does not spoil the result."""
        if data:
            attempt = f"{message.generation}.{message.attempt}"
            with contextlib.suppress(BackendError):
                self._store.append_log(message.workflow_id, message.task, attempt, 0, data)

    def salvage_log(self, message: TaskMessage, path: Path) -> None:
        """What a task wrote before its worker died becomes its log, unless it is there already."""
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                self.keep_log(message, path.read_bytes())
                path.unlink()
