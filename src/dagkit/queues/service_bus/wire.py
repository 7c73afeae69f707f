"""Texts as Service Bus messages and back: the text is the body, the id the message id (facts: jobq 8.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

from dagkit.queues import message_text
from dagkit.queues.base import Delivery, OutMessage

__all__ = ["again", "delivery", "text_of", "to_send"]

_LONGEST_ID: Final = 128  # Microsoft's Service Bus quotas
_ID, _COUNT = "dagkit-id", "dagkit-count"


def to_send(message: OutMessage) -> ServiceBusMessage:
    """A message to send; its id travels beside it where it is too long for the service."""
    short = _short(message.id)
    return _message(message.text, short, {_ID: message.id} if short != message.id else {})


def again(delivery: Delivery, at: float) -> ServiceBusMessage:
    """The same message to be delivered at `at` (s since the epoch, by the service's clock), counting on.

    Its message id is one of its own, or the service would drop it as a duplicate of the first.
    """
    number = delivery.receipt.sequence_number
    beside = {_ID: delivery.id, _COUNT: delivery.count}
    copy = _message(delivery.text, _short(f"{delivery.id}~{number}.{delivery.count}"), beside)
    copy.scheduled_enqueue_time_utc = datetime.fromtimestamp(at, timezone.utc)
    return copy


def delivery(message: ServiceBusReceivedMessage, locked_until: float, max_deliveries: int) -> Delivery:
    """A delivery out of a message that was received from a queue that delivers so many times."""
    text, beside = text_of(message), _properties(message)
    here = (message.delivery_count or 0) + 1
    count = int(beside.get(_COUNT, 0)) + here
    known = message_text.id_in(text) or beside.get(_ID) or message.message_id or str(message.sequence_number)
    return Delivery(str(known), text, message, locked_until, count, here >= max_deliveries)


def text_of(message: ServiceBusReceivedMessage) -> str:
    """The body as a text, whatever the sender made it of."""
    body = message.body
    if isinstance(body, (str, bytes)):
        parts = [body]
    elif isinstance(body, (Mapping, int, float)) or body is None:
        parts = [str(message)]
    else:
        parts = list(body)
    data = b"".join(one if isinstance(one, bytes) else str(one).encode("utf-8", "surrogatepass") for one in parts)
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")  # not ours: whoever reads it will say that it cannot be read


def _message(text: str, message_id: str, beside: dict[str, Any]) -> ServiceBusMessage:
    data = text.encode("utf-8", "surrogatepass")
    properties: Any = beside or None
    return ServiceBusMessage(data, message_id=message_id, application_properties=properties)


def _short(message_id: str) -> str:
    return message_id if len(message_id) <= _LONGEST_ID else hashlib.sha256(message_id.encode()).hexdigest()


def _properties(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """The SDK returns keys and texts as bytes."""
    found = message.application_properties or {}
    return {_plain(key): _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
