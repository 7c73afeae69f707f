"""Texts on their way through services that carry them as XML, and the ids that travel in them."""

from __future__ import annotations

import base64
import json
import re
from typing import Final

__all__ = ["id_in", "pack", "unpack"]

_MARK: Final = "base64:"

#: What XML 1.0 passes unchanged (production 2, and 2.11 on line ends). Some readers drop blanks at the ends.
_PLAIN: Final = re.compile("[\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")


def pack(text: str) -> str:
    """The text as a service can carry it: itself, or marked base64 where XML would change it.

    JSON that dagkit writes always stays itself.
    """
    if _PLAIN.fullmatch(text) and text == text.strip() and not text.startswith(_MARK):
        return text
    return _MARK + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def unpack(text: str) -> str:
    """The text that was packed; a text that only looks so is left as it is."""
    if not text.startswith(_MARK):
        return text
    try:
        return base64.b64decode(text[len(_MARK) :], validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return text


def id_in(text: str) -> str | None:
    """The id of the envelope in a text (facts: jobq 8.1); None if it has none."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = envelope.get("id") if isinstance(envelope, dict) else None
    return found if isinstance(found, str) and found else None
