"""What Service Bus does beyond the contract: locks of its own, lost replies, cuts, refusals, throttling, poison."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time

import pytest

from dagkit.azure.bus import find_bus
from dagkit.errors import BackendError, ConfigError, PayloadTooLarge
from dagkit.queues import open_transport, service_url
from dagkit.queues.base import OutMessage
from services.processes import wait_until

pytestmark = [
    # The SDK leaves the sockets of connections that failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

CANARY = "c2VjcmV0LWNhbmFyeQ=="


@pytest.fixture
def bus(servicebus_namespace):
    servicebus_namespace.create("cpu", lock_s=2.0)
    return servicebus_namespace


@pytest.fixture
def transport(bus):
    opened = open_transport(bus.url)
    yield opened
    opened.close()
    gc.collect()


@pytest.fixture
def queue(transport):
    return transport.open("cpu")


def text_of(one):
    return json.dumps({"text": f"text of {one}", "id": one})


def send(queue, *ids):
    queue.send_batch([OutMessage(one, text_of(one)) for one in ids])


def receive(queue, count=1, wait_s=10.0):
    """All of `count` messages, or what came of them in time."""
    received, deadline = [], time.monotonic() + wait_s
    while len(received) < count and (left := deadline - time.monotonic()) > 0:
        received += queue.receive(count - len(received), left, 30)
    return received


# --- locks


def test_a_lock_lasts_as_long_as_the_queue_says_and_comes_back_counted(queue):
    send(queue, "a")
    (first,) = receive(queue)
    assert first.locked_until - time.monotonic() <= 3.0  # the clock of the service is known to a second

    (second,) = receive(queue)

    assert (second.id, second.count) == ("a", 2)
    queue.complete([first])
    assert queue.extend(first, 30) is None
    assert queue.stats().locked == 1


def test_a_lock_that_is_kept_from_another_thread_is_not_lost_while_a_receiver_waits(queue):
    send(queue, "a")
    (delivery,) = receive(queue)
    others, kept = [], []

    def keep():
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            kept.append(queue.extend(delivery, 30))
            time.sleep(0.3)

    keeper = threading.Thread(target=keep)
    keeper.start()
    while keeper.is_alive():
        others += queue.receive(5, 0.2, 30)
    keeper.join()

    assert others == []
    assert None not in kept
    queue.complete([kept[-1]])
    assert queue.stats().waiting == queue.stats().locked == 0


def test_a_delayed_message_comes_back_with_its_id_and_its_count(queue, bus):
    send(queue, "a")
    (first,) = receive(queue)

    queue.abandon([first], delay_s=0.5)
    assert bus.counts("cpu")["scheduled"] == 1
    (second,) = receive(queue)
    queue.abandon([second], delay_s=0.1)
    (third,) = receive(queue)

    assert [(one.id, one.text, one.count) for one in (second, third)] == [
        ("a", text_of("a"), 2),
        ("a", text_of("a"), 3),
    ]


def test_a_message_whose_lock_was_lost_is_not_copied_by_a_late_delay(queue, bus):
    send(queue, "a")
    (first,) = receive(queue)
    (second,) = receive(queue)

    queue.abandon([first], delay_s=0.1)

    assert bus.counts("cpu") == {"active": 1, "deferred": 0, "scheduled": 0, "dead": 0, "total": 1}
    queue.complete([second])


# --- replies that are lost, connections that are cut


def test_a_send_whose_reply_was_lost_is_sent_again_and_received_once(queue, bus):
    bus.fault("send", "cut_after")

    send(queue, "a", "b")

    assert sorted(one.id for one in receive(queue, 3, 1.0)) == ["a", "b"]
    assert bus.look()["passed"]["send"] >= 2


def test_a_send_that_was_cut_off_before_it_arrived_is_sent_again(queue, bus):
    bus.fault("send", "cut")

    send(queue, "a")

    assert [one.id for one in receive(queue)] == ["a"]


def test_the_same_batch_sent_twice_is_received_once(queue):
    send(queue, "a", "b")
    send(queue, "a", "b", "c")

    assert sorted(one.id for one in receive(queue, 4, 0.8)) == ["a", "b", "c"]


def test_a_receiver_that_was_cut_off_goes_on_receiving(queue, bus):
    assert queue.receive(1, 0.1, 30) == []
    bus.order("drop")
    send(queue, "a")

    assert [one.id for one in receive(queue, wait_s=10)] == ["a"]


def test_messages_on_their_way_when_the_connection_is_cut_come_again(queue, bus):
    bus.fault("push", "cut_after", skip=2)
    send(queue, *"abcd")

    got = set()
    deadline = time.monotonic() + 20
    while bus.counts("cpu")["total"] and time.monotonic() < deadline:
        deliveries = queue.receive(4, 0.5, 30)
        got |= {delivery.id for delivery in deliveries}
        queue.complete(deliveries)

    assert got == {"a", "b", "c", "d"}
    assert bus.counts("cpu")["total"] == 0


@pytest.mark.parametrize("kind", ["cut", "cut_after"])
def test_completing_over_a_cut_completes_once(transport, bus, kind):
    bus.order("create", name="slow", rules={"lock_s": 30})
    queue = transport.open("slow")
    send(queue, "a", "b")
    received = receive(queue, 2)
    bus.fault("settle", kind)

    queue.complete(received)

    assert bus.counts("slow")["total"] == 0


def test_an_answer_to_a_renewal_that_was_lost_is_asked_for_again(transport, bus):
    bus.order("create", name="slow", rules={"lock_s": 30})
    queue = transport.open("slow")
    send(queue, "a")
    (delivery,) = receive(queue)
    bus.fault("renew-lock", "cut_after")

    assert queue.extend(delivery, 30) is not None


def test_a_service_that_restarts_is_found_again(queue, bus):
    send(queue, "a")
    bus.order("stop")
    started = time.monotonic()
    with pytest.raises(BackendError, match=r"cannot be reached|did not answer"):
        queue.receive(1, 0.1, 30)
    assert time.monotonic() - started < 30
    bus.order("start")

    assert [one.id for one in receive(queue, wait_s=10)] == ["a"]


# --- refusals


def test_throttling_is_waited_out(queue, bus):
    bus.fault("send", "refuse", times=2, condition="com.microsoft:server-busy")

    send(queue, "a")

    assert [one.id for one in receive(queue)] == ["a"]


def test_throttling_that_does_not_end_is_one_clear_error(queue, bus):
    bus.fault("send", "refuse", times=100, condition="com.microsoft:server-busy")

    with pytest.raises(BackendError, match=r"sending to cpu: Service Bus namespace .*: the service asks for fewer"):
        send(queue, "a")


def test_a_full_queue_says_so(queue, bus):
    bus.fault("send", "refuse", times=100, condition="amqp:resource-limit-exceeded")

    with pytest.raises(BackendError, match="the queue is full"):
        send(queue, "a")


def test_an_oversized_text_is_refused_before_anything_is_sent(queue, bus):
    with pytest.raises(PayloadTooLarge):
        queue.send_batch([OutMessage("small", "x"), OutMessage("big", "x" * (queue.max_text_bytes + 1))])

    assert bus.counts("cpu")["total"] == 0


def test_the_largest_texts_travel_and_a_batch_is_split_where_it_must(queue):
    texts = [letter * queue.max_text_bytes for letter in "abc"] + ["ä" * 1000] * 100

    queue.send_batch([OutMessage(f"m{number}", text) for number, text in enumerate(texts)])

    received = []
    while some := queue.receive(10, 1.0, 30):
        queue.complete(some)
        received += [delivery.text for delivery in some]
    assert sorted(received) == sorted(texts)


def test_a_queue_that_was_deleted_says_what_to_do(queue, bus):
    bus.order("delete", name="cpu")

    with pytest.raises(BackendError, match=r"sending to cpu: .*the queue is not there.*az servicebus queue create"):
        send(queue, "a")


def test_a_missing_queue_is_created_with_duplicate_detection_and_room_for_many_deliveries(bus, transport):
    transport.open("Gpu.a100_x/1")

    rules = bus.look()["queues"]["Gpu.a100_x/1"]["rules"]
    assert (rules["detects_duplicates"], rules["max_delivery_count"], rules["lock_s"]) == (True, 2000, 60)
    assert rules["history_s"] == 7 * 86_400


@pytest.mark.parametrize("name", ["", "-x", "x/", "ü", "a b", "x" * 261])
def test_a_name_that_the_service_does_not_take_is_an_error_of_the_caller(transport, name):
    with pytest.raises(ConfigError, match="Service Bus queue is called by"):
        transport.open(name)


def test_a_wrong_key_is_one_clear_error_without_the_key(servicebus, monkeypatch, caplog):
    namespace = servicebus.namespace()
    for name, value in namespace.environment(key=CANARY).items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.DEBUG)
    transport = open_transport(namespace.url)
    queue = transport.open("cpu")

    for call in (lambda: send(queue, "a"), lambda: queue.receive(1, 0, 30), transport.names):
        with pytest.raises(BackendError, match="is not accepted") as caught:
            call()
        assert CANARY not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None

    assert CANARY not in caplog.text
    assert CANARY not in repr(transport)
    transport.close()


def test_without_the_right_to_manage_existing_queues_work_and_others_say_what_is_missing(servicebus, monkeypatch):
    namespace = servicebus.namespace(worker={"key": CANARY, "rights": ["Send", "Listen"]})
    namespace.create("cpu")
    for name, value in namespace.environment("worker").items():
        monkeypatch.setenv(name, value)
    transport = open_transport(namespace.url)
    queue = transport.open("cpu")

    send(queue, "a")
    (delivery,) = receive(queue)

    assert (queue.stats().waiting, queue.stats().locked) == (0, 1)
    queue.complete([delivery])
    with pytest.raises(BackendError, match="no right to manage the namespace"):
        transport.names()
    with pytest.raises(BackendError, match="the queue is not there"):
        send(transport.open("gpu"), "a")
    transport.close()


def test_a_queue_that_sets_messages_aside_too_soon_is_warned_about(bus, transport, caplog):
    bus.order("create", name="plain", rules={})

    transport.open("plain")

    assert "after 10 deliveries" in caplog.text
    assert "detects no duplicates" in caplog.text


@pytest.mark.parametrize("rights", [["Send", "Listen", "Manage"], ["Send", "Listen"]])
def test_the_last_delivery_before_a_message_is_set_aside_is_known(servicebus, monkeypatch, rights):
    """Without the right to look, the queue is supposed to have what Azure gives: ten deliveries."""
    namespace = servicebus.namespace(worker={"key": CANARY, "rights": rights})
    namespace.create("frail", max_delivery_count=2 if "Manage" in rights else 10)
    for name, value in namespace.environment("worker").items():
        monkeypatch.setenv(name, value)
    transport = open_transport(namespace.url)
    queue = transport.open("frail")
    send(queue, "a")

    seen = []
    while not seen or not seen[-1][1]:
        (delivery,) = receive(queue)
        seen.append((delivery.count, delivery.is_last))
        if not delivery.is_last:
            queue.abandon([delivery])
    queue.complete([delivery])

    assert seen[-1] == (2 if "Manage" in rights else 10, True)
    assert namespace.counts("frail")["dead"] == 0
    transport.close()


# --- silence


def test_a_service_that_accepts_and_says_nothing_is_given_up_in_time(bus, monkeypatch):
    from dagkit.queues.service_bus import queue as module

    assert module._DEADLINE_S <= 60
    monkeypatch.setattr(module, "_DEADLINE_S", 2.0)
    transport = open_transport(bus.url)
    queue = transport.open("cpu")
    bus.fault("connect", "silence")
    started = time.monotonic()

    with pytest.raises(BackendError, match="did not answer in time"):
        queue.receive(1, 0, 30)

    assert time.monotonic() - started < 10
    send(queue, "a")
    assert [one.id for one in receive(queue)] == ["a"]
    transport.close()
    bus.order("drop")  # the SDK would listen for ever to a connection that says nothing
    wait_until(lambda: not lanes(), "the thread that was left behind has given up")
    gc.collect()


def lanes():
    """Threads of transports; one that outlives its test leaves its sockets to the tests after it."""
    return [one.name for one in threading.enumerate() if one.name.startswith(("dagkit-receive-", "dagkit-keep-"))]


def test_a_clock_far_ahead_of_the_service_is_said_before_messages_are_taken(queue, monkeypatch):
    monkeypatch.setattr(queue._administration.clock, "now", lambda: time.time() - 120)

    with pytest.raises(BackendError, match=r"clock is 120 s ahead.*Set the clock"):
        queue.receive(1, 0, 30)


# --- messages of others


def test_messages_of_others_are_read_as_they_are(bus, queue):
    from azure.servicebus import ServiceBusClient, ServiceBusMessage
    from azure.servicebus.amqp import AmqpAnnotatedMessage

    client = ServiceBusClient.from_connection_string(bus.connection_string())
    with client, client.get_queue_sender("cpu") as one:
        one.send_messages(ServiceBusMessage("plain"))
        one.send_messages(ServiceBusMessage(b"\xff\xfe"))
        one.send_messages(AmqpAnnotatedMessage(value_body="value"))
        one.send_messages(ServiceBusMessage(json.dumps({"id": "x" * 200})))

    texts = {delivery.text: delivery.id for delivery in receive(queue, 4)}

    assert set(texts) == {"plain", "\ufffd\ufffd", "value", json.dumps({"id": "x" * 200})}
    assert texts[json.dumps({"id": "x" * 200})] == "x" * 200


def test_ids_that_are_too_long_for_the_service_arrive_whole(queue):
    one = "w/" + "task" * 50 + "/1"

    queue.send_batch([OutMessage(one, "no envelope")])
    queue.send_batch([OutMessage(one, "no envelope")])

    assert [delivery.id for delivery in receive(queue, 2, 0.5)] == [one]


# --- addresses


def test_a_namespace_is_found_by_its_name():
    text = "Endpoint=sb://lab-1.servicebus.windows.net/;SharedAccessKeyName=p;SharedAccessKey=" + CANARY

    plain = find_bus("sb://lab-1", {})
    own = find_bus("sb://lab-1", {"DAGKIT_CONNECTION_STRING_LAB_1": text})
    common = find_bus("sb://LAB-1/", {"AZURE_SERVICEBUS_CONNECTION_STRING": text})
    foreign = find_bus("sb://lab-2", {"AZURE_SERVICEBUS_CONNECTION_STRING": text})

    assert (plain.host, plain.connection_string) == ("lab-1.servicebus.windows.net", None)
    assert plain.admin == "https://lab-1.servicebus.windows.net"
    assert own.connection_string == common.connection_string == text
    assert foreign.connection_string is None
    assert CANARY not in repr(own)
    assert own.secrets == [CANARY]
    assert find_bus("sb://lab.servicebus.chinacloudapi.cn", {}).host == "lab.servicebus.chinacloudapi.cn"


@pytest.mark.parametrize("url", ["sb:", "sb://", "sb://a b", "sb://name/queue", "sb://name?x"])
def test_an_url_that_is_no_namespace_is_a_clear_error(url):
    with pytest.raises(ConfigError, match="sb://<namespace>"):
        open_transport(url)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nonsense", "no Endpoint"),
        ("Endpoint=sb://x.servicebus.windows.net/", "no SharedAccessKey"),
        ("Endpoint=sb://x.y/;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=q", "EntityPath"),
    ],
)
def test_a_connection_string_that_cannot_do_names_its_variable(text, what):
    with pytest.raises(ConfigError, match=what) as caught:
        find_bus("sb://lab", {"DAGKIT_CONNECTION_STRING_LAB": text})

    assert "DAGKIT_CONNECTION_STRING_LAB" in str(caught.value)


def test_a_connection_string_where_an_address_belongs_is_not_repeated():
    with pytest.raises(ConfigError, match="AZURE_SERVICEBUS_CONNECTION_STRING") as caught:
        open_transport(f"Endpoint=sb://x/;SharedAccessKey={CANARY}")

    assert CANARY not in str(caught.value)


def test_one_setting_says_which_service_carries_the_queues_of_a_store():
    assert service_url("sb://lab", "azure://account/prefix") == "sb://lab"
    assert service_url("sb://lab", "sqlite:/x") == "sb://lab"
