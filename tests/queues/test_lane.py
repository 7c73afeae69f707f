"""A lane keeps one handler of an SDK to one thread, and keeps nobody waiting for longer than was agreed."""

from __future__ import annotations

import threading

import pytest

from dagkit.queues.service_bus.lane import Lane
from services.processes import wait_until


class Handler:
    """Notes who used it."""

    def __init__(self):
        self.threads, self.closed = set(), threading.Event()

    def use(self):
        self.threads.add(threading.current_thread())
        return self

    def close(self):
        self.closed.set()


@pytest.fixture
def made():
    return []


@pytest.fixture
def lane(made):
    def connect():
        made.append(Handler())
        return made[-1]

    lane = Lane("test", connect)
    yield lane
    lane.shut()
    lane.join()


def test_one_handler_is_used_by_one_thread_whoever_calls(lane, made):
    callers = [threading.Thread(target=lambda: lane.call(Handler.use, 5)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(5)

    (handler,) = made
    assert len(handler.threads) == 1
    assert handler.threads.isdisjoint(callers)


def test_calls_are_done_in_the_order_in_which_they_came(lane):
    gate, done = threading.Event(), []
    first = threading.Thread(target=lambda: lane.call(lambda _: gate.wait(5), 5))
    first.start()
    wait_until(lambda: lane._thread and not lane._jobs, "the first call is under way")
    others = [threading.Thread(target=lambda n=n: lane.call(lambda _: done.append(n), 5)) for n in range(5)]
    for number, other in enumerate(others):
        other.start()
        wait_until(lambda n=number: len(lane._jobs) == n + 1, "the call waits")
    gate.set()
    for thread in (first, *others):
        thread.join(5)

    assert done == [0, 1, 2, 3, 4]


def test_an_error_is_the_callers_and_the_next_call_gets_a_new_handler(lane, made):
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda _: 1 // 0, 5)

    assert lane.call(Handler.use, 5) is made[1]
    assert made[0].closed.wait(5)


def test_a_handler_that_cannot_be_made_is_the_callers_error_too():
    tries = []

    def connect():
        tries.append(1)
        raise ConnectionError("no")

    lane = Lane("test", connect)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            lane.call(Handler.use, 5)
    lane.shut()

    assert len(tries) == 2


def test_a_call_that_does_not_come_back_is_left_behind(lane, made):
    hang = threading.Event()

    with pytest.raises(TimeoutError):
        lane.call(lambda _: hang.wait(30), 0.1)

    assert lane.call(Handler.use, 5) is made[1]
    hang.set()
    assert made[0].closed.wait(5)
    assert not made[1].closed.is_set()


def test_a_call_that_waited_behind_one_that_hangs_is_done_on_a_new_thread(lane, made):
    hang, begun = threading.Event(), threading.Event()

    def stuck(_):
        begun.set()
        hang.wait(30)

    def give_up():
        with pytest.raises(TimeoutError):
            lane.call(stuck, 0.3)

    first = threading.Thread(target=give_up)
    first.start()
    begun.wait(5)

    assert lane.call(Handler.use, 5) is made[1]
    first.join(5)
    hang.set()


def test_a_call_that_gave_up_while_it_waited_is_not_done_later(lane):
    gate, begun, done = threading.Event(), threading.Event(), []

    def slow(_):
        begun.set()
        gate.wait(5)

    first = threading.Thread(target=lambda: lane.call(slow, 5))
    first.start()
    begun.wait(5)
    with pytest.raises(TimeoutError):
        lane.call(lambda _: done.append(1), 0.05)
    gate.set()
    first.join(5)
    lane.call(Handler.use, 5)

    assert done == []


def test_a_timeout_that_the_work_itself_raises_leaves_nobody_behind(lane, made):
    def late(_):
        raise TimeoutError("from inside")

    with pytest.raises(TimeoutError, match="from inside"):
        lane.call(late, 5)

    thread = lane._thread
    lane.call(Handler.use, 5)
    assert lane._thread is thread


def test_a_handler_is_replaced_after_as_many_uses_as_it_may_have():
    made = []

    def connect():
        made.append(Handler())
        return made[-1]

    lane = Lane("test", connect, max_uses=3)
    for _ in range(7):
        lane.call(Handler.use, 5)
    lane.shut()
    lane.join()

    assert len(made) == 3
    assert all(handler.closed.is_set() for handler in made)


def test_a_lane_that_is_shut_takes_no_calls_and_closes_its_handler(lane, made):
    lane.call(Handler.use, 5)
    lane.shut()
    lane.shut()
    lane.join()

    assert made[0].closed.is_set()
    with pytest.raises(TimeoutError, match="closed"):
        lane.call(Handler.use, 5)
