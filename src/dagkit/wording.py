"""Numbers, times and foreign text as people read them."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timezone

__all__ = ["ago", "clip", "count", "duration", "iso", "memory", "pad", "plain", "width"]


def plain(text: str, *, keep_lines: bool = False) -> str:
    """Text without anything a terminal would obey: control characters and escapes become visible."""
    if text.isprintable():
        return text
    kept = "\n\t" if keep_lines else ""
    return "".join(c if c in kept or not _is_control(c) else _visible(c) for c in text)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _visible(char: str) -> str:
    return " " if char in "\n\t\r" else char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text filled up with spaces to so many columns."""
    space = " " * max(0, columns - width(text))
    return space + text if right else text + space


def clip(text: str, columns: int) -> str:
    """At most so many columns, with an ellipsis where something was cut."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3:05`, `2:10:00`, `3 d`."""
    from dagkit.progress import format_duration

    seconds = max(0.0, seconds)
    return f"{seconds / 86400:.0f} d" if seconds >= 2 * 86400 else format_duration(seconds)


def ago(seconds: float) -> str:
    """An age in its largest unit: `12 s`, `5 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def memory(size: float) -> str:
    """`512 B`, `2.1 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(number: int, noun: str) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def iso(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, as in documents."""
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
