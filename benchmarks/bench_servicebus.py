"""Service Bus queues on the tests' emulator, beside the raw SDK doing the same calls in the same run.

    python benchmarks/bench_servicebus.py [queue map chain] [--repeat 3]    (BENCH_TASKS=2000)

Targets: 2,000 no-op tasks with 4 workers in this process at 60 % of the raw SDK at least (one receive for 32, a send, a
completion and a delete for each task); a hop of a chain in 3 raw round trips plus 50 ms. The store is SQLite: its share
is small, and the queues are what is measured. The emulator is no measure of the service.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from dagkit.coordinator import Coordinator
from dagkit.engine.state import WorkflowState
from dagkit.executors.queued import QueuedExecutor
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind
from dagkit.queues import open_transport
from dagkit.queues.base import OutMessage
from dagkit.settings import WorkerSettings
from dagkit.stores import open_store
from dagkit.worker import Worker
from services.servicebus import Emulator, Namespace

WORKERS, BATCH, AT_ONCE = 4, 32, 100
TASKS = int(os.environ.get("BENCH_TASKS", "2000"))
HOPS = 50


class InlineExecutor:
    """Runs no-op tasks where they are submitted."""

    name, reports_start = "inline", False

    def __init__(self) -> None:
        self._done: list[Completion | Started] = []
        self._bell = threading.Event()

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        for m in messages:
            self._done.append(Completion(m.workflow_id, m.task, True, "1", attempt=m.attempt, generation=m.generation))
        return len(messages)

    def poll(self, wait_s: float) -> list[Completion | Started]:
        if not self._done:
            self._bell.wait(wait_s)
            self._bell.clear()
        done, self._done = self._done, []
        return done

    def acknowledge(self, completions: Sequence[Completion]) -> None: ...

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None: ...

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        return []

    def capacity(self) -> int | None:
        return BATCH

    def interrupt(self) -> None:
        self._bell.set()

    def close(self, grace_s: float = 5.0) -> None: ...


@contextmanager
def cluster(namespace: Namespace, folder: str) -> Iterator[Coordinator]:
    """A coordinator and workers as threads of this process."""
    os.environ.update(namespace.environment())
    store = open_store(f"sqlite:{folder}/store")
    transports = [open_transport(namespace.url) for _ in range(WORKERS + 1)]
    executor = QueuedExecutor(store, transports[0])
    coordinator = Coordinator(store, lambda queue: executor, discover=False).start()
    settings = WorkerSettings(slots=BATCH)
    workers = [Worker("bench", store, transport, settings, InlineExecutor()) for transport in transports[1:]]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield coordinator
    finally:
        coordinator.close()
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
        for closing in (executor, *transports, store):
            closing.close()


def driven(coordinator: Coordinator, store: Any, tasks: list[dict[str, Any]], workflow_id: str) -> float:
    spec = WorkflowSpec.from_dict({"name": "bench", "default_queue": "bench", "tasks": tasks})
    state = WorkflowState.create(spec, workflow_id, store.now())
    store.create(workflow_id, spec.definition(workflow_id, "2026-01-01T00:00:00+00:00"), state.document())
    started = time.perf_counter()
    status = coordinator.drive(workflow_id).result(timeout=300)
    if str(status) != "completed":
        raise SystemExit(f"{workflow_id} is {status}")
    return time.perf_counter() - started


# --- the raw SDK, its connections open before the clock starts


def raw_send(sender: Any, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), AT_ONCE):
        sender.send_messages([ServiceBusMessage(text) for text in texts[start : start + AT_ONCE]])


def raw_work(receiver: Any, sender: Any, report: str, left: list[int]) -> None:
    """Receive 32, send a completion and delete, for each, until none are left."""
    while left:
        for message in receiver.receive_messages(min(BATCH, max(1, len(left))), max_wait_time=0.2):
            if sender is not None:
                sender.send_messages(ServiceBusMessage(report))
            receiver.complete_message(message)
            left.pop()


def raw(namespace: Namespace, n: int, workers: int, *, reports: bool) -> float:
    """The least that has to be done for n tasks, in the SDK's own words: with reports, they are taken in too."""
    text = TaskMessage("w", "task-00001", 1, 0, "bench", {"cmd": "true"}).to_text()
    report = Completion("w", "task-00001", True, "1", attempt=1, generation=0).to_text()
    with ExitStack() as stack:
        client = stack.enter_context(ServiceBusClient.from_connection_string(namespace.connection_string()))
        tasks = stack.enter_context(client.get_queue_sender("raw-tasks"))
        done = [stack.enter_context(client.get_queue_sender("raw-done")) for _ in range(workers)]
        sources = [
            [stack.enter_context(client.get_queue_receiver(queue)) for _ in range(workers)]
            for queue in ("raw-tasks", "raw-done")
        ]
        started = time.perf_counter()
        raw_send(tasks, [text] * n)
        for receivers, senders in zip(sources, (done if reports else [None] * workers, [None] * workers), strict=True):
            left = [0] * n
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(raw_work, receivers, senders, [report] * workers, [left] * workers))
            if not reports:
                break
        return time.perf_counter() - started


def raw_trip(namespace: Namespace) -> float:
    """Seconds of a send, a receive and a delete, one after the other."""
    times = []
    client = ServiceBusClient.from_connection_string(namespace.connection_string())
    with client, client.get_queue_sender("raw-trip") as sender, client.get_queue_receiver("raw-trip") as receiver:
        for _ in range(60):
            started = time.perf_counter()
            sender.send_messages(ServiceBusMessage("x" * 300))
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            times.append(time.perf_counter() - started)
    return statistics.median(times)


# --- what is compared


def bench_queue(namespace: Namespace, run: int) -> str:
    """Batches out, batches in, each message deleted: one thread, our queue and the SDK's own."""
    os.environ.update(namespace.environment())
    text = TaskMessage("w", "task-00001", 1, 0, "bench", {"cmd": "true"}).to_text()
    transport = open_transport(namespace.url)
    queue = transport.open(f"q{run}")
    queue.send_batch([OutMessage("first", text)])
    queue.complete(queue.receive(1, 5.0, 60))
    started, got = time.perf_counter(), 0
    queue.send_batch([OutMessage(f"{run}/{number}", text) for number in range(TASKS)])
    while got < TASKS:
        deliveries = queue.receive(BATCH, 1.0, 60)
        queue.complete(deliveries)
        got += len(deliveries)
    ours = time.perf_counter() - started
    transport.close()
    theirs = raw(namespace, TASKS, 1, reports=False)
    return f"queue  {TASKS / ours:7.0f} messages/s   raw {TASKS / theirs:7.0f}/s   {theirs / ours:.0%} of it"


def bench_map(namespace: Namespace, run: int) -> str:
    with tempfile.TemporaryDirectory() as folder, cluster(namespace, folder) as coordinator:
        store = open_store(f"sqlite:{folder}/store")
        tasks = [{"name": f"task-{number:05}", "kwargs": {"cmd": "true"}} for number in range(TASKS)]
        driven(coordinator, store, tasks[: WORKERS * BATCH * 2], f"warm{run}")
        ours = driven(coordinator, store, tasks, f"map{run}")
    theirs = raw(namespace, TASKS, WORKERS, reports=True)
    return f"map    {TASKS / ours:7.0f} tasks/s      raw {TASKS / theirs:7.0f}/s   {theirs / ours:.0%} of it"


def bench_chain(namespace: Namespace, run: int) -> str:
    with tempfile.TemporaryDirectory() as folder, cluster(namespace, folder) as coordinator:
        store = open_store(f"sqlite:{folder}/store")
        tasks: list[dict[str, Any]] = [{"name": f"t{number}", "kwargs": {"cmd": "true"}} for number in range(HOPS)]
        driven(coordinator, store, tasks, f"warm{run}")  # opens every connection, at half a second each
        for number in range(1, HOPS):
            tasks[number]["depends_on"] = [f"t{number - 1}"]
        hop = driven(coordinator, store, tasks, f"chain{run}") / HOPS
    trip = raw_trip(namespace)
    return f"chain  {hop * 1000:7.1f} ms a hop    raw round trip {trip * 1000:.1f} ms, bound {trip * 3000 + 50:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["queue", "map", "chain"])
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    benches = {"queue": bench_queue, "map": bench_map, "chain": bench_chain}
    emulator = Emulator()
    for part in args.parts:
        for run in range(args.repeat):
            namespace = emulator.namespace()
            for name in ("raw-tasks", "raw-done", "raw-trip"):
                namespace.create(name, detects_duplicates=False)
            print(benches[part](namespace, run), flush=True)
    emulator.close()


if __name__ == "__main__":
    main()
