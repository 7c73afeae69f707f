"""Attempts that may run for as long as they asked for: a coordinator does not know when a worker has begun one."""

from __future__ import annotations

from dagkit.engine.scaling import runtime_of
from dagkit.model.messages import AttemptKey, Started, TaskMessage

__all__ = ["Overtime"]


class Overtime:
    """When each running attempt will have used up its runtime; seconds since the epoch."""

    def __init__(self) -> None:
        self._dues: dict[AttemptKey, float] = {}

    def begin(self, message: TaskMessage, started: Started) -> None:
        """An attempt has begun; one that asked for no runtime, or in words that cannot be read, has no limit."""
        try:
            runtime_s = runtime_of(message.resources)
        except ValueError:
            return
        if runtime_s:
            self._dues[message.key] = started.at + runtime_s

    def end(self, key: AttemptKey) -> None:
        """It is not held any more."""
        self._dues.pop(key, None)

    def take_due(self, now: float) -> list[AttemptKey]:
        """Attempts whose time is up, each once."""
        due = [key for key, at in self._dues.items() if at <= now]
        for key in due:
            del self._dues[key]
        return due
