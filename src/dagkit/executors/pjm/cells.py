"""Cells of pjstat: dates without a year, limits of time, numbers of nodes (facts: pjm 2.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

__all__ = ["Nodes", "Start", "date_of", "nodes_of", "number_of", "seconds_of", "start_of", "text_of"]

_DATE: Final = re.compile(r"(?:(\d{4})/)?(\d{1,2})/(\d{1,2}) (\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_SPAN: Final = re.compile(r"(\d+):(\d{2}):(\d{2})(?: \((\d+)\))?", re.ASCII)
_NODES: Final = re.compile(r"(\d+)(?::(?:(\d+(?:x\d+)*)|[a-z]+))?", re.ASCII)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Start:
    """When a job started, or is expected to; in the local time of the machine."""

    at: datetime
    is_predicted: bool = False
    is_backfilled: bool = False


@dataclass(frozen=True, slots=True)
class Nodes:
    """How many nodes, and in which shape if that was asked for."""

    count: int
    shape: tuple[int, ...] | None = None


def text_of(cell: str) -> str | None:
    """The text of a cell; None for `-` and for nothing."""
    text = cell.strip()
    return None if text in ("", "-") else text


def number_of(cell: str) -> int | None:
    """A whole number; None for `-`, for nothing and for anything else."""
    text = cell.strip()
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def start_of(cell: str, now: datetime) -> Start | None:
    """A start: `11/17 09:01:41`, `(04/12 11:25)` predicted, a trailing `<` backfilled; None if there is none."""
    text = cell.strip()
    is_backfilled, text = text.endswith("<"), text.rstrip("<").strip()
    is_predicted = text.startswith("(") and text.endswith(")")
    at = date_of(text.strip("()"), now, is_predicted=is_predicted)
    return None if at is None else Start(at, is_predicted, is_backfilled)


def date_of(text: str, now: datetime, *, is_predicted: bool = False) -> datetime | None:
    """A date. One without a year is the latest that is not more than a day ahead of `now`; a predicted one the earliest
    that is not more than a day past."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    month, day, hour, minute, second = (int(part or 0) for part in match.groups()[1:])
    if match[1] is not None:
        return _date(int(match[1]), month, day, hour, minute, second)
    years = range(now.year - 8, now.year + 9)  # 29 February is in one of them, whatever the century
    dates = [at for year in years if (at := _date(year, month, day, hour, minute, second)) is not None]
    if is_predicted:
        return min((at for at in dates if at >= now - _DAY), default=None)
    return max((at for at in dates if at <= now + _DAY), default=None)


def _date(year: int, *parts: int) -> datetime | None:
    try:
        return datetime(year, *parts)  # type: ignore[arg-type]
    except ValueError:
        return None


def seconds_of(cell: str) -> int | None:
    """Seconds of `hhhh:mm:ss`; the upper end of a range. None for `-` and for anything else."""
    last = cell.strip().rpartition("-")[2].strip()
    match = _SPAN.fullmatch(last)
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])


def nodes_of(cell: str) -> Nodes | None:
    """`12`, `12:2x3x2` or `2:noncont`; None for `-` and for anything else."""
    match = _NODES.fullmatch(cell.strip())
    if match is None:
        return None
    return Nodes(int(match[1]), tuple(int(side) for side in match[2].split("x")) if match[2] else None)
