"""A client of AMQP 1.0 on python-qpid-proton's engine: knows the standard, and nothing of the emulator or the SDK."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import cproton
from proton import Collector, Connection, Delivery, Link, Message, Transport, symbol, timestamp

__all__ = ["WireClient"]

_TIMEOUT_S = 10.0


class WireClient:
    """One connection with one session. Everything that is waited for has a deadline."""

    def __init__(self, port: int, max_frame: int = 4096) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=0.02)
        self.transport, self.connection = Transport(Transport.CLIENT), Connection()
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.max_frame_size = max_frame
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.connection.hostname, self.connection.container = "127.0.0.1", "wire"
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self._names = 0

    def turn(self) -> None:
        """Write what is to be written, read what has come."""
        while (pending := self.transport.pending()) > 0:
            data = self.transport.peek(pending)
            self._socket.sendall(data)
            self.transport.pop(len(data))
        if (room := self.transport.capacity()) > 0:
            try:
                data = self._socket.recv(room)
            except TimeoutError:
                pass
            else:
                self.transport.push(data) if data else self.transport.close_tail()
        while self.collector.peek() is not None:
            self.collector.pop()

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _TIMEOUT_S
        while not (value := holds()):
            assert time.monotonic() < deadline, f"{what}: not in time; {self.transport.condition}"
            self.turn()
        return value

    def quiet(self, seconds: float = 0.2) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def _open(self, link: Link) -> Any:
        link.open()
        self.until(lambda: not link.state & Link.REMOTE_UNINIT, "the link is answered")
        return link

    def sender(self, address: str) -> Any:
        self._names += 1
        link = self.session.sender(f"s{self._names}")
        link.target.address, link.source.address = address, "wire"
        return self._open(link)

    def receiver(self, address: str, *, settled: bool = False) -> Any:
        self._names += 1
        link = self.session.receiver(f"r{self._names}")
        link.source.address, link.target.address = address, "wire"
        link.snd_settle_mode = Link.SND_SETTLED if settled else Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST if settled else Link.RCV_SECOND
        return self._open(link)

    def send(self, link: Any, data: bytes, *, settle: bool = False) -> Any:
        """Send encoded bytes as one delivery; the delivery, with the answer in it unless it was settled."""
        self.until(lambda: link.credit > 0, "there is credit to send")
        delivery = link.delivery(uuid.uuid4().hex)
        link.send(data)
        link.advance()
        if settle:
            delivery.settle()
        else:
            self.until(lambda: delivery.remote_state, "the message is answered")
        return delivery

    def receive(self, link: Any) -> tuple[Any, Message]:
        """The next message for which credit was given."""
        self.until(lambda: link.current is not None and not link.current.partial, "a message comes")
        delivery, message = link.current, Message()
        message.decode(link.recv(delivery.pending))
        link.advance()
        return delivery, message

    def settle(self, delivery: Any, state: int) -> int:
        """Say what became of it and wait for the answer, as rcv-settle-mode second wants."""
        delivery.update(state)
        self.until(lambda: delivery.settled, "the settlement is answered")
        answer: int = delivery.remote_state
        delivery.settle()
        return answer

    def request(self, sender: Any, receiver: Any, application: dict[str, Any], body: Any) -> Message:
        """Ask and be answered, over a pair of links."""
        message = Message(body=body, properties=application, id=uuid.uuid4(), reply_to="wire")
        self.send(sender, message.encode())
        _, reply = self.receive(receiver)
        assert reply.correlation_id == message.id
        return reply

    def authenticate(self, key_name: str, key: str, audience: str = "sb://127.0.0.1/") -> int:
        """Put a token; the status of the answer."""
        end = str(int(time.time()) + 3600)
        signed = f"{quote_plus(audience)}\n{end}".encode()
        signature = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest()).decode()
        token = f"SharedAccessSignature sr={quote_plus(audience)}&sig={quote_plus(signature)}&se={end}&skn={key_name}"
        sender, receiver = self.sender("$cbs"), self.receiver("$cbs")
        receiver.flow(1)
        told = {"operation": "put-token", "type": "jwt", "name": audience, "expiration": timestamp(int(end) * 1000)}
        status = int(self.request(sender, receiver, told, token).properties["status-code"])
        sender.close()
        receiver.close()
        return status

    def managed(self, queue: str) -> Callable[[str, dict[str, Any]], Message]:
        """A way to call operations of the queue's management node."""
        sender, receiver = self.sender(f"{queue}/$management"), self.receiver(f"{queue}/$management")
        receiver.flow(50)

        def call(operation: str, body: dict[str, Any]) -> Message:
            told = {"operation": f"com.microsoft:{operation}", "type": "entity-mgmt"}
            return self.request(sender, receiver, told, body)

        return call

    def close(self) -> None:
        self.connection.close()
        try:
            self.until(lambda: self.connection.state & Link.REMOTE_CLOSED, "the connection is closed")
        finally:
            self._socket.close()


def lock_token(delivery: Delivery) -> uuid.UUID:
    """The token in a delivery's tag, whose bytes proton's own property would take for text."""
    tag = cproton.lib.pn_delivery_tag(delivery._impl)
    return uuid.UUID(bytes_le=bytes(cproton.ffi.buffer(tag.start, tag.size)))


def annotation(message: Message, name: str) -> Any:
    return (message.annotations or {}).get(symbol(name))
