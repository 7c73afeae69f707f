"""The emulator as the unmodified SDK finds it: what dagkit does not use itself is asked for here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from services.servicebus import Emulator, Namespace

QUICK = {"try_timeout": 5, "retry_total": 1, "retry_backoff_factor": 0.1}


class Sides:
    """A sender and a receiver of one queue, for all tests: opening and closing them costs a second."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = ServiceBusClient.from_connection_string(namespace.connection_string(), **QUICK)
        self.sender = self.client.get_queue_sender("cpu")
        self.receiver = self.client.get_queue_receiver("cpu")

    def put(self, *texts: str, **fields: Any) -> None:
        self.sender.send_messages([ServiceBusMessage(text, **fields) for text in texts], timeout=5)

    def take(self, count: int = 1) -> list[Any]:
        return list(self.receiver.receive_messages(count, max_wait_time=3))

    def put_and_take(self, text: str, **fields: Any) -> Any:
        self.put(text, **fields)
        (message,) = self.take()
        return message


@pytest.fixture(scope="module")
def sides(servicebus: Emulator) -> Iterator[Sides]:
    namespace = servicebus.namespace()
    namespace.create("cpu", lock_s=1.0)
    both = Sides(namespace)
    yield both
    both.client.close()


@pytest.fixture(autouse=True)
def _nothing_is_left(sides: Sides) -> Iterator[None]:
    yield
    counts = sides.namespace.counts("cpu")
    assert counts["active"] == counts["scheduled"] == counts["deferred"] == 0


def test_a_batch_arrives_in_order_with_its_fields(sides: Sides) -> None:
    sides.put("a", "b", subject="s", application_properties={"n": 1})

    messages = sides.take(2)

    assert [(str(one), one.subject, one.delivery_count) for one in messages] == [("a", "s", 0), ("b", "s", 0)]
    assert messages[0].application_properties == {b"n": 1}
    for message in messages:
        sides.receiver.complete_message(message)


def test_settlements(sides: Sides) -> None:
    message = sides.put_and_take("a")
    sides.receiver.abandon_message(message)
    (message,) = sides.take()
    assert message.delivery_count == 1
    sides.receiver.defer_message(message)
    (message,) = sides.receiver.receive_deferred_messages(message.sequence_number)
    sides.receiver.dead_letter_message(message, reason="bad", error_description="very")

    with sides.client.get_queue_receiver("cpu", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
        (buried,) = graves.receive_messages(1, max_wait_time=3)
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == ("bad", "very")
        graves.complete_message(buried)


def test_a_lock_that_ended_is_refused_here_and_there(sides: Sides) -> None:
    message = sides.put_and_take("a")
    assert sides.receiver.renew_message_lock(message) > datetime.now(timezone.utc)
    (again,) = sides.take()

    assert again.delivery_count == 1
    with pytest.raises(MessageLockLostError):
        sides.receiver.renew_message_lock(message)
    sides.receiver.complete_message(again)


def test_peek_schedule_and_cancel(sides: Sides) -> None:
    at = datetime.now(timezone.utc) + timedelta(seconds=60)
    first, second = sides.sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], at)

    peeked = sides.receiver.peek_messages(5, sequence_number=first)
    sides.sender.cancel_scheduled_messages([first, second])

    assert [str(one) for one in peeked] == ["a", "b"]
    assert abs(peeked[0].scheduled_enqueue_time_utc - at) < timedelta(milliseconds=2)
    with pytest.raises(MessageNotFoundError):
        sides.sender.cancel_scheduled_messages([first])


def test_a_message_that_lived_too_long_is_gone(sides: Sides) -> None:
    sides.put("short", time_to_live=timedelta(seconds=1))

    deadline = time.monotonic() + 5
    while sides.namespace.counts("cpu")["total"] > sides.namespace.counts("cpu")["dead"]:
        assert time.monotonic() < deadline


def test_receive_and_delete(sides: Sides) -> None:
    sides.put("a")

    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with sides.client.get_queue_receiver("cpu", receive_mode=mode) as receiver:
        assert [str(one) for one in receiver.receive_messages(1, max_wait_time=3)] == ["a"]


def test_large_messages_and_too_large_ones(sides: Sides) -> None:
    message = sides.put_and_take("x" * 200_000)
    assert len(str(message)) == 200_000
    sides.receiver.complete_message(message)

    with pytest.raises(MessageSizeExceededError):
        sides.sender.send_messages(ServiceBusMessage("x" * 300_000), timeout=5)


def test_refusals(sides: Sides) -> None:
    sides.namespace.fault("send", "refuse", times=9)
    with pytest.raises(ServiceBusServerBusyError):
        sides.put("a")
    sides.namespace.order("clear")

    with pytest.raises(MessagingEntityNotFoundError):
        sides.client.get_queue_receiver("nope").receive_messages(1, max_wait_time=3)
    wrong = sides.namespace.connection_string(key="wrong")
    with (
        ServiceBusClient.from_connection_string(wrong, **QUICK) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        client.get_queue_sender("cpu").send_messages(ServiceBusMessage("a"), timeout=5)


class Plain(RequestsTransport):  # type: ignore[misc]
    """Without TLS, which the SDK insists on."""

    def send(self, request: Any, **kwargs: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **kwargs)


def test_administration(sides: Sides) -> None:
    admin = sides.namespace.connection_string().replace(str(sides.namespace.amqp_port), str(sides.namespace.admin_port))
    with ServiceBusAdministrationClient.from_connection_string(admin, transport=Plain()) as client:
        made = client.create_queue("gpu", lock_duration=timedelta(seconds=30), max_delivery_count=5)
        with pytest.raises(ResourceExistsError):
            client.create_queue("GPU")
        made.max_delivery_count = 7
        client.update_queue(made)
        found = client.get_queue("gpu")

        assert (found.max_delivery_count, found.lock_duration) == (7, timedelta(seconds=30))
        assert client.get_queue_runtime_properties("gpu").total_message_count == 0
        for number in range(120):
            sides.namespace.create(f"q{number:03}")
        assert len(list(client.list_queues())) == 122
        client.delete_queue("gpu")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("gpu")
