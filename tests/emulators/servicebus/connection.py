"""One client's connection: negotiation, then frames until it goes away."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

from emulators.servicebus import frames, management
from emulators.servicebus.access import rights_of
from emulators.servicebus.broker import LockLost, Queue
from emulators.servicebus.codec import Array, Described, Int, Symbol, Ubyte, Uint, Ulong, Ushort
from emulators.servicebus.faults import Fault
from emulators.servicebus.links import CREDIT, Inlet, Outlet, Session
from emulators.servicebus.message import BATCH_FORMAT, Content, request_of, split_batch, value_message

if TYPE_CHECKING:
    from emulators.servicebus.namespace import Namespace

__all__ = ["Connection"]

_CBS, _MANAGEMENT = "$cbs", "/$management"


class Dropped(Exception):
    """The connection ends here, because a fault says so."""


class Connection:
    """Serves one client."""

    def __init__(self, namespace: Namespace, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._namespace, self._reader, self._writer = namespace, reader, writer
        self._sessions: dict[int, Session] = {}
        self._rights: frozenset[str] = frozenset()
        self._client_frame = frames.MAX_FRAME

    @property
    def outlets(self) -> list[Outlet]:
        return [outlet for session in self._sessions.values() for outlet in session.outlets.values()]

    async def serve(self) -> None:
        """Until the client goes, or a fault drops it."""
        with contextlib.suppress(ConnectionError, EOFError, Dropped):
            await self._pass("connect")
            if await self._reader.readexactly(8) == frames.SASL_HEADER:
                await self._authenticate()
                await self._reader.readexactly(8)
            self._write(frames.AMQP_HEADER)
            while await self._step():
                pass
        self.drop()

    def drop(self) -> None:
        """End without a word."""
        self._sessions.clear()
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    async def _authenticate(self) -> None:
        mechanisms = Array(map(Symbol, ("ANONYMOUS", "MSSBCBS", "EXTERNAL")))
        self._write(frames.SASL_HEADER + frames.frame(0, frames.SASL_MECHANISMS, [mechanisms], kind=1))
        await frames.read_frame(self._reader)
        self._write(frames.frame(0, frames.SASL_OUTCOME, [Ubyte(0)], kind=1))

    async def _step(self) -> bool:
        """One frame; whether there may be more."""
        channel, code, fields, payload = await frames.read_frame(self._reader)
        session = self._sessions.get(channel)
        if code == frames.OPEN:
            self._open(fields)
        elif code == frames.BEGIN:
            self._begin(channel, fields)
        elif code == frames.CLOSE:
            self._write(frames.frame(0, frames.CLOSE, []))
            return False
        elif session is not None and code:  # the SDK goes on speaking on sessions that it ended
            await self._in_session(session, code, fields, payload)
        await self._writer.drain()
        return True

    async def _in_session(self, session: Session, code: int, fields: list[Any], payload: bytes) -> None:
        if code == frames.ATTACH:
            await self._attach(session, fields)
        elif code == frames.FLOW:
            self._flow(session, fields)
        elif code == frames.TRANSFER:
            await self._transfer(session, fields, payload)
        elif code == frames.DISPOSITION and fields[0]:
            await self._dispose(session, fields)
        elif code == frames.DETACH:
            if session.inlets.pop(fields[0], None) or session.outlets.pop(fields[0], None):
                session.send(frames.DETACH, [Uint(fields[0]), True])
        elif code == frames.END:
            del self._sessions[session.channel]
            session.send(frames.END, [])

    def _open(self, fields: list[Any]) -> None:
        self._client_frame = min(fields[2] or frames.MAX_FRAME, frames.MAX_FRAME)
        self._write(frames.frame(0, frames.OPEN, ["emulator", None, Uint(frames.MAX_FRAME), Ushort(255)]))
        if fields[4]:
            self._namespace.start(self._beat(fields[4] / 2000))

    async def _beat(self, pause_s: float) -> None:
        while not self._writer.is_closing():
            await asyncio.sleep(pause_s)
            self._write(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    def _begin(self, channel: int, fields: list[Any]) -> None:
        session = self._sessions[channel] = Session(channel, fields, self._client_frame, self._write)
        windows = [Uint(0x7FFFFFFF), Uint(0x7FFFFFFF), Uint(255)]
        session.send(frames.BEGIN, [Ushort(channel), Uint(0), *windows])

    async def _attach(self, session: Session, fields: list[Any]) -> None:
        is_receiver = bool(fields[2])
        terminus = fields[5] if is_receiver else fields[6]
        address = re.sub(r"^[a-z]+://[^/]+/", "", (terminus.value[0] or "") if terminus else "").strip("/")
        fault = await self._pass("attach", address)
        name = address.lower().removesuffix(_MANAGEMENT)
        queue = None if name == _CBS else self._namespace.broker.find(name)
        if refusal := (fault and (fault.condition, "refused by the test")) or self._refusal(
            address, queue, is_receiver
        ):
            self._refuse(session, fields, *refusal)
            return
        limit = queue.rules.max_message_bytes if queue else frames.MAX_FRAME
        reply = [fields[0], Uint(fields[1]), not is_receiver, *fields[3:7], None, None]
        session.send(frames.ATTACH, [*reply, Uint(0) if is_receiver else None, Ulong(limit)])
        if is_receiver:
            is_node = address.lower().endswith(_MANAGEMENT)
            outlet = Outlet(fields[1], address, None if is_node else queue, session)
            outlet.forgets = fields[3] == 1
            session.outlets[outlet.handle] = outlet
        else:
            inlet = Inlet(fields[1], address, queue, delivery_count=fields[9] or 0, credit=CREDIT)
            session.inlets[inlet.handle] = inlet
            session.flow(inlet)

    def _refusal(self, address: str, queue: Queue | None, is_receiver: bool) -> tuple[str, str] | None:
        if address == _CBS:
            return None
        needed = {"Listen" if is_receiver else "Send"}
        if not self._rights & ({"Send", "Listen"} if address.lower().endswith(_MANAGEMENT) else needed):
            return "amqp:unauthorized-access", f"Unauthorized access. The claim is needed on {address!r}."
        if queue is None:
            return "amqp:not-found", f"The messaging entity '{address}' could not be found."
        return None

    def _refuse(self, session: Session, fields: list[Any], condition: str, text: str) -> None:
        """A null terminus on our side says that the link will be detached at once (part 2.6.3)."""
        is_receiver = bool(fields[2])
        ends = [None, fields[6]] if is_receiver else [fields[5], None]
        reply = [fields[0], Uint(fields[1]), not is_receiver, *fields[3:5], *ends, None, None, Uint(0)]
        session.send(frames.ATTACH, reply)
        session.send(frames.DETACH, [Uint(fields[1]), True, frames.error(condition, text)])

    def _flow(self, session: Session, fields: list[Any]) -> None:
        outlet = session.on_flow(fields)
        for one in session.outlets.values():
            one.push_replies()
        if outlet is not None and outlet.queue is not None:
            self._namespace.pump(outlet.queue)
        if outlet is not None and fields[8]:
            session.drain(outlet)
        self._namespace.pump_soon()

    async def _transfer(self, session: Session, fields: list[Any], payload: bytes) -> None:
        session.next_incoming += 1
        inlet = session.inlets.get(fields[0])
        if inlet is None:
            return
        if not inlet.payload:
            inlet.first = fields
        inlet.payload += payload
        if fields[5]:
            return
        data, first, inlet.payload = bytes(inlet.payload), inlet.first, bytearray()
        inlet.delivery_count += 1
        inlet.credit -= 1
        state = await self._accept(session, inlet, data, first[3] or 0)
        if state is not None and not first[4] and not fields[4]:
            session.send(frames.DISPOSITION, [True, Uint(first[1]), None, True, state])
        session.replenish(inlet)

    async def _accept(self, session: Session, inlet: Inlet, data: bytes, message_format: int) -> Described | None:
        """The outcome for a message that came in; None says nothing."""
        if inlet.address == _CBS or inlet.address.lower().endswith(_MANAGEMENT):
            await self._request(session, inlet, data)
            return frames.outcome(frames.ACCEPTED)
        assert inlet.queue is not None
        fault = await self._pass("send", inlet.queue.name)
        if fault and fault.kind == "refuse":
            return _rejected(fault.condition, "refused by the test")
        if len(data) > inlet.queue.rules.max_message_bytes:
            return _rejected("amqp:link:message-size-exceeded", f"{len(data)} bytes are too many for a message.")
        try:
            contents = list(map(Content.parse, split_batch(data) if message_format == BATCH_FORMAT else [data]))
        except ValueError as error:
            return _rejected("amqp:decode-error", str(error))
        for _ in range(2 if fault and fault.kind == "duplicate" else 1):
            for content in contents:
                inlet.queue.send(content, time.time())
        self._after(fault)
        return None if fault and fault.kind == "lose_reply" else frames.outcome(frames.ACCEPTED)

    async def _request(self, session: Session, inlet: Inlet, data: bytes) -> None:
        message_id, told, body = request_of(data)
        operation = str(told.get("operation", "")).removeprefix("com.microsoft:")
        fault = await self._pass(operation, inlet.queue.name if inlet.queue else "")
        if inlet.address == _CBS:
            reply = self._grant(message_id, str(body))
        elif fault and fault.kind == "refuse":
            told = {"statusCode": Int(503), "statusDescription": "refused", "errorCondition": Symbol(fault.condition)}
            reply = value_message(message_id, told, {})
        else:
            assert inlet.queue is not None
            reply = management.answer(inlet.queue, message_id, operation, body)
        self._after(fault)
        outlet = session.outlet_at(inlet.address)
        if outlet is not None and not (fault and fault.kind == "lose_reply"):
            outlet.replies.append(reply)
            outlet.push_replies()

    def _grant(self, message_id: Any, token: str) -> bytes:
        try:
            self._rights |= rights_of(token, self._namespace.policies)
            status, text = 202, "Accepted"
        except PermissionError as error:
            status, text = 401, str(error)
        return value_message(message_id, {"status-code": Int(status), "status-description": text}, None)

    async def _dispose(self, session: Session, fields: list[Any]) -> None:
        last = fields[1] if fields[2] is None else fields[2]
        for number in [one for one in list(session.unsettled) if fields[1] <= one <= last]:
            queue, token = session.unsettled[number]
            fault = await self._pass("settle", queue.name)
            if fault and fault.kind == "refuse":
                state = _rejected(fault.condition, "refused by the test")
            else:
                del session.unsettled[number]
                state = _settle(queue, token, fields[4])
            self._after(fault)
            if not fields[3] and not (fault and fault.kind == "lose_reply"):
                session.send(frames.DISPOSITION, [False, Uint(number), None, True, state])

    async def _pass(self, point: str, queue: str = "") -> Fault | None:
        """The fault for this occasion; those that end or delay it are carried out here."""
        fault = self._namespace.faults.at(point, queue)
        if fault is None or fault.kind not in ("cut", "delay", "silence"):
            return fault
        if fault.kind == "cut":
            raise Dropped
        await asyncio.sleep(fault.delay_s if fault.kind == "delay" else 3600)
        return None

    def _after(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind == "cut_after":
            raise Dropped

    def push(self, outlet: Outlet, queue: Queue) -> bool:
        """Hand the next message to a receiver, if there is one."""
        message = queue.take(time.time(), forget=outlet.forgets)
        if message is None:
            return False
        fault = self._namespace.faults.at("push", queue.name)
        if fault is not None and fault.kind == "cut":
            self.drop()
            return False
        token = message.token or uuid.uuid4()
        number = outlet.push(message.encoded(is_locked=True), token.bytes_le, settled=outlet.forgets)
        if not outlet.forgets:
            outlet.session.unsettled[number] = (queue, token)
        if fault is not None and fault.kind == "cut_after":
            self._namespace.call_later(0.01, self.drop)
        return True


def _rejected(condition: str, text: str) -> Described:
    return frames.outcome(frames.REJECTED, frames.error(condition, text))


def _settle(queue: Queue, token: uuid.UUID, state: Described | None) -> Described:
    """Do what the client decided; the answer is of the same kind, and without an error if it was done."""
    code = int(state.code) if state is not None else frames.ACCEPTED
    given = (state.value if state is not None else []) + [None] * 3
    now = time.time()
    try:
        if code == frames.ACCEPTED:
            queue.complete(token, now)
        elif code == frames.RELEASED:
            queue.release(token, now, counts=False)
        elif code == frames.MODIFIED and given[1]:
            queue.defer(token, now)
        elif code == frames.MODIFIED:
            queue.release(token, now, counts=True)
        elif code == frames.REJECTED:
            info = (given[0].value[2] or {}) if given[0] is not None and len(given[0].value) > 2 else {}
            queue.dead_letter(token, now, info.get("DeadLetterReason"), info.get("DeadLetterErrorDescription"))
    except LockLost:
        return _rejected("com.microsoft:message-lock-lost", "The lock supplied is invalid. It expired, or is settled.")
    return frames.outcome(code)
