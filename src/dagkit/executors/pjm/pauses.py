"""What is not submitted for the time being, and why: misconfigured profiles, budgets, restrictions (facts: pjm 8.1)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final

__all__ = ["Pauses"]

log = logging.getLogger("dagkit.executors.pjm")

_STRIKES: Final = 2
_REJECTS: Final = 3


class Pauses:
    """Pauses by profile or by project. One that has an end is tried then with one job."""

    def __init__(self, retry_s: float, clock: Callable[[], float]) -> None:
        self._retry_s, self._clock = retry_s, clock
        self._until: dict[object, float] = {}
        self._strikes: Counter[object] = Counter()
        self._rejects: Counter[object] = Counter()
        self.why: dict[object, str] = {}

    def pause(self, what: object, why: str, *, for_good: bool = False) -> None:
        """Submit nothing of it; for good means until the next start, with other settings."""
        self._until[what] = inf if for_good else self._clock() + self._retry_s
        if self.why.get(what) != why:
            log.error("%s", why)
        self.why[what] = why

    def is_paused(self, what: object) -> bool:
        return self._clock() < self._until.get(what, -inf)

    def is_trial(self, what: object) -> bool:
        """Whether it was paused and one job is to show if it may go on."""
        return what in self._until and not self.is_paused(what)

    def strike(self, what: str, text: str) -> bool:
        """A job of a profile was refused for its configuration. Whether it fails; later ones wait."""
        self._strikes[what] += 1
        if self._strikes[what] >= _STRIKES:
            self.pause(
                what,
                f"queue {what} is paused: two of its jobs were refused for the same kind of reason ({text}). "
                f"Correct its settings in dagkit.toml, or the resources of its tasks, and start again",
                for_good=True,
            )
        return self._strikes[what] <= _STRIKES

    def reject(self, what: str, text: str) -> None:
        """A job of a profile was refused for a reason that is not known."""
        self._rejects[what] += 1
        if self._rejects[what] >= _REJECTS:
            self._rejects[what] = 0
            self.pause(what, f"queue {what} is paused for a while: pjsub refuses its jobs: {text}")

    def accepted(self, *whats: object) -> None:
        """A job was accepted: nothing is wrong with it."""
        for what in whats:
            self._strikes.pop(what, None)
            self._rejects.pop(what, None)
            if self._until.pop(what, None) is not None:
                log.info("%s goes on", what)
            self.why.pop(what, None)
