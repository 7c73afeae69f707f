"""Points in time as texts in state documents: ISO 8601 with offset, to the microsecond."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache

from dagkit.errors import CorruptState

__all__ = ["from_text", "to_text"]


def to_text(at: float) -> str:
    """Seconds since the epoch as text; `from_text` returns them rounded to a microsecond."""
    second = int(at // 1)
    micros = round((at - second) * 1_000_000)
    if micros == 1_000_000:
        second, micros = second + 1, 0
    return f"{_second(second)}.{micros:06d}+00:00" if micros else f"{_second(second)}+00:00"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def from_text(text: object) -> float:
    """Seconds since the epoch. A text without an offset is UTC. `CorruptState` if it is not a time."""
    if not isinstance(text, str):
        raise CorruptState(f"{text!r} is not a point in time")
    try:
        at = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError as problem:
        raise CorruptState(f"{text!r} is not a point in time (ISO 8601)") from problem
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
