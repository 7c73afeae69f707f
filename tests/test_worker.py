"""The queue worker: over queues in memory with tasks that end when the test says so, and over real commands."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dagkit.errors import BackendError
from dagkit.executors.queued import completion_queue_name
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues.base import Delivery, OutMessage, Queue
from dagkit.settings import WorkerSettings
from dagkit.testing import MemoryStore, MemoryTransport
from dagkit.testing.executor import FakeExecutor
from dagkit.worker import Outcome, Worker

COMPLETIONS = completion_queue_name("memory:")


class Hands(FakeExecutor):
    """A fake executor that a test and a worker may use from two threads."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._changed = threading.Condition(threading.RLock())
        self.stubborn = False
        """Tasks do not mind being stopped."""

    def _report(self, task: str, **outcome: Any) -> Completion:
        with self._changed:
            self._changed.notify_all()
            return super()._report(task, **outcome)

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().submit(messages)

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        with self._changed:
            if not self.stubborn:
                super().cancel(keys, kind)

    def poll(self, wait_s: float) -> list[Completion | Started]:
        with self._changed:
            if not self._reports:
                self._changed.wait(min(wait_s, 0.01))
            return super().poll(0.0)

    def capacity(self) -> int | None:
        with self._changed:
            return super().capacity()

    def tasks_running(self) -> list[str]:
        with self._changed:
            return super().tasks_running()


class Bench:
    """A worker in a thread, the queue it serves and the completions it reports."""

    def __init__(self, *, transport: MemoryTransport | None = None, room: int = 2, **settings: Any) -> None:
        self.store, self.transport = MemoryStore(), transport or MemoryTransport()
        self.hands = Hands(room=room)
        self.queue, self.completions = self.transport.open("gpu"), self.transport.open(COMPLETIONS)
        self.worker = Worker(
            "gpu", self.store, self.transport, WorkerSettings(**{"grace_s": 0.1, **settings}), self.hands
        )
        self.outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.outcome = self.worker.run()

    @contextmanager
    def serving(self) -> Iterator[Bench]:
        self._thread.start()
        try:
            yield self
        finally:
            self.worker.stop()
            self.ended()
            self.store.close()

    def ended(self) -> Outcome:
        self._thread.join(10)
        assert self.outcome is not None, "the worker did not stop"
        return self.outcome

    def send(self, *tasks: str, run: str = "w", attempt: int = 1, **kwargs: Any) -> None:
        messages = [TaskMessage(run, task, attempt, 0, "gpu", kwargs or {"cmd": "true"}) for task in tasks]
        self.queue.send_batch([OutMessage(message.id, message.to_text()) for message in messages])

    def reported(self, count: int = 1) -> list[Completion]:
        """So many completions, in the order they were reported."""
        found: list[Completion] = []

        def enough() -> bool:
            for delivery in self.completions.receive(10, 0.01, 30):
                found.append(Completion.from_text(delivery.text))
                self.completions.complete([delivery])
            return len(found) >= count

        wait_until(enough)
        assert len(found) == count
        return found

    def running(self, *tasks: str) -> None:
        wait_until(lambda: self.hands.tasks_running() == sorted(tasks))

    def left(self) -> int:
        stats = self.queue.stats()
        return stats.waiting + stats.locked


def wait_until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_a_task_is_run_reported_and_only_then_deleted() -> None:
    with Bench().serving() as bench:
        bench.send("a")
        bench.running("a")
        assert bench.left() == 1

        bench.hands.succeed("a", '{"x": 1}')

        (completion,) = bench.reported()
        assert (completion.workflow_id, completion.task, completion.attempt, completion.generation) == ("w", "a", 1, 0)
        assert (completion.success, completion.output_ref) == (True, '{"x": 1}')
        wait_until(lambda: bench.left() == 0)


def test_a_failure_carries_its_kind_and_error() -> None:
    with Bench().serving() as bench:
        bench.send("a", attempt=3)
        bench.running("a")
        bench.hands.fail("a", "ValueError: no", FailureKind.MEMORY)

        (completion,) = bench.reported()

        assert (completion.success, completion.error, completion.kind) == (False, "ValueError: no", FailureKind.MEMORY)
        assert completion.attempt == 3


def test_no_more_messages_are_taken_than_can_run() -> None:
    with Bench(room=2).serving() as bench:
        bench.send("a", "b", "c", "d")
        bench.running("a", "b")

        assert bench.queue.stats().waiting == 2
        bench.hands.succeed("a")
        bench.running("b", "c")
        assert bench.queue.stats().waiting == 1


def test_the_worker_announces_itself() -> None:
    with Bench().serving() as bench:
        wait_until(lambda: bench.transport.workers("gpu") == [bench.worker.name])


# --- cancelling


def test_a_run_that_is_cancelled_before_its_task_starts_reports_so_without_running_it() -> None:
    bench = Bench()
    create(bench.store, "w")
    bench.store.request_cancel("w")
    with bench.serving():
        bench.send("a")

        (completion,) = bench.reported()

        assert (completion.kind, completion.success) == (FailureKind.CANCELLED, False)
        assert bench.hands.submitted == []
        wait_until(lambda: bench.left() == 0)


def test_only_the_tasks_of_the_cancelled_run_are_stopped() -> None:
    bench = Bench(cancel_poll_s=0.02)
    create(bench.store, "w")
    create(bench.store, "v")
    with bench.serving():
        bench.send("a")
        bench.send("b", run="v")
        bench.running("a", "b")

        bench.store.request_cancel("w")

        (completion,) = bench.reported()
        assert (completion.workflow_id, completion.kind) == ("w", FailureKind.CANCELLED)
        bench.running("b")
        bench.hands.succeed("b")


def test_an_attempt_that_the_coordinator_has_given_up_is_stopped() -> None:
    bench = Bench(cancel_poll_s=0.02)
    create(bench.store, "w", a={"state": "failed", "attempt_no": 1, "kind": "timeout"})
    with bench.serving():
        bench.send("a")

        (completion,) = bench.reported()

        assert completion.kind is FailureKind.TIMEOUT


# --- locks


def test_a_message_that_comes_back_while_its_task_is_being_stopped_is_not_lost() -> None:
    """It was once taken for a duplicate of the task that was being killed, and deleted."""
    transport = FlakyTransport()
    with Bench(transport=transport, lock_s=0.2).serving() as bench:
        bench.hands.stubborn = True
        bench.send("a")
        bench.running("a")
        transport.flaky["gpu"].refuses_locks = True
        wait_until(lambda: bench.worker.counters["locks_lost"] == 1)
        transport.flaky["gpu"].refuses_locks = False
        wait_until(lambda: bench.queue.stats().locked == 0 or len(bench.hands.submitted) > 1)

        bench.hands.stubborn = False
        bench.hands.fail("a", kind=FailureKind.LOST)

        wait_until(lambda: len(bench.hands.submitted) == 2)
        bench.hands.succeed("a")
        assert len(bench.reported()) == 1


def test_locks_are_renewed_while_a_task_runs() -> None:
    with Bench(lock_s=0.3).serving() as bench:
        bench.send("a")
        bench.running("a")
        until = time.monotonic() + 1.0

        wait_until(lambda: bench.queue.receive(1, 0.05, 30) == [] and time.monotonic() > until)
        bench.hands.succeed("a")

        assert [completion.task for completion in bench.reported()] == ["a"]


class FlakyQueue:
    """A queue whose calls can be made to fail."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self.refuses_locks, self.send_failures = queue, False, 0
        self.deletion_failures = 0
        self.name, self.max_text_bytes = queue.name, queue.max_text_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        return None if self.refuses_locks else self._queue.extend(delivery, lock_s)

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        if self.deletion_failures:
            self.deletion_failures -= 1
            raise BackendError("the connection was cut")
        self._queue.complete(deliveries)

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        if self.send_failures:
            self.send_failures -= 1
            raise BackendError("the service is down")
        self._queue.send_batch(messages)


class FlakyTransport(MemoryTransport):
    def __init__(self) -> None:
        super().__init__()
        self.flaky: dict[str, FlakyQueue] = {}

    def open(self, name: str) -> Any:
        if name not in self.flaky:
            self.flaky[name] = FlakyQueue(super().open(name))
        return self.flaky[name]


def test_a_task_whose_lock_is_lost_is_stopped_and_nothing_is_said_about_it() -> None:
    transport = FlakyTransport()
    with Bench(transport=transport, lock_s=0.2).serving() as bench:
        bench.send("a")
        bench.running("a")
        transport.flaky["gpu"].refuses_locks = True

        bench.running()

        assert bench.completions.stats().waiting == 0
        assert bench.worker.counters["locks_lost"] == 1
        transport.flaky["gpu"].refuses_locks = False
        bench.running("a")  # somebody else's turn: here it is the same worker again
        bench.hands.succeed("a")
        assert len(bench.reported()) == 1


# --- reporting


def test_a_completion_that_cannot_be_sent_is_tried_again_before_the_message_is_deleted() -> None:
    transport = FlakyTransport()
    with Bench(transport=transport).serving() as bench:
        bench.send("a")
        bench.running("a")
        transport.flaky[COMPLETIONS].send_failures = 1
        bench.hands.succeed("a")

        assert [completion.success for completion in bench.reported()] == [True]
        wait_until(lambda: bench.left() == 0)


def test_after_the_last_try_the_message_is_left_to_come_back() -> None:
    transport = FlakyTransport()
    with Bench(transport=transport, completion_attempts=1, lock_s=0.5).serving() as bench:
        bench.send("a")
        bench.running("a")
        transport.flaky[COMPLETIONS].send_failures = 1
        bench.hands.succeed("a")

        wait_until(lambda: len(bench.hands.submitted) == 2)
        assert bench.worker.counters["unreported"] == 1
        bench.hands.succeed("a")
        assert len(bench.reported()) == 1


def test_a_message_that_could_not_be_deleted_comes_back_and_is_not_run_again() -> None:
    """Also while the coordinator has not taken its completion yet: the state says nothing."""
    transport = FlakyTransport()
    with Bench(transport=transport, lock_s=0.3).serving() as bench:
        bench.send("a")
        bench.running("a")
        transport.flaky["gpu"].deletion_failures = 1
        bench.hands.succeed("a")

        wait_until(lambda: bench.left() == 0)
        assert transport.flaky["gpu"].deletion_failures == 0
        assert [message.task for message in bench.hands.submitted] == ["a"]
        assert len(bench.reported()) == 1
        bench.send("a", attempt=2)  # a retry is another attempt
        bench.running("a")


# --- stopping


def test_draining_waits_for_what_runs_and_returns_what_does_not_end() -> None:
    bench = Bench(grace_s=0.3)
    with bench.serving():
        bench.send("quick", "slow", "later")
        bench.running("quick", "slow")

        bench.worker.stop()
        bench.hands.succeed("quick")
        outcome = bench.ended()

    assert [completion.task for completion in bench.reported()] == ["quick"]
    assert bench.queue.stats().waiting == 2
    assert (outcome.failed, outcome.reason) == (False, "SIGTERM")
    back = {json.loads(json.loads(d.text)["kwargs"])["__workflow_task"] for d in bench.queue.receive(5, 0, 30)}
    assert back == {"slow", "later"}
    assert bench.hands.is_closed


def test_a_machine_that_is_still_here_after_a_sigterm_takes_work_again() -> None:
    """JOBQ_PREEMPTION_TIMEOUT: what ran goes back at once at no cost, and the worker waits to see what happens."""
    bench = Bench(grace_s=0.0, preemption_timeout_s=0.3)
    with bench.serving():
        bench.send("slow", "other")
        bench.running("other", "slow")

        bench.worker.stop()
        bench.running()
        resting_since = time.monotonic()
        bench.running("other", "slow")
        bench.hands.succeed("slow")
        bench.hands.succeed("other")
        bench.worker.stop()

    assert {(done.task, done.success, done.attempt) for done in bench.reported(2)} == {
        ("slow", True, 1),
        ("other", True, 1),
    }
    assert time.monotonic() - resting_since >= 0.2


def test_a_second_signal_stops_a_worker_that_waits_for_its_machine_to_go_away() -> None:
    bench = Bench(grace_s=0.0, preemption_timeout_s=1000.0)
    with bench.serving():
        bench.send("slow")
        bench.running("slow")
        bench.worker.stop()
        wait_until(lambda: bench.queue.stats().waiting == 1)

        bench.worker.stop()
        outcome = bench.ended()

    assert (outcome.failed, outcome.reason) == (False, "SIGTERM")
    assert bench.left() == 1


def test_after_its_time_limit_a_worker_finishes_what_runs_and_stops() -> None:
    bench = Bench(time_limit_s=0.3, room=1)
    with bench.serving():
        bench.send("slow", "later")
        bench.running("slow")

        wait_until(lambda: bench.worker.is_finishing)
        bench.hands.succeed("slow")
        outcome = bench.ended()

    assert outcome.reason == "the time limit of 0.3 s"
    assert [completion.task for completion in bench.reported()] == ["slow"]
    assert bench.left() == 1


def test_an_idle_worker_stops_when_it_was_told_to() -> None:
    bench = Bench(idle_timeout_s=0.05)
    with bench.serving():
        assert bench.ended().reason == "no task for 0.05 s"


def test_a_worker_on_which_everything_fails_stops_taking_tasks() -> None:
    bench = Bench(max_failures=3, room=1)
    with bench.serving():
        bench.send("a", "b", "c", "d")
        for task in ("a", "b", "c"):
            bench.running(task)
            bench.hands.fail(task)
        outcome = bench.ended()

    assert outcome.failed
    assert "3 tasks failed one after the other; the last: ValueError: no" in outcome.reason
    assert len(bench.reported(3)) == 3
    assert bench.queue.stats().waiting == 1


def test_a_success_in_between_means_that_the_worker_is_fine() -> None:
    with Bench(max_failures=2, room=1).serving() as bench:
        for task, succeeds in (("a", False), ("b", True), ("c", False)):
            bench.send(task)
            bench.running(task)
            bench.hands.succeed(task) if succeeds else bench.hands.fail(task)
        assert len(bench.reported(3)) == 3
        assert bench.outcome is None


# --- messages that are not in order


def test_a_message_that_cannot_be_read_is_deleted_and_counted() -> None:
    with Bench().serving() as bench:
        bench.queue.send_batch([OutMessage("1", "not json"), OutMessage("2", '{"version": 7, "kwargs": "{}"}')])

        wait_until(lambda: bench.left() == 0)
        assert bench.worker.counters["poison"] == 2


def test_a_task_that_was_started_again_and_again_without_an_end_is_failed() -> None:
    bench = Bench(max_deliveries=2)
    bench.send("a")
    for _ in range(2):
        bench.queue.abandon(bench.queue.receive(1, 0, 30))
    with bench.serving():
        (completion,) = bench.reported()

    assert completion.kind is FailureKind.USER
    assert "started 2 times without ever ending" in (completion.error or "")
    assert bench.hands.submitted == []


def test_an_attempt_that_was_reported_before_its_worker_died_does_not_run_again() -> None:
    bench = Bench()
    create(bench.store, "w", a={"state": "completed", "attempt_no": 1})
    bench.send("a")
    bench.queue.abandon(bench.queue.receive(1, 0, 30))
    with bench.serving():
        wait_until(lambda: bench.left() == 0)

    assert bench.hands.submitted == []
    assert bench.completions.stats().waiting == 0


# --- ordinary messages


def job(retries: int = 0) -> OutMessage:
    text = {"version": 1, "reply_requested": False, "kwargs": json.dumps({"cmd": "true"}), "num_retries": retries}
    return OutMessage("j1", json.dumps({**text, "id": "j1"}))


def test_an_ordinary_job_has_no_completion() -> None:
    with Bench().serving() as bench:
        bench.queue.send_batch([job()])
        bench.running("j1")
        bench.hands.succeed("j1")

        wait_until(lambda: bench.left() == 0)
        assert bench.completions.stats().waiting == 0


def test_an_ordinary_job_is_tried_again_and_then_kept_with_its_error() -> None:
    with Bench(max_failures=0).serving() as bench:
        bench.queue.send_batch([job(retries=1)])
        for number in (1, 2):
            wait_until(lambda: len(bench.hands.submitted) == number)  # noqa: B023
            bench.hands.fail(bench.hands.tasks_running()[0])

        failed = bench.transport.open("gpu-failed")
        wait_until(lambda: failed.stats().waiting == 1)
        (kept,) = failed.receive(1, 0, 30)
        assert json.loads(json.loads(kept.text)["kwargs"]) == {"cmd": "true", "__error": "ValueError: no"}
        wait_until(lambda: bench.left() == 0)


def create(store: MemoryStore, workflow_id: str, **entries: dict[str, Any]) -> None:
    """A stored run with one task `a` in a state."""
    from dagkit.model.spec import WorkflowSpec

    spec = WorkflowSpec.from_dict({"name": "test", "tasks": [{"name": "a"}]})
    head = {"v": 1, "workflow_id": workflow_id, "workflow_state": "running", "cancel_requested": False}
    state = {**head, "updated_at": "2026-01-01T00:00:00+00:00", "error": None, "tasks": entries}
    store.create(workflow_id, spec.definition(workflow_id, "2026-01-01T00:00:00+00:00"), state)
