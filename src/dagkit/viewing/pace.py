"""How often something may be done that costs time: never more than a share of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Allowance", "RateMeter"]


class Allowance:
    """Says when work is due again, so that it takes at most `share` of the time."""

    def __init__(self, clock: Callable[[], float], share: float, least_pause_s: float) -> None:
        self._clock, self._share, self._least_pause_s = clock, share, least_pause_s
        self._next = float("-inf")

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._next

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Do the work, and rest in proportion to how long it took, also when it fails."""
        began = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            self._next = ended + max(self._least_pause_s, (ended - began) * (1 / self._share - 1))


class RateMeter:
    """Tasks that ended a second, over the last `window_s` of looking."""

    def __init__(self, window_s: float = 30.0) -> None:
        self._window_s = window_s
        self._looks: list[tuple[float, int]] = []

    def note(self, now: float, ended: int) -> None:
        """Add a look. Fewer tasks that ended than before (a retry) begin anew."""
        looks = self._looks
        if looks and ended < looks[-1][1]:
            looks.clear()
        if len(looks) > 1 and now - looks[-2][0] < self._window_s / 60:
            looks[-1] = (now, ended)  # at most about a hundred are kept
        else:
            looks.append((now, ended))
        while len(looks) > 2 and looks[1][0] <= now - self._window_s:
            del looks[0]

    def rate(self, since_start_s: float, ended: int) -> float | None:
        """The rate, from the whole run while there is little to go by; None if nothing ended."""
        if not self._looks:
            return None
        (first, before), (last, after) = self._looks[0], self._looks[-1]
        if last - first < 3.0:
            return ended / since_start_s if ended and since_start_s > 0.5 else None
        return (after - before) / (last - first) if after > before else None
