"""How many tasks to hand out at once: learnt from how long tasks of the same kind took."""

from __future__ import annotations

from typing import Any, Final

from dagkit.model.messages import TaskMessage

__all__ = ["BATCH_S", "MAX_BATCH", "Pace", "Paces"]

BATCH_S: Final = 0.008
"""Seconds of work in a batch: long beside a round trip between processes, short beside what a person notices."""
MAX_BATCH: Final = 256

_OVERHEAD_S: Final = 20e-6
_SHORT_S: Final = 0.005
_WINDOW: Final = 64


class Pace:
    """How long tasks of one kind take: the mean of about the last 64.

    A task much longer than the others counts at once; one that only met a busy machine is lost among its neighbours.
    """

    __slots__ = ("_total_s", "_weight", "expected_s", "samples")

    def __init__(self) -> None:
        self.expected_s = 0.0
        self.samples = 0
        self._total_s = self._weight = 0.0

    @property
    def is_short(self) -> bool:
        """Whether such tasks may wait behind one another in a worker process."""
        return self.samples > 0 and self.expected_s < _SHORT_S

    @property
    def batch(self) -> int:
        """How many to hand out together: at most twice what has been seen."""
        if not self.is_short:
            return 1
        return max(1, min(MAX_BATCH, 2 * self.samples, int(BATCH_S / self.expected_s)))

    def learn(self, count: int, total_s: float) -> None:
        """`count` tasks took `total_s` altogether."""
        share = min(1.0, _WINDOW / count)
        keep = 1.0 - min(1.0, count / _WINDOW)
        self._total_s = self._total_s * keep + (total_s + count * _OVERHEAD_S) * share
        self._weight = self._weight * keep + count * share
        self.expected_s = self._total_s / self._weight
        self.samples += count


class Paces:
    """The pace of every kind of task, and of the recent ones taken together."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Pace] = {}
        self.recent = Pace()

    def of(self, message: TaskMessage) -> Pace:
        """The pace of a message's kind: its template, else its function, else that of all commands."""
        kind = message.template or _function(message.kwargs)
        pace = self._by_kind.get(kind)
        if pace is None:
            pace = self._by_kind[kind] = Pace()
        return pace


def _function(kwargs: dict[str, Any]) -> str:
    call = kwargs.get("call")
    if not isinstance(call, dict):
        return "command"
    return str(call.get("function") or call.get("pickle"))
