"""Text in drawings: what may stand in XML, how wide it is, and how it is shortened."""

from __future__ import annotations

import html
import unicodedata

__all__ = ["cells", "clean", "pixels", "shorten", "xml"]

_NARROW, _WIDE_LATIN = frozenset("iljtfrI.,:;'|!()[]· "), frozenset("mwMWQGO@%—…×<>=+~_")
_INVISIBLE = ("Cc", "Cs", "Co", "Cn", "Cf", "Zl", "Zp")


def clean(text: str) -> str:
    """The text with `�` for what cannot be seen or may not stand in XML: controls, surrogates, direction marks."""
    return "".join("�" if unicodedata.category(c) in _INVISIBLE else c for c in text)


def xml(text: str) -> str:
    """The text, fit to stand between tags or in an attribute."""
    return html.escape(clean(text))


def cells(text: str) -> int:
    """Columns the text takes in a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pixels(text: str, size: float) -> float:
    """About how wide the text is in a sans-serif font of this size; a little too wide rather than too narrow."""
    return size * sum(_em(c) for c in text)


def _em(c: str) -> float:
    if unicodedata.east_asian_width(c) in "WF":
        return 1.05
    return 0.33 if c in _NARROW else 0.88 if c in _WIDE_LATIN else 0.66 if c.isupper() else 0.57


def shorten(text: str, limit: int) -> str:
    """The text in at most `limit` columns, with its middle left out: both ends of a name tell tasks apart."""
    text = clean(text)
    if cells(text) <= limit:
        return text
    head: list[str] = []
    tail: list[str] = []
    room = limit - 1
    while room > 0 and len(head) + len(tail) < len(text):
        side, c = (head, text[len(head)]) if len(head) <= len(tail) else (tail, text[-1 - len(tail)])
        room -= cells(c)
        if room >= 0:
            side.append(c)
    return "".join(head) + "…" + "".join(reversed(tail))
