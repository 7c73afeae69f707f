"""Frames between the local executor and its worker processes: a length, then one marshalled (or pickled) object.

marshal is several times faster than pickle on the plain tuples that make up nearly all traffic, and its version 4 is
read by every Python that dagkit runs on; pickle takes what marshal refuses (subclasses of str or int, mostly).
"""

from __future__ import annotations

import marshal
import os
import pickle
import struct
from typing import Any, Final

__all__ = ["Frames", "pack", "write_all"]

_HEADER: Final = struct.Struct("<I")
_PICKLED: Final = 1 << 31
_MARSHAL_VERSION: Final = 4


def pack(obj: Any) -> bytes:
    """One frame that holds `obj`."""
    try:
        body, flag = marshal.dumps(obj, _MARSHAL_VERSION), 0
    except ValueError:
        body, flag = pickle.dumps(obj, 4), _PICKLED
    if len(body) >= _PICKLED:
        raise ValueError(f"{len(body):,} bytes are more than can be passed between processes (2 GiB)")
    return _HEADER.pack(len(body) | flag) + body


def write_all(fd: int, data: bytes) -> None:
    """Write to a blocking descriptor until nothing is left."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


class Frames:
    """Collects bytes and gives back the objects whose frames are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Objects completed by these bytes, in order."""
        buffer = self._buffer
        buffer += data
        found: list[Any] = []
        at, end = 0, len(buffer)
        with memoryview(buffer) as view:
            while end - at >= 4:
                (head,) = _HEADER.unpack_from(view, at)
                stop = at + 4 + (head & (_PICKLED - 1))
                if stop > end:
                    break
                with view[at + 4 : stop] as body:
                    found.append(pickle.loads(body) if head & _PICKLED else marshal.loads(body))
                at = stop
        del buffer[:at]
        return found
