"""The clock of a service, learned from the `Date` of its answers: leases and ages are judged by it, not by ours."""

from __future__ import annotations

import threading
import time
from email.utils import parsedate_to_datetime

__all__ = ["ServiceClock"]

_RESOLUTION_S = 1.0  # a Date header is in whole seconds (RFC 9110, 5.6.7)


class ServiceClock:
    """Seconds since the epoch by a service. Thread-safe.

    Every answer bounds the difference between the service's clock and our monotonic one from both sides; the bounds of
    all answers together are narrower than a second after a few of them. This machine's wall clock plays no part.
    """

    def __init__(self) -> None:
        self._low, self._high = float("-inf"), float("inf")
        self._lock = threading.Lock()

    @property
    def is_known(self) -> bool:
        """Whether any answer has been seen."""
        return self._high != float("inf")

    def observe(self, date: str | None, sent: float, received: float) -> None:
        """Learn from an answer: its `Date`, and when (monotonic) the request was sent and the answer received."""
        try:
            seconds = parsedate_to_datetime(date or "").timestamp()
        except (TypeError, ValueError):
            return
        low, high = seconds - received, seconds + _RESOLUTION_S - sent
        with self._lock:
            self._low, self._high = max(self._low, low), min(self._high, high)
            if self._low > self._high:  # one of the two clocks was set, or they drift: the newest answer counts
                self._low, self._high = low, high

    def now(self) -> float:
        """The service's time, to a second or better; this machine's before the first answer."""
        if not self.is_known:
            return time.time()
        return time.monotonic() + (self._low + self._high) / 2
