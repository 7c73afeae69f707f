"""Messages as they travel: sections told apart, those of the sender kept byte for byte (OASIS AMQP 1.0, part 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulators.servicebus.codec import Described, Symbol, Ubyte, Uint, Ulong, decode, encode

__all__ = ["BATCH_FORMAT", "Content", "request_of", "split_batch", "value_message"]

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, VALUE = 0x70, 0x72, 0x73, 0x74, 0x75, 0x77
BATCH_FORMAT = 0x80013700


@dataclass
class Content:
    """A message as its sender wrote it.

    Attributes:
        kept: The sections from the properties on, as bytes.
    """

    message_id: Any = None
    ttl_ms: int | None = None
    priority: int = 4
    annotations: dict[str, Any] = field(default_factory=dict)
    application: dict[str, Any] = field(default_factory=dict)
    kept: bytes = b""

    @classmethod
    def parse(cls, data: bytes) -> Content:
        """ValueError if the bytes are no message."""
        content, kept = cls(), []
        for code, value, raw in _sections(data):
            if code == HEADER:
                content.priority = value[1] if len(value) > 1 and value[1] is not None else 4
                content.ttl_ms = value[2] if len(value) > 2 else None
            elif code == ANNOTATIONS:
                content.annotations = value
            elif code != 0x71:  # delivery annotations are for this hop alone
                kept.append(raw)
            if code == PROPERTIES and value:
                content.message_id = value[0]
            if code == APPLICATION:
                content.application = value
        content.kept = b"".join(kept)
        return content

    def encoded(self, delivery_count: int, annotations: Mapping[str, Any], extra: Mapping[str, str]) -> bytes:
        """The message for a receiver, with `extra` application properties beside the sender's."""
        header = [True, Ubyte(self.priority), None if self.ttl_ms is None else Uint(self.ttl_ms), False]
        header.append(Uint(delivery_count))
        names = {Symbol(name): value for name, value in {**self.annotations, **annotations}.items()}
        return _section(HEADER, header) + _section(ANNOTATIONS, names) + self._body(extra)

    def _body(self, extra: Mapping[str, str]) -> bytes:
        if not extra:
            return self.kept
        sections = list(_sections(self.kept))
        merged = _section(APPLICATION, {**self.application, **extra})
        before = b"".join(raw for code, _, raw in sections if code < APPLICATION)
        return before + merged + b"".join(raw for code, _, raw in sections if code > APPLICATION)


def _sections(data: bytes) -> list[tuple[int, Any, bytes]]:
    offset, found = 0, []
    while offset < len(data):
        section, end = decode(data, offset)
        if not isinstance(section, Described) or not isinstance(section.code, int):
            raise ValueError(f"no message section at byte {offset}")
        found.append((int(section.code), section.value, data[offset:end]))
        offset = end
    return found


def _section(code: int, value: Any) -> bytes:
    return encode(Described(Ulong(code), value))


def split_batch(data: bytes) -> list[bytes]:
    """The messages in an envelope of the batch format: each is a data section of it."""
    return [value for code, value, _ in _sections(data) if code == DATA]


def value_message(correlation_id: Any, application: Mapping[str, Any], body: Any) -> bytes:
    """An answer to a request: application properties and one value."""
    properties = _section(PROPERTIES, [None, None, None, None, None, correlation_id])
    return properties + _section(APPLICATION, dict(application)) + _section(VALUE, body)


def request_of(data: bytes) -> tuple[Any, dict[str, Any], Any]:
    """(message-id, application properties, value) of a request."""
    message_id, application, body = None, {}, None
    for code, value, _ in _sections(data):
        if code == PROPERTIES:
            message_id = value[0] if value else None
        elif code == APPLICATION:
            application = value
        elif code == VALUE:
            body = value
    return message_id, application, body
