"""What every queue promises (dagkit.queues.base), whatever is behind it."""

from __future__ import annotations

import itertools
import json
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagkit.errors import PayloadTooLarge
from dagkit.queues.base import OutMessage

#: Their clocks cannot be set by a test, and they have no place to announce workers.
services_keep_their_own_time = pytest.mark.not_for("storage_queue", "service_bus")


def text_of(one):
    """Like the texts that dagkit sends: services that have no ids of ours find it in there."""
    return json.dumps({"text": f"text of {one}", "id": one})


def send(queue, *ids):
    queue.send_batch([OutMessage(one, text_of(one)) for one in ids])


def ids(deliveries):
    return [delivery.id for delivery in deliveries]


def test_messages_are_received_once_and_in_order_where_there_is_one(queue, keeps_order):
    send(queue, "a", "b")
    send(queue, "c")

    first, rest = queue.receive(1, 0, 30), queue.receive(10, 0, 30)

    received = first + rest
    assert (ids(received) if keeps_order else sorted(ids(received))) == ["a", "b", "c"]
    assert [delivery.text for delivery in received] == [text_of(one) for one in ids(received)]
    assert {delivery.count for delivery in first + rest} == {1}


def test_an_empty_queue_gives_nothing_after_the_wait(queue):
    started = time.monotonic()

    assert queue.receive(10, 0.05, 30) == []

    assert time.monotonic() - started >= 0.05


def test_a_received_message_is_hidden_until_it_is_completed(queue):
    send(queue, "a", "b")
    (first,) = queue.receive(1, 0, 30)

    assert {first.id, *ids(queue.receive(10, 0, 30))} == {"a", "b"}
    assert queue.receive(10, 0, 30) == []
    queue.complete([first])
    assert queue.stats().locked == 1


@services_keep_their_own_time
def test_a_message_whose_lock_ran_out_is_delivered_again(queue, clock):
    send(queue, "a")
    (first,) = queue.receive(1, 0, 30)
    clock.advance(31)

    (second,) = queue.receive(1, 0, 30)

    assert (second.id, second.text, second.count) == ("a", text_of("a"), 2)
    queue.complete([first])  # its lock is lost: ignored
    assert queue.extend(first, 30) is None
    assert queue.stats().locked == 1
    queue.complete([second])
    assert queue.stats().locked == queue.stats().waiting == 0


@services_keep_their_own_time
def test_an_abandoned_message_with_a_lost_lock_stays_with_its_new_owner(queue, clock):
    send(queue, "a")
    (first,) = queue.receive(1, 0, 30)
    clock.advance(31)
    queue.receive(1, 0, 30)

    queue.abandon([first])

    assert queue.receive(1, 0, 30) == []


@services_keep_their_own_time
def test_a_stale_receipt_deletes_nothing_even_beside_a_good_one(queue, clock):
    send(queue, "a", "b")
    (stale,) = queue.receive(1, 0, 10)
    clock.advance(11)
    fresh = {delivery.id: delivery for delivery in queue.receive(2, 0, 30)}

    queue.complete([stale, fresh["b"]])

    assert queue.stats().locked == 1
    assert queue.extend(fresh["a"], 30) is not None


@services_keep_their_own_time
def test_an_extended_lock_lasts_from_then_on(queue, clock):
    send(queue, "a")
    (delivery,) = queue.receive(1, 0, 30)
    clock.advance(20)

    extended = queue.extend(delivery, 30)
    clock.advance(20)

    assert queue.receive(1, 0, 30) == []
    assert (extended.id, extended.text, extended.count) == ("a", text_of("a"), 1)
    assert extended.locked_until > delivery.locked_until
    queue.complete([extended])
    assert queue.stats().locked == 0


def test_a_delivery_knows_the_end_of_its_lock(queue):
    send(queue, "a")
    before = time.monotonic()
    (delivery,) = queue.receive(1, 0, 30)

    assert before + 30 - 0.001 <= delivery.locked_until <= time.monotonic() + 30


def test_an_abandoned_message_comes_back_at_once_in_its_old_place(queue, keeps_order):
    send(queue, "a", "b")
    (first,) = queue.receive(1, 0, 30)
    queue.abandon([first])

    again = [(delivery.id, delivery.count) for delivery in queue.receive(2, 0, 30)]

    assert sorted(again, key=lambda one: -one[1])[0] == (first.id, 2)
    assert len(again) == 2
    assert not keeps_order or again == [("a", 2), ("b", 1)]


@services_keep_their_own_time
def test_an_abandoned_message_is_not_hidden_by_a_clock_that_is_set_back_a_little(queue, clock):
    send(queue, "a")
    queue.abandon(queue.receive(1, 0, 30))
    clock.advance(-0.5)

    assert ids(queue.receive(1, 0, 30)) == ["a"]


@services_keep_their_own_time
def test_an_abandoned_message_can_be_delayed(queue, clock):
    send(queue, "a")
    queue.abandon(queue.receive(1, 0, 30), delay_s=5)

    assert queue.receive(1, 0, 30) == []
    assert queue.stats().waiting + queue.stats().locked == 1
    clock.advance(5.1)
    assert ids(queue.receive(1, 0, 30)) == ["a"]


def test_the_same_id_sent_again_is_at_most_one_more_delivery_and_after_completion_a_new_message(queue, forgets_ids):
    send(queue, "a", "b")
    send(queue, "b", "c")
    received = queue.receive(10, 0, 30)
    assert set(ids(received)) == {"a", "b", "c"}
    queue.complete(received)

    send(queue, "a")

    assert ids(queue.receive(10, 0, 30)) == (["a"] if forgets_ids else [])


@services_keep_their_own_time
def test_a_clock_that_is_set_back_hides_no_message_for_longer_than_was_asked(queue, clock):
    send(queue, "locked", "new")
    queue.receive(1, 0, 30)
    clock.advance(-3600)
    send(queue, "later")

    assert ids(queue.receive(10, 0, 30)) == ["new", "later"]
    assert queue.receive(10, 0, 30) == []
    clock.advance(31)
    assert ids(queue.receive(1, 0.5, 30)) == ["locked"]


def test_queues_do_not_mix(transport, keeps_order):
    odd = "gpu/a100 ü'\"" if keeps_order else "gpu-a100"  # a service has rules for names
    cpu, gpu = transport.open("cpu"), transport.open(odd)
    send(cpu, "a")
    send(gpu, "a")

    assert len(cpu.receive(10, 0, 30)) == len(gpu.receive(10, 0, 30)) == 1
    assert transport.names() == ["cpu", odd]
    assert cpu.name == "cpu"


def test_a_queue_opened_twice_is_one_queue(transport):
    send(transport.open("cpu"), "a")

    assert ids(transport.open("cpu").receive(1, 0, 30)) == ["a"]
    assert transport.names() == ["cpu"]


@services_keep_their_own_time
def test_stats_say_how_the_queue_stands(queue, clock):
    assert (queue.stats().waiting, queue.stats().locked, queue.stats().oldest_age_s) == (0, 0, None)
    send(queue, "a")
    clock.advance(10)
    send(queue, "b", "c")
    queue.receive(1, 0, 30)
    clock.advance(5)

    stats = queue.stats()

    assert (stats.name, stats.waiting, stats.locked) == ("cpu", 2, 1)
    assert stats.oldest_age_s == pytest.approx(5)
    clock.advance(30)
    assert (queue.stats().waiting, queue.stats().locked) == (3, 0)


def test_empty_batches_are_fine(queue):
    queue.send_batch([])
    queue.complete([])
    queue.abandon([])

    assert queue.stats().waiting == 0


def test_a_text_over_the_limit_is_refused_before_anything_is_sent(queue):
    with pytest.raises(PayloadTooLarge):
        queue.send_batch([OutMessage("small", "x"), OutMessage("big", "ä" * (queue.max_text_bytes // 2 + 1))])

    assert queue.stats().waiting == 0


numbers = itertools.count()
texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=200)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(texts, min_size=1, max_size=5))
def test_any_text_arrives_as_it_was_sent(queue, batch):
    queue.send_batch([OutMessage(f"m{next(numbers)}", text) for text in batch])

    received = queue.receive(10, 0, 30)
    queue.complete(received)

    assert sorted(delivery.text for delivery in received) == sorted(batch)


def test_a_receiver_that_waits_gets_what_is_sent_meanwhile(queue):
    got = []
    receiver = threading.Thread(target=lambda: got.extend(queue.receive(1, 10, 30)))
    receiver.start()

    send(queue, "a")
    receiver.join(10)

    assert ids(got) == ["a"]


@services_keep_their_own_time
def test_a_receiver_that_waits_gets_a_message_whose_lock_runs_out(queue, clock):
    send(queue, "a")
    queue.receive(1, 0, 30)
    got = []
    receiver = threading.Thread(target=lambda: got.extend(queue.receive(1, 10, 30)))
    receiver.start()

    clock.advance(31)
    receiver.join(10)

    assert [(delivery.id, delivery.count) for delivery in got] == [("a", 2)]


def test_closing_the_transport_wakes_those_who_wait(transport):
    queue, got = transport.open("cpu"), []
    receiver = threading.Thread(target=lambda: got.append(queue.receive(1, 60, 30)))
    receiver.start()

    transport.close()
    receiver.join(10)

    assert not receiver.is_alive()


def test_every_message_goes_to_exactly_one_of_many_receivers(queue):
    total, received, lock = 200, [], threading.Lock()

    def work():
        while taken := queue.receive(3, 0.2, 600):
            queue.complete(taken)
            with lock:
                received.extend(ids(taken))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for start in range(0, total, 10):
        send(queue, *(f"m{number}" for number in range(start, start + 10)))
    for thread in threads:
        thread.join(60)

    assert sorted(received) == sorted(f"m{number}" for number in range(total))


@services_keep_their_own_time
def test_workers_are_known_until_their_registration_runs_out(transport, clock):
    transport.register_worker("cpu", "host-a:1", 30)
    transport.register_worker("cpu", "host-b:2", 60)
    transport.register_worker("gpu", "host-c:3", 60)

    assert transport.workers("cpu") == ["host-a:1", "host-b:2"]
    clock.advance(40)
    assert transport.workers("cpu") == ["host-b:2"]
    transport.register_worker("cpu", "host-a:1", 30)
    assert transport.workers("cpu") == ["host-a:1", "host-b:2"]
    assert transport.workers("none") == []
