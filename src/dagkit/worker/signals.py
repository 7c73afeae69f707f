"""Signals as a list that the worker's loop reads; nothing happens inside a handler."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["SIGUSR1", "collected"]

#: Where the platform has it: finish what runs, then stop.
SIGUSR1: Final[int | None] = getattr(signal, "SIGUSR1", None)


@contextmanager
def collected(received: list[int]) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGUSR1 are appended to `received`. Outside the main thread, where Python gives signals to
    nobody, this does nothing."""
    previous: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT, *((SIGUSR1,) if SIGUSR1 is not None else ())):
            previous[number] = signal.signal(number, lambda arrived, _: received.append(arrived))
    except ValueError:
        pass
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
