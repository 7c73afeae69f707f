"""The operations of a queue's `$management` node (facts: servicebus 5.2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from emulators.servicebus.broker import LockLost, Message, NoSuchMessage, Queue
from emulators.servicebus.codec import Array, Int, Long, Symbol, Timestamp
from emulators.servicebus.message import Content, value_message

__all__ = ["answer"]

_PREFIX = "com.microsoft:"


def answer(queue: Queue, message_id: Any, operation: str, body: dict[str, Any]) -> bytes:
    """The reply to a request, as a message."""
    work = _OPERATIONS.get(operation.removeprefix(_PREFIX))
    if work is None:
        return _reply(message_id, 501, f"{operation} is not known", "amqp:not-implemented")
    try:
        result = work(queue, body, time.time())
    except LockLost:
        return _reply(message_id, 410, "The lock supplied is invalid.", f"{_PREFIX}message-lock-lost")
    except NoSuchMessage:
        return _reply(message_id, 404, "The message was not found.", f"{_PREFIX}message-not-found")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return _reply(message_id, 400, f"{operation}: {error!r}", "amqp:invalid-field")
    return _reply(message_id, 204 if result is None else 200, "OK", None, result)


def _reply(message_id: Any, status: int, text: str, condition: str | None, body: Any = None) -> bytes:
    told: dict[str, Any] = {"statusCode": Int(status), "statusDescription": text}
    if condition:
        told["errorCondition"] = Symbol(condition)
    return value_message(message_id, told, {} if body is None else body)


def _renew(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any]:
    ends = [queue.renew(token, now) for token in body["lock-tokens"]]
    return {"expirations": Array(Timestamp(int(end * 1000)) for end in ends)}


def _settle(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any]:
    how = body["disposition-status"]
    for token in body["lock-tokens"]:
        if how == "completed":
            queue.complete(token, now)
        elif how == "abandoned":
            queue.release(token, now, counts=True)
        elif how == "defered":  # as the service spells it
            queue.defer(token, now)
        elif how == "suspended":
            queue.dead_letter(token, now, body.get("deadletter-reason"), body.get("deadletter-description"))
        else:
            raise ValueError(how)
    return {}


def _peek(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any] | None:
    found = queue.peek(body["from-sequence-number"], body["message-count"])
    return {"messages": [{"message": message.encoded(is_locked=False)} for message in found]} if found else None


def _schedule(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any]:
    numbers = []
    for entry in body["messages"]:
        content = Content.parse(entry["message"])
        content.message_id = entry.get("message-id", content.message_id)
        numbers.append(Long(queue.send(content, now) or 0))
    return {"sequence-numbers": Array(numbers)}


def _cancel(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any]:
    for number in body["sequence-numbers"]:
        queue.cancel_scheduled(number)
    return {}


def _receive_deferred(queue: Queue, body: dict[str, Any], now: float) -> dict[str, Any]:
    found: list[Message] = [queue.deferred(number, now) for number in body["sequence-numbers"]]
    messages = [{"message": one.encoded(is_locked=True), "lock-token": one.token} for one in found]
    return {"messages": messages}


_OPERATIONS: dict[str, Callable[[Queue, dict[str, Any], float], dict[str, Any] | None]] = {
    "renew-lock": _renew,
    "update-disposition": _settle,
    "peek-message": _peek,
    "schedule-message": _schedule,
    "cancel-scheduled-message": _cancel,
    "receive-by-sequence-number": _receive_deferred,
}
