"""Storage queues with locks of a second: what the contract suite shows elsewhere by setting a clock, and what is theirs
alone."""

from __future__ import annotations

import json
import threading
import time

import pytest
from azure.storage.queue import QueueServiceClient

from dagkit.errors import BackendError, PayloadTooLarge
from dagkit.queues import message_text, open_transport
from dagkit.queues.base import OutMessage
from dagkit.queues.storage_queue import MAX_TEXT_BYTES
from services.faulty_proxy import Fault, faulty

pytestmark = pytest.mark.xdist_group("azurite")


@pytest.fixture
def transport(azurite_account):
    opened = open_transport(f"azure://{azurite_account.name}/Proj")
    yield opened
    opened.close()


@pytest.fixture
def queue(transport):
    return transport.open("cpu")


@pytest.fixture
def client(azurite_account):
    """The queue seen by the service's own SDK."""
    with QueueServiceClient.from_connection_string(azurite_account.connection_string) as service:
        yield service.get_queue_client("cpu")


def send(queue, *ids):
    queue.send_batch([OutMessage(one, json.dumps({"id": one})) for one in ids])


def ids(deliveries):
    return sorted(delivery.id for delivery in deliveries)


# --- locks


def test_a_message_whose_lock_ran_out_is_delivered_again_and_the_first_receipt_is_void(queue):
    send(queue, "a")
    (first,) = queue.receive(1, 0, 1)

    (second,) = queue.receive(1, 10, 30)

    assert (second.id, second.count) == ("a", 2)
    queue.complete([first])
    queue.abandon([first])
    assert queue.extend(first, 30) is None
    assert queue.receive(1, 0, 30) == []
    assert queue.stats().locked == 1
    queue.complete([second])
    assert queue.stats().locked == 0


def test_a_stale_receipt_deletes_nothing_even_beside_a_good_one(queue):
    send(queue, "a")
    (stale,) = queue.receive(1, 0, 1)
    (fresh,) = queue.receive(1, 10, 30)
    send(queue, "b")
    (good,) = queue.receive(1, 1, 30)

    queue.complete([stale, good])

    assert queue.stats().locked == 1
    assert queue.extend(fresh, 30) is not None


def test_an_extended_lock_lasts_from_then_on_and_its_newest_receipt_counts(queue):
    send(queue, "a")
    (delivery,) = queue.receive(1, 0, 2)
    locked_until = delivery.locked_until
    for _ in range(3):
        delivery = queue.extend(delivery, 30)

    assert delivery.locked_until > locked_until + 20
    assert queue.receive(1, max(0.0, locked_until + 0.5 - time.monotonic()), 30) == []
    queue.complete([delivery])
    assert queue.stats().locked == 0


def test_an_abandoned_message_can_be_delayed(queue):
    send(queue, "a")
    queue.abandon(queue.receive(1, 0, 30), delay_s=0.5)  # the service counts whole seconds
    started = time.monotonic()

    (again,) = queue.receive(1, 10, 30)

    assert (again.id, again.count) == ("a", 2)
    assert time.monotonic() - started > 0.4


def test_messages_wait_for_ever(queue, client):
    """The service's own default is a week."""
    send(queue, "a")

    (message,) = client.peek_messages()

    assert message.expires_on.year == 9999


# --- stats


def test_stats_tell_the_waiting_from_the_locked_and_how_old_they_are(queue):
    assert (queue.stats().waiting, queue.stats().locked, queue.stats().oldest_age_s) == (0, 0, None)
    send(queue, "a", "b", "c")
    queue.receive(1, 0, 30)

    stats = queue.stats()

    assert (stats.name, stats.waiting, stats.locked) == ("cpu", 2, 1)
    assert stats.oldest_age_s == pytest.approx(1, abs=2)


def test_where_more_wait_than_the_service_shows_all_count_as_waiting(queue):
    send(queue, *(f"m{number}" for number in range(40)))
    queue.receive(1, 0, 30)

    assert (queue.stats().waiting, queue.stats().locked) == (40, 0)


# --- many messages


def test_more_messages_than_a_call_may_bring_are_received_in_one_go(queue):
    send(queue, *(f"m{number}" for number in range(80)))

    received = queue.receive(70, 0, 30)
    queue.complete(received)

    assert len(set(ids(received))) == 70
    assert queue.stats().waiting == 10
    assert {delivery.count for delivery in received} == {1}


# --- texts


def test_the_text_is_the_message(queue, client):
    text = json.dumps({"version": 1, "kwargs": "{}", "id": "w/t/1"})

    queue.send_batch([OutMessage("w/t/1", text)])

    (message,) = client.receive_messages()
    assert message.content == text


def test_a_message_of_others_has_the_services_id(queue, client):
    client.send_message("plain & simple")
    client.send_message('["no", "envelope"]')

    received = queue.receive(10, 1, 30)

    assert sorted(delivery.text for delivery in received) == ['["no", "envelope"]', "plain & simple"]
    assert len({delivery.id for delivery in received}) == 2


@pytest.mark.parametrize(
    "text",
    ["x" * MAX_TEXT_BYTES, "ä" * (MAX_TEXT_BYTES // 2), "a"],
    ids=["ascii", "two bytes", "short"],
)
def test_what_the_limit_allows_the_service_takes(queue, text):
    for left in reversed(range(5)):
        try:
            queue.send_batch([OutMessage("a", text)])
            break
        except BackendError as error:  # Azurite takes a letter whose bytes came in two pieces for two, now and then
            if "413" not in str(error) or not left:
                raise

    assert [delivery.text for delivery in queue.receive(1, 1, 30)] == [text]


@pytest.mark.parametrize(
    "text",
    ["x" * (MAX_TEXT_BYTES + 1), "ä" * (MAX_TEXT_BYTES // 2 + 1), "\x00" * 50_000],
    ids=["ascii", "two bytes", "grows in base64"],
)
def test_what_it_does_not_allow_is_refused_before_anything_is_sent(queue, text):
    with pytest.raises(PayloadTooLarge):
        queue.send_batch([OutMessage("small", "x"), OutMessage("big", text)])

    assert queue.stats().waiting == 0


@pytest.mark.parametrize(
    "text", ["", " a", "a\n", "a\r\nb", "\x00", "\ud800", "base64:", "base64:AAAA", "\ufffe", "\x85"]
)
def test_texts_that_xml_would_change_travel_whole(text):
    assert message_text.unpack(message_text.pack(text)) == text


@pytest.mark.parametrize("text", ["base64:not base64", "base64:\u00e4"])
def test_a_text_of_others_that_only_looks_packed_is_left_as_it_is(text):
    assert message_text.unpack(text) == text


# --- waiting


def test_a_receiver_that_waits_gets_what_is_sent_meanwhile_and_closing_wakes_it(transport, queue):
    got = []
    receiver = threading.Thread(target=lambda: got.extend((queue.receive(1, 10, 30), queue.receive(1, 60, 30))))
    receiver.start()

    send(queue, "a")
    deadline = time.monotonic() + 10
    while not got and queue.stats().waiting:
        assert time.monotonic() < deadline
    transport.close()
    receiver.join(10)

    assert not receiver.is_alive()
    assert [ids(deliveries) for deliveries in got] == [["a"], []]


def test_an_idle_queue_is_asked_less_and_less(azurite_account, monkeypatch):
    with faulty(azurite_account) as (account, (_, proxy, _)):
        monkeypatch.setenv("JOBQ_CONNECTION_STRING", account.connection_string)
        transport = open_transport(f"azure://{account.name}")
        queue = transport.open("cpu")
        proxy.requests.clear()

        assert queue.receive(1, 2, 30) == []

        assert 5 < len(proxy.requests) < 50
        transport.close()


# --- a service that is ill


@pytest.fixture
def ill(azurite_account, monkeypatch):
    """A queue behind a proxy, and the proxy."""
    with faulty(azurite_account) as (account, (_, proxy, _)):
        monkeypatch.setenv("JOBQ_CONNECTION_STRING", account.connection_string)
        transport = open_transport(f"azure://{account.name}")
        yield transport.open("cpu"), proxy
        transport.close()


@pytest.mark.parametrize("kind", ["lose_reply", "cut", "answer"])
def test_whatever_happens_to_a_send_the_message_arrives_at_least_once(ill, kind):
    queue, proxy = ill
    proxy.faults.append(Fault(kind, "POST", "/messages"))

    send(queue, "a")

    assert set(ids(queue.receive(10, 1, 30))) == {"a"}


def test_of_many_sends_one_that_fails_is_told_and_the_others_arrive(ill):
    queue, proxy = ill
    proxy.faults.append(Fault("answer", "POST", "/messages", status=400, code="InvalidInput"))

    with pytest.raises(BackendError, match="sending to cpu: storage account"):
        send(queue, *(f"m{number}" for number in range(10)))

    assert len(queue.receive(10, 1, 30)) == 9


def test_a_receive_whose_reply_was_lost_costs_a_lock_and_no_message(ill):
    queue, proxy = ill
    send(queue, "a")
    proxy.faults.append(Fault("lose_reply", "GET", "/messages"))

    (delivery,) = queue.receive(1, 10, 1)

    assert (delivery.id, delivery.count) == ("a", 2)


def test_a_delete_whose_reply_was_lost_has_deleted(ill):
    queue, proxy = ill
    send(queue, "a")
    received = queue.receive(1, 0, 30)
    proxy.faults.append(Fault("lose_reply", "DELETE"))

    queue.complete(received)

    assert queue.stats().locked == 0


def test_a_renewal_whose_reply_was_lost_counts_as_a_lost_lock(ill):
    """The receipt was in the reply: nobody can settle the message before its lock ends."""
    queue, proxy = ill
    send(queue, "a")
    (delivery,) = queue.receive(1, 0, 30)
    proxy.faults.append(Fault("lose_reply", "PUT"))

    assert queue.extend(delivery, 1) is None
    assert ids(queue.receive(1, 10, 30)) == ["a"]


def test_a_queue_that_was_deleted_is_one_clear_error(queue, client):
    client.delete_queue()

    with pytest.raises(BackendError, match=r"receiving from cpu: .*the queue is not there"):
        queue.receive(1, 0, 30)
    with pytest.raises(BackendError, match=r"sending to cpu: .*the queue is not there"):
        send(queue, "a")
