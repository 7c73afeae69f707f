"""The executor that a test directs keeps what the port promises, as far as nothing has to run for it."""

from __future__ import annotations

import time

import pytest

from dagkit.executors.base import Executor
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.testing import FakeExecutor


def message(task: str, attempt: int = 1) -> TaskMessage:
    return TaskMessage("wf1", task, attempt, 0, "default", {"cmd": "true"})


@pytest.fixture
def fake() -> FakeExecutor:
    return FakeExecutor()


def test_it_is_an_executor(fake: FakeExecutor) -> None:
    executor: Executor = fake

    assert executor.submit([message("a"), message("b")]) == 2
    assert fake.tasks_running() == ["a", "b"]


def test_a_message_in_flight_is_taken_and_changes_nothing(fake: FakeExecutor) -> None:
    assert fake.submit([message("a")]) == 1
    assert fake.submit([message("a")]) == 1

    assert len(fake.submitted) == 1


def test_it_takes_as_much_as_it_has_room_for() -> None:
    fake = FakeExecutor(room=2)

    assert fake.capacity() == 2
    assert fake.submit([message("a"), message("b"), message("c")]) == 2
    assert fake.capacity() == 0


def test_each_end_is_reported_once_in_order(fake: FakeExecutor) -> None:
    fake.submit([message("a"), message("b")])
    fake.begin("b", 1.0)
    fake.fail("b", "ValueError: no")
    fake.succeed("a", "1")

    begun, failed, succeeded = fake.poll(0.0)

    assert isinstance(begun, Started)
    assert isinstance(failed, Completion)
    assert isinstance(succeeded, Completion)
    assert (failed.task, failed.kind, failed.error) == ("b", FailureKind.USER, "ValueError: no")
    assert (succeeded.success, succeeded.output_ref, succeeded.attempt) == (True, "1", 1)
    assert fake.poll(0.0) == []


def test_what_is_stopped_fails_for_that_and_what_nobody_knows_does_nothing(fake: FakeExecutor) -> None:
    fake.submit([message("a"), message("b")])

    fake.cancel([message("a").key, AttemptKey("wf1", "never", 0, 1)], FailureKind.TIMEOUT)

    (stopped,) = fake.poll(0.0)
    assert isinstance(stopped, Completion)
    assert (stopped.task, stopped.kind) == ("a", FailureKind.TIMEOUT)
    assert fake.tasks_running() == ["b"]


def test_after_a_restart_every_attempt_is_lost_or_goes_on(fake: FakeExecutor) -> None:
    fake.survivors.add(message("a").key)

    lost = fake.recover([message("a"), message("b")])

    assert [(one.task, one.kind) for one in lost] == [("b", FailureKind.LOST)]
    assert fake.tasks_running() == ["a"]


def test_it_never_waits(fake: FakeExecutor) -> None:
    began = time.monotonic()
    fake.poll(30.0)

    assert time.monotonic() - began < 5
