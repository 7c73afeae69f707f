"""Links and sessions: what of a connection belongs to one conversation (OASIS AMQP 1.0, parts 2.5 and 2.6)."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulators.servicebus import frames
from emulators.servicebus.broker import Queue
from emulators.servicebus.codec import Uint

__all__ = ["CREDIT", "Inlet", "Outlet", "Session"]

CREDIT = 1000
_WINDOW = 0x7FFFFFFF
_ENVELOPE = 64


@dataclass(eq=False)
class Inlet:
    """A link on which a client sends."""

    handle: int
    address: str
    queue: Queue | None
    delivery_count: int = 0
    credit: int = 0
    payload: bytearray = field(default_factory=bytearray)
    first: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Outlet:
    """A link on which a client receives. Replies wait in `replies` until there is credit for them."""

    handle: int
    address: str
    queue: Queue | None
    session: Session
    forgets: bool = False
    delivery_count: int = 0
    credit: int = 0
    replies: deque[bytes] = field(default_factory=deque)

    @property
    def is_ready(self) -> bool:
        return self.credit > 0 and self.session.window > 0

    def push(self, data: bytes, tag: bytes, *, settled: bool) -> int:
        """Send a message in as many frames as it needs; the id of the delivery."""
        session = self.session
        number, session.next_delivery = session.next_delivery, session.next_delivery + 1
        self.credit -= 1
        self.delivery_count += 1
        room = session.max_frame - _ENVELOPE
        pieces = [data[start : start + room] for start in range(0, len(data), room)] or [b""]
        for place, piece in enumerate(pieces):
            more = place < len(pieces) - 1
            fields: list[Any] = [Uint(self.handle), Uint(number), tag, Uint(0), settled, more]
            if place > 0:
                fields[1:4] = [None, None, None]  # only the first frame says which delivery this is
            session.send(frames.TRANSFER, fields, piece)
            session.next_outgoing += 1
            session.window -= 1
        return number

    def push_replies(self) -> None:
        while self.replies and self.is_ready:
            self.push(self.replies.popleft(), uuid.uuid4().bytes, settled=True)


class Session:
    """Links, windows and deliveries of one channel."""

    def __init__(self, channel: int, begin: list[Any], max_frame: int, write: Callable[[bytes], None]) -> None:
        self.channel, self.max_frame, self._write = channel, max_frame, write
        self.next_incoming, self.window = begin[1], begin[2]
        self.next_outgoing = self.next_delivery = 0
        self.inlets: dict[int, Inlet] = {}
        self.outlets: dict[int, Outlet] = {}
        self.unsettled: dict[int, tuple[Queue, uuid.UUID]] = {}

    def send(self, code: int, fields: list[Any], payload: bytes = b"") -> None:
        self._write(frames.frame(self.channel, code, fields, payload))

    def flow(self, link: Inlet | Outlet | None = None, *, drain: bool = False) -> None:
        """Tell the client how the session stands, and one link of it."""
        windows: list[Any] = [Uint(self.next_incoming), Uint(_WINDOW), Uint(self.next_outgoing), Uint(_WINDOW)]
        if link is not None:
            windows += [Uint(link.handle), Uint(link.delivery_count), Uint(link.credit), None, drain]
        self.send(frames.FLOW, windows)

    def replenish(self, inlet: Inlet) -> None:
        if inlet.credit <= CREDIT // 2:
            inlet.credit = CREDIT
            self.flow(inlet)

    def on_flow(self, fields: list[Any]) -> Outlet | None:
        """Take note of windows and credit; the outlet concerned."""
        self.window = (fields[0] or 0) + fields[1] - self.next_outgoing
        outlet = self.outlets.get(fields[4]) if fields[4] is not None else None
        if outlet is not None:
            outlet.credit = (fields[5] or 0) + (fields[6] or 0) - outlet.delivery_count
        if fields[9]:
            self.flow(outlet)
        return outlet

    def drain(self, outlet: Outlet) -> None:
        """Use up the credit that nothing was sent for, and say so."""
        outlet.delivery_count += outlet.credit
        outlet.credit = 0
        self.flow(outlet, drain=True)

    def outlet_at(self, address: str) -> Outlet | None:
        return next((one for one in self.outlets.values() if one.address == address), None)
