"""The emulator as an independent AMQP client finds it: frames, credit, settlement, tokens, management."""

from __future__ import annotations

import contextlib
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Data, Delivery, Link, Message, symbol

from emulators.servicebus import codec
from emulators.wire_client import WireClient, annotation, lock_token

POLICY = "RootManageSharedAccessKey"


@pytest.fixture
def bus(servicebus):
    namespace = servicebus.namespace(reader={"key": "a2V5", "rights": ["Listen"]})
    namespace.create("cpu", lock_s=1.0, max_delivery_count=3)
    return namespace


@pytest.fixture
def client(bus):
    opened = WireClient(bus.amqp_port)
    assert opened.authenticate(POLICY, bus.policies[POLICY]["key"]) == 202
    yield opened
    opened.close()


def put(client, *bodies, **fields):
    sender = client.sender("cpu")
    for body in bodies:
        assert client.send(sender, Message(body=body, **fields).encode()).remote_state == Delivery.ACCEPTED


# --- values


@pytest.mark.parametrize(
    ("value", "put_value", "take"),
    [
        (None, Data.put_null, None),
        (True, Data.put_bool, bool),
        (codec.Ubyte(255), Data.put_ubyte, int),
        (codec.Ushort(65_535), Data.put_ushort, int),
        (codec.Uint(0), Data.put_uint, int),
        (codec.Uint(200), Data.put_uint, int),
        (codec.Uint(2**32 - 1), Data.put_uint, int),
        (codec.Int(-(2**31)), Data.put_int, int),
        (codec.Ulong(0), Data.put_ulong, int),
        (codec.Ulong(2**64 - 1), Data.put_ulong, int),
        (codec.Long(-(2**63)), Data.put_long, int),
        (codec.Timestamp(1_800_000_000_000), Data.put_timestamp, int),
        (1.5, Data.put_double, float),
        (b"\x00\xff" * 200, Data.put_binary, bytes),
        ("ä" * 300, Data.put_string, str),
        (codec.Symbol("com.microsoft:x"), Data.put_symbol, str),
        (uuid.UUID(int=7), Data.put_uuid, None),
    ],
)
def test_values_are_read_by_proton_as_they_were_meant_and_the_other_way_round(value, put_value, take):
    data = Data()
    data.decode(codec.encode(value))
    data.rewind()
    data.next()
    theirs = data.get_object()
    assert (theirs if take is None else take(theirs)) == value

    written = Data()
    put_value(written) if value is None else put_value(written, value)
    back, end = codec.decode(written.encode())
    assert (type(back), back, end) == (type(value), value, len(written.encode()))


plain = st.none() | st.booleans() | st.text() | st.binary() | st.integers(-(2**63), 2**63 - 1) | st.uuids()
nested = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(value=nested)
def test_any_nesting_comes_back(value):
    assert codec.decode(codec.encode(value)) == (value, len(codec.encode(value)))


def test_arrays_are_read_by_proton():
    data = Data()
    data.decode(codec.encode(codec.Array([uuid.UUID(int=1), uuid.UUID(int=2)])))
    data.rewind()
    data.next()

    assert data.get_object() == Array(UNDESCRIBED, Data.UUID, uuid.UUID(int=1), uuid.UUID(int=2))


@given(data=st.binary(max_size=100))
def test_bytes_that_are_no_value_are_a_value_error_and_nothing_else(data):
    with contextlib.suppress(ValueError):
        codec.decode(data)


# --- who may


def test_without_a_token_nothing_is_opened(bus):
    client = WireClient(bus.amqp_port)

    link = client.receiver("cpu")
    client.until(lambda: link.state & Link.REMOTE_CLOSED, "the link is detached")

    assert link.remote_source.address is None
    assert link.remote_condition.name == "amqp:unauthorized-access"
    assert client.authenticate(POLICY, "wrong") == 401
    assert client.authenticate("nobody", "wrong") == 401
    client.close()


def test_a_policy_allows_what_it_says(bus):
    client = WireClient(bus.amqp_port)
    assert client.authenticate("reader", "a2V5") == 202

    assert client.receiver("cpu").remote_source.address == "cpu"
    sender = client.sender("cpu")
    client.until(lambda: sender.state & Link.REMOTE_CLOSED, "the link is detached")
    assert sender.remote_condition.name == "amqp:unauthorized-access"
    client.close()


def test_an_unknown_queue_is_refused_with_a_null_terminus(client):
    for link in (client.sender("nope"), client.receiver("nope")):
        client.until(lambda link=link: link.state & Link.REMOTE_CLOSED, "the link is detached")
        assert (link.remote_target if link.is_sender else link.remote_source).address is None
        assert link.remote_condition.name == "amqp:not-found"


# --- sending


def test_a_link_says_its_modes_its_limit_and_its_credit(client):
    sender = client.sender("amqps://host:1/CPU")
    client.until(lambda: sender.credit, "there is credit")

    assert sender.remote_max_message_size == 262_144
    assert sender.credit == 1000
    receiver = client.receiver("cpu")
    assert (receiver.remote_snd_settle_mode, receiver.remote_rcv_settle_mode) == (Link.SND_UNSETTLED, Link.RCV_SECOND)


def test_credit_is_renewed_before_it_ends(client):
    sender = client.sender("cpu")

    for _ in range(1_200):
        client.send(sender, Message(body="x").encode(), settle=True)
    client.send(sender, Message(body="x").encode())

    assert sender.credit > 400


def test_a_message_larger_than_a_frame_travels_both_ways(client, bus):
    body = bytes(range(256)) * 900
    put(client, body)
    receiver = client.receiver("cpu")
    receiver.flow(1)

    delivery, message = client.receive(receiver)

    assert bytes(message.body) == body
    assert client.transport.remote_max_frame_size == 65_536
    assert client.settle(delivery, Delivery.ACCEPTED) == Delivery.ACCEPTED


def test_a_message_over_the_limit_is_rejected_with_its_condition(client):
    delivery = client.send(client.sender("cpu"), Message(body=b"x" * 262_144).encode())

    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:link:message-size-exceeded"


def test_a_sender_keeps_its_properties_and_gets_no_others(client):
    put(client, "body", id="m1", subject="s", properties={"n": 1, "s": "ü"}, correlation_id=uuid.UUID(int=3))
    receiver = client.receiver("cpu")
    receiver.flow(1)

    _, message = client.receive(receiver)

    assert (message.id, message.subject, message.properties) == ("m1", "s", {"n": 1, "s": "ü"})
    assert (message.body, message.correlation_id) == ("body", uuid.UUID(int=3))


def test_a_duplicate_is_accepted_and_dropped(client, bus):
    put(client, "a", "b", id="same")

    assert bus.counts("cpu")["active"] == 1


# --- receiving


def test_no_more_is_sent_than_credit_was_given_for(client):
    put(client, *"abcd")
    receiver = client.receiver("cpu")
    client.quiet()
    assert receiver.queued == 0

    receiver.flow(2)
    client.until(lambda: receiver.queued == 2, "two come")
    client.quiet()

    assert (receiver.queued, receiver.credit) == (2, 2)  # proton's credit counts what was not taken out


def test_draining_uses_up_the_credit(client):
    put(client, "a")
    receiver = client.receiver("cpu")

    receiver.drain(10)
    client.until(lambda: receiver.queued == 1 and receiver.credit == 1, "the credit is used up")

    assert client.receive(receiver)[1].body == "a"
    put(client, "b")
    client.quiet()
    assert receiver.queued == 0


def test_a_delivery_says_how_it_is_locked(client):
    put(client, "a")
    receiver = client.receiver("cpu")
    receiver.flow(1)
    before = time.time()

    delivery, message = client.receive(receiver)

    assert message.delivery_count == 0
    assert annotation(message, "x-opt-sequence-number") == 1
    assert before < annotation(message, "x-opt-locked-until") / 1000 < time.time() + 1.01
    assert lock_token(delivery).version == 4
    assert not delivery.settled


def test_settled_on_delivery_is_gone_at_once(client, bus):
    put(client, "a")
    receiver = client.receiver("cpu", settled=True)
    receiver.flow(1)

    delivery, _ = client.receive(receiver)

    assert delivery.settled
    assert bus.counts("cpu")["total"] == 0


@pytest.mark.parametrize(("state", "failed", "count"), [(Delivery.RELEASED, False, 0), (Delivery.MODIFIED, True, 1)])
def test_released_and_modified_come_back_counted_as_they_should(client, state, failed, count):
    put(client, "a")
    receiver = client.receiver("cpu")
    receiver.flow(1)
    delivery, _ = client.receive(receiver)
    delivery.local.failed = failed

    assert client.settle(delivery, state) == state
    receiver.flow(1)
    _, again = client.receive(receiver)

    assert (again.delivery_count, again.body) == (count, "a")


def test_rejected_goes_to_the_dead_letters_and_the_answer_has_no_error(client, bus):
    put(client, "a", properties={"mine": 1})
    receiver = client.receiver("cpu")
    receiver.flow(1)
    delivery, _ = client.receive(receiver)
    delivery.local.condition = condition("com.microsoft:dead-letter", {symbol("DeadLetterReason"): "bad"})

    assert client.settle(delivery, Delivery.REJECTED) == Delivery.REJECTED
    assert delivery.remote.condition is None
    graves = client.receiver("cpu/$DeadLetterQueue")
    graves.flow(1)
    _, buried = client.receive(graves)

    assert buried.properties == {"mine": 1, "DeadLetterReason": "bad"}
    assert annotation(buried, "x-opt-deadletter-source") == "cpu"


def condition(name, info):
    from proton import Condition

    return Condition(name, None, info)


def test_a_lock_that_ended_is_said_when_its_message_is_settled(client, bus):
    put(client, "a")
    receiver = client.receiver("cpu")
    receiver.flow(1)
    delivery, _ = client.receive(receiver)
    client.until(lambda: bus.look()["passed"]["push"] == 1 and receiver.credit == 0, "it is here")
    receiver.flow(1)
    _, again = client.receive(receiver)

    assert again.delivery_count == 1
    assert client.settle(delivery, Delivery.ACCEPTED) == Delivery.REJECTED
    assert delivery.remote.condition.name == "com.microsoft:message-lock-lost"
    assert bus.counts("cpu")["active"] == 1


def test_a_message_that_is_never_completed_is_set_aside_after_as_many_deliveries_as_are_allowed(client, bus):
    put(client, "a")
    receiver = client.receiver("cpu")
    for _ in range(3):
        receiver.flow(1)
        delivery, _ = client.receive(receiver)
        delivery.local.failed = True
        client.settle(delivery, Delivery.MODIFIED)

    assert bus.counts("cpu") == {"active": 0, "deferred": 0, "scheduled": 0, "dead": 1, "total": 1}


def test_receivers_take_turns(client):
    receivers = [client.receiver("cpu"), client.receiver("cpu")]
    for receiver in receivers:
        receiver.flow(2)
    client.quiet()

    put(client, *"abcd")
    client.until(lambda: sum(one.queued for one in receivers) == 4, "all are delivered")

    assert [one.queued for one in receivers] == [2, 2]


# --- management


def test_a_lock_can_be_kept_and_a_message_completed_by_its_token_from_another_link(client, bus):
    put(client, "a")
    receiver = client.receiver("cpu")
    receiver.flow(1)
    delivery, _ = client.receive(receiver)
    tokens = Array(UNDESCRIBED, Data.UUID, lock_token(delivery))
    receiver.close()
    call = client.managed("cpu")

    renewed = call("renew-lock", {"lock-tokens": tokens})
    done = call("update-disposition", {"disposition-status": "completed", "lock-tokens": tokens})
    late = call("renew-lock", {"lock-tokens": tokens})

    assert renewed.properties["statusCode"] == done.properties["statusCode"] == 200
    assert renewed.body["expirations"].elements[0] / 1000 > time.time()
    assert late.properties["statusCode"] == 410
    assert late.properties["errorCondition"] == "com.microsoft:message-lock-lost"
    assert bus.counts("cpu")["total"] == 0


def test_peeking_locks_nothing(client, bus):
    put(client, "a", "b")
    call = client.managed("cpu")

    reply = call("peek-message", {"from-sequence-number": 2, "message-count": 5})
    empty = call("peek-message", {"from-sequence-number": 3, "message-count": 5})

    message = Message()
    message.decode(bytes(reply.body["messages"][0]["message"]))
    assert (len(reply.body["messages"]), message.body) == (1, "b")
    assert empty.properties["statusCode"] == 204


def test_what_is_not_known_is_said_and_hurts_nobody(client):
    call = client.managed("cpu")

    assert call("nonsense", {}).properties["statusCode"] == 501
    assert call("renew-lock", {}).properties["statusCode"] == 400
    assert call("cancel-scheduled-message", {"sequence-numbers": [7]}).properties["statusCode"] == 404


def test_bytes_that_are_not_amqp_end_their_connection_and_no_other(client, bus):
    import socket

    with socket.create_connection(("127.0.0.1", bus.amqp_port), timeout=5) as other:
        other.sendall(b"AMQP\x03\x01\x00\x00" + b"\xff" * 64)
        while other.recv(4096):
            pass
    put(client, "a")
    assert bus.counts("cpu")["active"] == 1
