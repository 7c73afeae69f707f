"""A daemon's log while a service is away: the same complaint once in a while, with how often it was made."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Repeats"]

_REMEMBERED: Final = 200
_SECONDS: Final = re.compile(r"\d+\.\d+")


class Repeats(logging.Filter):
    """Lets a warning pass, and then none like it for a while; seconds in it do not make it another one.

    Args:
        every_s: How long like ones are held back.
    """

    def __init__(self, every_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s, self._clock = every_s, clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        text = record.getMessage()
        key = (record.name, _SECONDS.sub("", text))
        now = self._clock()
        since, held_back = self._seen.get(key, (float("-inf"), 0))
        if now - since < self._every_s:
            self._seen[key] = (since, held_back + 1)
            return False
        if held_back:
            record.msg, record.args = f"{text} ({held_back} more like it)", ()
        self._seen.pop(key, None)
        self._seen[key] = (now, 0)
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True
