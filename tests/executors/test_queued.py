"""The queued executor: messages out by queue, completions in, nothing lost and nothing of others taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.queued import QueuedExecutor, completion_queue_name
from dagkit.model.messages import AttemptKey, Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues.base import OutMessage, Queue
from dagkit.testing import MemoryStore, MemoryTransport


class Broken:
    """A queue that cannot be sent to for now."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self.name, self.max_text_bytes, self.is_down = queue, queue.name, queue.max_text_bytes, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        if self.is_down:
            raise BackendError(f"{self.name} is down")
        self._queue.send_batch(messages)


class Transport(MemoryTransport):
    """Queues of which some are broken or carry little."""

    def __init__(self, broken: Sequence[str] = (), max_text_bytes: int | None = None) -> None:
        super().__init__()
        self.limit = max_text_bytes
        self.broken = {name: Broken(MemoryTransport.open(self, name)) for name in broken}

    def open(self, name: str) -> Any:
        if name in self.broken:
            return self.broken[name]
        queue = super().open(name)
        if self.limit is not None:
            queue.max_text_bytes = self.limit
        return queue


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def message(task: str = "a", queue: str = "cpu", run: str = "w", **fields: Any) -> TaskMessage:
    return TaskMessage(run, task, fields.pop("attempt", 1), 0, queue, fields.pop("kwargs", {"cmd": "true"}), **fields)


def sent(transport: MemoryTransport, queue: str) -> list[TaskMessage]:
    return [TaskMessage.from_text(d.text) for d in MemoryTransport.open(transport, queue).receive(100, 0, 30)]


def report(transport: MemoryTransport, *completions: Completion) -> None:
    queue = transport.open(completion_queue_name("memory:"))
    queue.send_batch([OutMessage(f"{c.workflow_id}/{c.task}", c.to_text()) for c in completions])


def done(task: str = "a", run: str = "w") -> Completion:
    return Completion(run, task, True, output_ref="1", attempt=1, generation=0)


def test_each_queue_gets_its_messages_in_order(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)

    taken = executor.submit([message("a"), message("b", "gpu"), message("c", upstream={"a": "1", "b": None})])

    assert taken == 3
    assert [m.task for m in sent(transport, "gpu")] == ["b"]
    received = sent(transport, "cpu")
    assert [m.task for m in received] == ["a", "c"]
    assert received[1].upstream == {"a": "1", "b": None}
    assert received[1].key == AttemptKey("w", "c", 0, 1)


def test_a_message_that_is_in_flight_is_taken_and_not_sent_again(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    executor.submit([message("a")])
    sent(transport, "cpu")

    assert executor.submit([message("a"), message("b")]) == 2

    assert [m.task for m in sent(transport, "cpu")] == ["b"]


def test_a_queue_that_is_down_does_not_hold_up_the_others(store: MemoryStore) -> None:
    transport = Transport(broken=["gpu"])
    executor = QueuedExecutor(store, transport)

    assert executor.submit([message("a"), message("b", "gpu"), message("c")]) == 1
    assert [m.task for m in sent(transport, "cpu")] == ["a", "c"]

    transport.broken["gpu"].is_down = False
    assert executor.submit([message("b", "gpu"), message("c")]) == 2
    assert [m.task for m in sent(transport, "gpu")] == ["b"]
    assert sent(transport, "cpu") == []


def test_a_service_that_takes_nothing_is_an_error(store: MemoryStore) -> None:
    executor = QueuedExecutor(store, Transport(broken=["gpu"]))

    with pytest.raises(BackendError, match="gpu is down"):
        executor.submit([message("a", "gpu")])


def test_completions_come_back_and_are_deleted_when_acknowledged(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    executor.submit([message("a")])
    report(transport, done())

    (completion,) = executor.poll(1.0)

    assert isinstance(completion, Completion)
    assert (completion.task, completion.success, completion.output_ref, completion.attempt) == ("a", True, "1", 1)
    completions = transport.open(completion_queue_name("memory:"))
    assert completions.stats().locked == 1
    executor.acknowledge([completion])
    executor.close()
    assert completions.stats().locked == 0


def test_a_completion_that_cannot_be_read_is_deleted_and_counted(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    transport.open(completion_queue_name("memory:")).send_batch([OutMessage("x", "{}")])
    report(transport, done())

    assert [c.task for c in executor.poll(1.0)] == ["a"]
    assert executor.counters["poison"] == 1
    assert transport.open(completion_queue_name("memory:")).stats().locked == 1


def test_the_completion_of_a_run_that_nobody_knows_is_handed_on_as_an_orphan(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    report(transport, done(run="gone"))

    assert [c.workflow_id for c in executor.poll(1.0)] == ["gone"]


def test_the_completion_of_a_run_that_somebody_else_drives_is_left_to_them(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    store.acquire_lease("run/theirs", "another coordinator", 60)
    report(transport, done(run="theirs"))

    assert executor.poll(0.0) == []
    assert executor.counters["put_back"] == 1
    assert transport.open(completion_queue_name("memory:")).stats().locked == 0


def test_runs_that_were_recovered_are_our_own(store: MemoryStore) -> None:
    transport = Transport()
    executor = QueuedExecutor(store, transport)
    store.acquire_lease("run/w", "this coordinator", 60)

    assert executor.recover([message("a")]) == []
    report(transport, done())

    assert [c.task for c in executor.poll(1.0)] == ["a"]


def test_a_message_that_no_queue_can_carry_fails_its_attempt_and_holds_up_nobody(store: MemoryStore) -> None:
    transport = Transport(max_text_bytes=400)
    executor = QueuedExecutor(store, transport)

    assert executor.submit([message("a" * 300), message("b")]) == 2

    (refused,) = executor.poll(0.0)
    assert isinstance(refused, Completion)
    assert (refused.task, refused.success, refused.kind) == ("a" * 300, False, FailureKind.CONFIG)
    assert "400" in (refused.error or "")
    assert [m.task for m in sent(transport, "cpu")] == ["b"]


def test_what_is_too_large_for_a_message_goes_through_the_store(store: MemoryStore) -> None:
    transport = Transport(max_text_bytes=1000)
    executor = QueuedExecutor(store, transport)
    upstream = {f"parent-{number}": "1" for number in range(200)}

    assert executor.submit([message("a", upstream=upstream), message("b", kwargs={"cmd": "x" * 5000})]) == 2

    deliveries = transport.open("cpu").receive(10, 0, 30)
    first, second = (TaskMessage.from_text(d.text, store.get_output) for d in deliveries)
    assert first.upstream == upstream
    assert second.kwargs == {"cmd": "x" * 5000}
    assert max(len(delivery.text) for delivery in deliveries) <= 1000


def test_a_wait_ends_when_it_is_interrupted(store: MemoryStore) -> None:
    executor = QueuedExecutor(store, Transport())
    threading.Timer(0.05, executor.interrupt).start()
    began = time.monotonic()

    assert executor.poll(30.0) == []
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("url", "name"),
    [("azure://acct/MyProj", "myproj-workflow-completions"), ("sqlite:/data/.dagkit", "workflow-completions")],
)
def test_the_completion_queue_is_called_after_the_prefix(url: str, name: str) -> None:
    assert completion_queue_name(url) == name


def test_a_queue_that_the_service_will_never_take_fails_its_tasks_and_nothing_else(store: MemoryStore) -> None:
    class Strict(MemoryTransport):
        def open(self, name: str) -> Any:
            if name == "Bad Name":
                raise ConfigError(f"queue {name!r}: not a name")
            return super().open(name)

    transport = Strict()
    executor = QueuedExecutor(store, transport)

    taken = executor.submit([message("a", "Bad Name"), message("b")])
    (refused,) = executor.poll(0)

    assert taken == 2
    assert [one.task for one in sent(transport, "cpu")] == ["b"]
    assert (refused.task, refused.success, refused.kind, refused.attempt) == ("a", False, FailureKind.CONFIG, 1)
    assert "Bad Name" in refused.error
