"""AMQP 1.0 values as bytes and back (OASIS AMQP 1.0, part 1)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Array",
    "Described",
    "Int",
    "Long",
    "Symbol",
    "Timestamp",
    "Ubyte",
    "Uint",
    "Ulong",
    "Ushort",
    "decode",
    "encode",
]


class Symbol(str):
    """A name from a fixed vocabulary, in ASCII."""


class Ubyte(int):
    """8 bits without sign."""


class Ushort(int):
    """16 bits without sign."""


class Uint(int):
    """32 bits without sign."""


class Ulong(int):
    """64 bits without sign."""


class Int(int):
    """32 bits with sign."""


class Long(int):
    """64 bits with sign; also what a plain int becomes."""


class Timestamp(int):
    """Milliseconds since the epoch."""


class Array(list[Any]):
    """Values of one type."""


@dataclass(frozen=True)
class Described:
    """A value with a descriptor that says what it means."""

    code: Any
    value: Any


_FIXED: dict[int, tuple[str, Callable[[Any], Any]]] = {
    0x40: ("", lambda: None),
    0x41: ("", lambda: True),
    0x42: ("", lambda: False),
    0x43: ("", lambda: Uint(0)),
    0x44: ("", lambda: Ulong(0)),
    0x50: (">B", Ubyte),
    0x51: (">b", int),
    0x52: (">B", Uint),
    0x53: (">B", Ulong),
    0x54: (">b", Int),
    0x55: (">b", Long),
    0x56: (">?", bool),
    0x60: (">H", Ushort),
    0x61: (">h", int),
    0x70: (">I", Uint),
    0x71: (">i", Int),
    0x72: (">f", float),
    0x73: (">I", lambda code: chr(code)),
    0x80: (">Q", Ulong),
    0x81: (">q", Long),
    0x82: (">d", float),
    0x83: (">q", Timestamp),
    0x98: ("16s", lambda data: uuid.UUID(bytes=data)),
}
_VARIABLE: dict[int, tuple[str, Callable[[bytes], Any]]] = {
    0xA0: (">B", bytes),
    0xB0: (">I", bytes),
    0xA1: (">B", lambda data: data.decode()),
    0xB1: (">I", lambda data: data.decode()),
    0xA3: (">B", lambda data: Symbol(data.decode("ascii"))),
    0xB3: (">I", lambda data: Symbol(data.decode("ascii"))),
}
_COMPOUND = {0xC0: ">BB", 0xD0: ">II", 0xC1: ">BB", 0xD1: ">II", 0xE0: ">BB", 0xF0: ">II"}


def decode(data: bytes, offset: int = 0) -> tuple[Any, int]:
    """The value that begins at `offset`, and where the next one begins; ValueError if the bytes are none."""
    try:
        if data[offset] == 0:
            code, offset = decode(data, offset + 1)
            value, offset = decode(data, offset)
            return Described(code, value), offset
        return _decode_as(data[offset], data, offset + 1)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"no AMQP value at byte {offset}: {error}") from error


def _decode_as(kind: int, data: bytes, offset: int) -> tuple[Any, int]:
    if kind in _FIXED:
        layout, make = _FIXED[kind]
        values = struct.unpack_from(layout, data, offset)
        return make(*values), offset + struct.calcsize(layout)
    if kind in _VARIABLE:
        layout, make = _VARIABLE[kind]
        start = offset + struct.calcsize(layout)
        end = start + struct.unpack_from(layout, data, offset)[0]
        if end > len(data):
            raise ValueError(f"a value of {end - start} bytes begins at byte {start} of {len(data)}")
        return make(bytes(data[start:end])), end
    if kind == 0x45:
        return [], offset
    if kind in _COMPOUND:
        return _decode_compound(kind, data, offset)
    raise ValueError(f"0x{kind:02x} is no AMQP type (byte {offset - 1})")


def _decode_compound(kind: int, data: bytes, offset: int) -> tuple[Any, int]:
    layout = _COMPOUND[kind]
    size, count = struct.unpack_from(layout, data, offset)
    end = offset + struct.calcsize(layout) // 2 + size
    offset += struct.calcsize(layout)
    if end > len(data):
        raise ValueError(f"a compound value ends at byte {end} of {len(data)}")
    items: list[Any] = []
    if kind in (0xE0, 0xF0):
        constructor, offset = data[offset], offset + 1
        for _ in range(count):
            item, offset = _decode_as(constructor, data, offset)
            items.append(item)
        return Array(items), end
    for _ in range(count):
        item, offset = decode(data, offset)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind in (0xC1, 0xD1) else items), end


def encode(value: Any) -> bytes:
    """The bytes of a value, its type included."""
    if isinstance(value, Described):
        return b"\x00" + encode(value.code) + encode(value.value)
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    raise TypeError(f"{type(value).__name__} is no AMQP type")


def _compound(kind8: int, kind32: int, count: int, body: bytes) -> bytes:
    if len(body) < 255 and count < 256:
        return bytes((kind8, len(body) + 1, count)) + body
    return struct.pack(">BII", kind32, len(body) + 4, count) + body


def _sized(kind8: int, kind32: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((kind8, len(data))) + data
    return struct.pack(">BI", kind32, len(data)) + data


def _list(items: list[Any]) -> bytes:
    return _compound(0xC0, 0xD0, len(items), b"".join(map(encode, items))) if items else b"\x45"


def _array(items: list[Any]) -> bytes:
    """Arrays have one constructor for all: the widest form, which every value of the type fits."""
    layouts = {uuid.UUID: (0x98, lambda v: v.bytes), Long: (0x81, lambda v: struct.pack(">q", v))}
    layouts |= {Timestamp: (0x83, lambda v: struct.pack(">q", v)), str: (0xB1, _long_text), Symbol: (0xB3, _long_text)}
    kind, write = layouts[type(items[0])] if items else (0xB3, _long_text)
    body = bytes((kind,)) + b"".join(map(write, items))
    return struct.pack(">BII", 0xF0, len(body) + 4, len(items)) + body


def _long_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">I", len(data)) + data


def _uint(value: int) -> bytes:
    return b"\x43" if value == 0 else bytes((0x52, value)) if value < 256 else struct.pack(">BI", 0x70, value)


def _ulong(value: int) -> bytes:
    return b"\x44" if value == 0 else bytes((0x53, value)) if value < 256 else struct.pack(">BQ", 0x80, value)


def _map(items: dict[Any, Any]) -> bytes:
    pairs = [part for pair in items.items() for part in pair]
    return _compound(0xC1, 0xD1, len(pairs), b"".join(map(encode, pairs)))


_WRITERS: list[tuple[Any, Callable[[Any], bytes]]] = [
    (type(None), lambda value: b"\x40"),
    (bool, lambda value: b"\x41" if value else b"\x42"),
    (Ubyte, lambda value: bytes((0x50, value))),
    (Ushort, lambda value: struct.pack(">BH", 0x60, value)),
    (Uint, _uint),
    (Ulong, _ulong),
    (Int, lambda value: struct.pack(">Bi", 0x71, value)),
    (Timestamp, lambda value: struct.pack(">Bq", 0x83, value)),
    (int, lambda value: struct.pack(">Bq", 0x81, value)),
    (float, lambda value: struct.pack(">Bd", 0x82, value)),
    (Symbol, lambda value: _sized(0xA3, 0xB3, value.encode("ascii"))),
    (str, lambda value: _sized(0xA1, 0xB1, value.encode())),
    (bytes, lambda value: _sized(0xA0, 0xB0, value)),
    (uuid.UUID, lambda value: b"\x98" + value.bytes),
    (Array, _array),
    (list, _list),
    (dict, _map),
]
