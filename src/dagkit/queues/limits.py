"""What every queue checks before it sends."""

from __future__ import annotations

from collections.abc import Sequence

from dagkit.errors import PayloadTooLarge
from dagkit.queues.base import OutMessage

__all__ = ["check_sizes"]


def check_sizes(messages: Sequence[OutMessage], max_text_bytes: int) -> None:
    """`PayloadTooLarge`, before anything is sent, if a text is over the limit."""
    for message in messages:
        if len(message.text) * 4 > max_text_bytes:  # only then can its UTF-8 be too long
            size = len(message.text.encode("utf-8", "surrogatepass"))
            if size > max_text_bytes:
                raise PayloadTooLarge(message.id, "message", size, max_text_bytes)
