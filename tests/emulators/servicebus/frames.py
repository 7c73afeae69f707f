"""Frames and performatives (OASIS AMQP 1.0, parts 2.3, 2.7 and 5.3)."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from emulators.servicebus.codec import Described, Symbol, Ulong, decode, encode

__all__ = [
    "ACCEPTED", "AMQP_HEADER", "ATTACH", "BEGIN", "CLOSE", "DETACH", "DISPOSITION", "END", "FLOW", "MAX_FRAME",
    "MODIFIED", "OPEN", "REJECTED", "RELEASED", "SASL_HEADER", "SASL_INIT", "SASL_MECHANISMS", "SASL_OUTCOME",
    "TRANSFER", "error", "frame", "outcome", "read_frame",
]  # fmt: skip

AMQP_HEADER, SASL_HEADER = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
MAX_FRAME = 65_536
_ERROR = 0x1D


def frame(channel: int, code: int, fields: list[Any], payload: bytes = b"", *, kind: int = 0) -> bytes:
    """A frame as bytes; absent fields at the end are left out."""
    while fields and fields[-1] is None:
        fields = fields[:-1]
    body = encode(Described(Ulong(code), fields)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, list[Any], bytes]:
    """(channel, performative, its fields, payload); performative 0 is a heartbeat. ValueError for what is no frame."""
    size, offset, _, channel = struct.unpack(">IBBH", await reader.readexactly(8))
    if not 8 <= size <= MAX_FRAME or not 2 <= offset <= size // 4:
        raise ValueError(f"a frame of {size} bytes whose body begins at word {offset}")
    body = (await reader.readexactly(size - 8))[offset * 4 - 8 :]
    if not body:
        return channel, 0, [], b""
    performative, end = decode(body)
    if not isinstance(performative, Described) or not isinstance(performative.value, list):
        raise ValueError("a frame without a performative")
    return channel, int(performative.code), performative.value + [None] * 14, body[end:]


def error(condition: str, text: str) -> Described:
    """An error with all three fields: the SDK reads the third without looking (facts: servicebus 4.11)."""
    return Described(Ulong(_ERROR), [Symbol(condition), text, {}])


def outcome(code: int, *fields: Any) -> Described:
    return Described(Ulong(code), list(fields))
