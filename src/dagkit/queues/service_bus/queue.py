"""One queue of a Service Bus namespace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)

from dagkit.azure.bus import Bus
from dagkit.azure.bus_faults import speaking
from dagkit.errors import BackendError
from dagkit.queues.base import Delivery, OutMessage, QueueStats
from dagkit.queues.limits import check_sizes
from dagkit.queues.service_bus import wire
from dagkit.queues.service_bus.administration import Administration
from dagkit.queues.service_bus.lane import Lane

__all__ = ["ServiceBusQueue"]

T = TypeVar("T")

#: "256 KB for Standard tier", all properties included (Microsoft's Service Bus quotas); 4 KiB are for those.
MAX_TEXT_BYTES: Final = 256 * 1024 - 4096

_DEADLINE_S: Final = 40.0  # longer than the SDK's own tries take
_SEND_S: Final = 30.0
_RENEW_S: Final = 10.0
#: The SDK waits for more messages to the end of the time it was given, and for no less than a read of the socket takes:
#: this is how late a message can be seen. Only what is short is written on a connection that reads so briefly.
_BUSY_S: Final = 0.005
_IDLE_S: Final = 0.05
_BUSY_FOR_S: Final = 2.0
_SETTLED_AT_A_TIME: Final = 16
_CHARS_AT_A_TIME: Final = 1 << 20
_BESIDE_A_TEXT: Final = 300
#: The SDK stops hearing answers of the management link after 10,000 (facts: servicebus 5.2).
_MANAGED_AT_MOST: Final = 5000
_PEEKED: Final = 100
_BROKEN_OFF: Final = (ServiceBusConnectionError, ServiceBusCommunicationError, OperationTimeoutError)
_SKEW_S: Final = 20.0
_LONGEST_LOCK_S: Final = 300.0  # Microsoft's Service Bus quotas


class ServiceBusQueue:
    """One queue of a `ServiceBusTransport`. A lock lasts as long as the queue says, at most; not as long as asked for.

    Sending, receiving with settling, and keeping locks have a connection each, opened at first use.
    """

    max_text_bytes = MAX_TEXT_BYTES

    def __init__(
        self,
        name: str,
        bus: Bus,
        client: Any,
        administration: Administration,
        closing: threading.Event,
        max_deliveries: int,
    ) -> None:
        self.name, self._max_deliveries = name, max_deliveries
        self._bus, self._administration, self._closing = bus, administration, closing

        def receiver() -> Any:
            return client.get_queue_receiver(name, socket_timeout=_BUSY_S).__enter__()

        self._sender = Lane(f"send-{name}", lambda: client.get_queue_sender(name).__enter__())
        self._receiver = Lane(f"receive-{name}", receiver)
        self._keeper = Lane(f"keep-{name}", receiver, _MANAGED_AT_MOST)
        self._busy_until = 0.0
        self._guard = threading.Lock()
        self._held: dict[Any, tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"ServiceBusQueue({self.name!r})"

    @property
    def lanes(self) -> tuple[Lane, Lane, Lane]:
        return self._sender, self._receiver, self._keeper

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        """As in `Queue`, in as few requests as the service's limit allows."""
        check_sizes(messages, self.max_text_bytes)
        for some in _groups(messages):
            self._send(list(map(wire.to_send, some)))

    def _send(self, messages: Sequence[ServiceBusMessage]) -> None:
        def send(sender: Any) -> None:
            for batch in _batches(sender, messages):
                sender.send_messages(batch, timeout=_SEND_S)

        self._call(self._sender, send, f"sending to {self.name}")

    def receive(self, max_messages: int, wait_s: float, lock_s: float) -> list[Delivery]:
        """As in `Queue`, in short looks: settling has its turn in between."""
        deadline = time.monotonic() + wait_s
        self._refuse_skew()
        while not self._closing.is_set():
            if found := self._look(max_messages):
                return [self._delivery(message, lock_s) for message in found]
            if time.monotonic() >= deadline:
                break
        return []

    def _look(self, max_messages: int) -> list[Any]:
        wait_s = _BUSY_S if time.monotonic() < self._busy_until else _IDLE_S

        def look(receiver: Any) -> list[Any]:
            return list(receiver.receive_messages(max_message_count=max_messages, max_wait_time=wait_s))

        found = self._call(self._receiver, look, f"receiving from {self.name}")
        if found:
            self._busy_until = time.monotonic() + _BUSY_FOR_S
        return found

    def _delivery(self, message: Any, lock_s: float) -> Delivery:
        left = message.locked_until_utc.timestamp() - self._administration.clock.now()
        locked_until = time.monotonic() + min(lock_s, max(1.0, min(left, _LONGEST_LOCK_S)))
        with self._guard:
            self._held[message.lock_token] = (message.sequence_number, time.monotonic() + left)
        return wire.delivery(message, locked_until, self._max_deliveries)

    def _refuse_skew(self) -> None:
        """The SDK settles nothing whose lock has ended by this machine's clock (`ServiceBusReceivedMessage`)."""
        clock = self._administration.clock
        if clock.is_known and (ahead := time.time() - clock.now()) > _SKEW_S:
            raise BackendError(
                f"receiving from {self.name}: this machine's clock is {ahead:.0f} s ahead of Service Bus, and messages "
                f"could not be kept or completed. Set the clock (timedatectl set-ntp true)."
            )

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, lambda receiver, message: receiver.complete_message(message), "deleting from")

    def abandon(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        """As in `Queue`. The service cannot delay what it has: a copy is scheduled, and the message completed."""
        if delay_s <= 0:
            self._settle(deliveries, lambda receiver, message: receiver.abandon_message(message), "giving back to")
            return
        ours = [delivery for delivery in deliveries if self.extend(delivery, _LONGEST_LOCK_S) is not None]
        if ours:
            at = self._administration.clock.now() + delay_s
            self._send([wire.again(delivery, at) for delivery in ours])
            self.complete(ours)

    def _settle(self, deliveries: Sequence[Delivery], settle: Callable[[Any, Any], None], doing: str) -> None:
        for start in range(0, len(deliveries), _SETTLED_AT_A_TIME):
            some = deliveries[start : start + _SETTLED_AT_A_TIME]

            def work(receiver: Any, some: Sequence[Delivery] = some) -> None:
                for delivery in some:
                    _unless_lost(partial(settle, receiver, delivery.receipt))

            self._call(self._receiver, work, f"{doing} {self.name}")
            self._forget(some)

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        message = delivery.receipt

        def renew(keeper: Any) -> Any:
            return _unless_lost(lambda: keeper.renew_message_lock(message, timeout=_RENEW_S))

        if self._call(self._keeper, renew, f"keeping a message of {self.name}") is None:
            self._forget([delivery])
            return None
        return self._delivery_again(delivery, lock_s)

    def _delivery_again(self, delivery: Delivery, lock_s: float) -> Delivery:
        kept = self._delivery(delivery.receipt, lock_s)
        return Delivery(delivery.id, delivery.text, delivery.receipt, kept.locked_until, delivery.count)

    def stats(self) -> QueueStats:
        """As in `Queue`. The service does not tell what is locked: what other processes hold counts as waiting."""
        total = self._administration.waiting(self.name)
        with self._guard:
            self._held = {token: one for token, one in self._held.items() if one[1] > time.monotonic()}
            held = {number for number, _ in self._held.values()}
        peeked = self._call(
            self._keeper,
            lambda keeper: keeper.peek_messages(_PEEKED, sequence_number=1, timeout=_RENEW_S),
            f"looking at {self.name}",
        )
        if total is None:
            total = len(peeked)
        sent = [one.enqueued_time_utc.timestamp() for one in peeked if one.sequence_number not in held]
        age = max(0.0, self._administration.clock.now() - min(sent)) if sent else None
        return QueueStats(self.name, max(0, total - len(held)), min(total, len(held)), age)

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        with self._guard:
            for delivery in deliveries:
                self._held.pop(delivery.receipt.lock_token, None)

    def close(self) -> None:
        """Nothing of its own to close: connections and threads belong to the transport."""

    def _call(self, lane: Lane, work: Callable[[Any], T], doing: str) -> T:
        with speaking(self._bus, doing):
            try:
                return lane.call(work, _DEADLINE_S)
            except _BROKEN_OFF:  # on a new connection; what was done already, the service does not do twice
                return lane.call(work, _DEADLINE_S)
        raise AssertionError  # for the type checker: `speaking` raises


def _groups(messages: Sequence[OutMessage]) -> Iterator[list[OutMessage]]:
    """The messages in order, no more at a time than can be sent within the deadline."""
    group: list[OutMessage] = []
    room = _CHARS_AT_A_TIME
    for message in messages:
        if group and len(message.text) > room:
            yield group
            group, room = [], _CHARS_AT_A_TIME
        group.append(message)
        room -= len(message.text) + _BESIDE_A_TEXT
    if group:
        yield group


def _batches(sender: Any, messages: Sequence[ServiceBusMessage]) -> Iterator[Any]:
    """The messages in batches as large as the link takes, in order."""
    batch = sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            if len(batch):
                yield batch
            batch = sender.create_message_batch()
            yield from _alone(batch, message)
    if len(batch):
        yield batch


def _alone(batch: Any, message: ServiceBusMessage) -> Iterator[Any]:
    """Begin a batch with a message; one that only fits without an envelope travels by itself."""
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        yield message


def _unless_lost(call: Callable[[], Any]) -> Any:
    """What the call returns, or None if the message is gone or somebody else's."""
    try:
        return call()
    except (MessageLockLostError, MessageAlreadySettled):
        return None
