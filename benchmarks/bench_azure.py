"""Workflows on Azurite, beside the raw SDK doing the same calls in the same run.

    python benchmarks/bench_azure.py [map chain submit saves] [--repeat 3]    (BENCH_TASKS=2000)

Targets: 2,000 no-op tasks with 4 workers in this process at 60 % of the raw SDK at least (one receive for 32, a send, a
completion and a delete for each task) and 160 tasks/s; a hop of a chain in 3 raw round trips plus 50 ms; 20,000 tasks
submitted in 10 s, saves no more than 10 % of the coordinator's time, its memory under 100 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from dagkit.coordinator import Coordinator
from dagkit.engine.state import WorkflowState
from dagkit.executors.queued import QueuedExecutor
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind
from dagkit.queues import open_transport
from dagkit.settings import WorkerSettings
from dagkit.stores import open_store
from dagkit.worker import Worker

WORKERS, BATCH = 4, 32
TASKS = int(os.environ.get("BENCH_TASKS", "2000"))
URL = "azure://devstoreaccount1/Bench"


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
def azurite() -> Iterator[None]:
    """Azurite of this environment, on free ports."""
    program = Path(sys.prefix) / "azurite/node_modules/.bin/azurite"
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    os.environ.update(zip(("BLOB_PORT", "QUEUE_PORT", "TABLE_PORT"), ports, strict=True))
    folder = tempfile.mkdtemp(prefix="bench-azure-")
    flags = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--loose", "--disableTelemetry")
    named = ("--blobPort", ports[0], "--queuePort", ports[1], "--tablePort", ports[2])
    process = subprocess.Popen([str(program), *flags, *named], cwd=folder)
    try:
        for port in ports:
            while socket.socket().connect_ex(("127.0.0.1", int(port))):
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster() -> Iterator[Coordinator]:
    """A coordinator and workers as threads of this process."""
    store = open_store(URL)
    transports = [open_transport(URL) for _ in range(WORKERS + 1)]
    executor = QueuedExecutor(store, transports[0])
    coordinator = Coordinator(store, lambda queue: executor, discover=False).start()
    settings = WorkerSettings(slots=BATCH, max_idle_backoff_s=0.05)
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


def definition(name: str, tasks: list[dict[str, Any]]) -> WorkflowSpec:
    return WorkflowSpec.from_dict({"name": name, "default_queue": "bench", "tasks": tasks})


def submit(store: Any, spec: WorkflowSpec, workflow_id: str) -> None:
    state = WorkflowState.create(spec, workflow_id, store.now())
    store.create(workflow_id, spec.definition(workflow_id, "2026-01-01T00:00:00+00:00"), state.document())


def driven(coordinator: Coordinator, workflow_id: str) -> float:
    started = time.perf_counter()
    status = coordinator.drive(workflow_id).result(timeout=300)
    if str(status) != "completed":
        raise SystemExit(f"{workflow_id} is {status}")
    return time.perf_counter() - started


# --- the raw SDK


def client(name: str) -> QueueClient:
    from dagkit.azure.account import find_account

    account = find_account("devstoreaccount1")
    service = QueueServiceClient(account.queue, {"account_name": account.name, "account_key": account.key})
    queue = service.get_queue_client(name)
    queue.create_queue()
    return queue


def raw(n: int, run: int, *, acknowledged: bool) -> float:
    """The least that has to be done for n tasks, by as many threads as there are workers, in the SDK's own words.

    `acknowledged`: the completions are received and deleted too, which somebody has to do.
    """
    tasks, done = client(f"raw-tasks-{run}-{acknowledged:d}"), client(f"raw-done-{run}-{acknowledged:d}")
    text = TaskMessage("w", "task-00001", 1, 0, "bench", {"cmd": "true"}).to_text()
    report = Completion("w", "task-00001", True, "1", attempt=1, generation=0).to_text()
    started = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda _: tasks.send_message(text), range(n)))
        list(pool.map(lambda _: work(tasks, done, report), range(WORKERS)))
        if acknowledged:
            list(pool.map(lambda _: work(done, None, ""), range(WORKERS)))
    return time.perf_counter() - started


def work(source: QueueClient, target: QueueClient | None, report: str) -> None:
    while messages := list(
        next(source.receive_messages(messages_per_page=BATCH, visibility_timeout=600).by_page(), ())
    ):
        for message in messages:
            if target is not None:
                target.send_message(report)
            with contextlib.suppress(ResourceNotFoundError):  # the SDK may have asked twice
                source.delete_message(message.id, message.pop_receipt)


def round_trip() -> float:
    """Seconds of a send, a receive and a delete, one after the other."""
    queue = client("raw-trip")
    times = []
    for _ in range(60):
        started = time.perf_counter()
        queue.send_message("x" * 300)
        (message,) = queue.receive_messages(messages_per_page=1, max_messages=1)
        queue.delete_message(message.id, message.pop_receipt)
        times.append((time.perf_counter() - started) / 3)
    return statistics.median(times)


# --- the figures


def bench_map(run: int) -> dict[str, float]:
    n = TASKS
    tasks = [{"name": f"task-{number:05}", "kwargs": {"cmd": "true"}} for number in range(n)]
    with cluster() as coordinator:
        submit(coordinator.store, definition("map", tasks), f"map-{run}")
        cpu, ours = time.process_time(), driven(coordinator, f"map-{run}")
        cpu = time.process_time() - cpu
    least, acknowledged = raw(n, run, acknowledged=False), raw(n, run, acknowledged=True)
    return {
        "tasks/s": n / ours,
        "raw SDK tasks/s": n / least,
        "raw SDK tasks/s, completions acknowledged": n / acknowledged,
        "ratio": least / ours,
        "ratio, completions acknowledged": acknowledged / ours,
        "CPU ms/task": cpu / n * 1e3,
    }


def bench_chain(run: int, n: int = 50) -> dict[str, float]:
    tasks: list[dict[str, Any]] = [{"name": "t0", "kwargs": {"cmd": "true"}}]
    tasks += [{"name": f"t{k}", "depends_on": [f"t{k - 1}"], "kwargs": {"cmd": "true"}} for k in range(1, n)]
    with cluster() as coordinator:
        submit(coordinator.store, definition("chain", tasks), f"chain-{run}")
        ours = driven(coordinator, f"chain-{run}")
    trip = round_trip()
    return {"ms/hop": ours / n * 1e3, "ms/round trip": trip * 1e3, "target ms/hop": 3e3 * trip + 50}


def bench_submit(run: int, n: int = 20_000) -> dict[str, float]:
    tasks: list[dict[str, Any]] = [{"name": f"task-{number:05}", "kwargs": {"cmd": "true"}} for number in range(n)]
    store = open_store(URL)
    started = time.perf_counter()
    submit(store, definition("large", tasks), f"large-{run}")
    seconds = time.perf_counter() - started
    store.close()
    return {"s": seconds}


def bench_saves(run: int, n: int = 20_000, seconds: float = 10.0) -> dict[str, float]:
    """What saves cost a coordinator of a large run while tasks complete at 200 a second, and its memory."""
    script = Path(__file__).with_name("azure_saves.py")
    bench_submit(run + 100, n)
    done = subprocess.run(
        [sys.executable, str(script), URL, f"large-{run + 100}", str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


BENCHES = {"map": bench_map, "chain": bench_chain, "submit": bench_submit, "saves": bench_saves}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="*", choices=[*BENCHES, []], default=[])
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    with azurite():
        for name in chosen.benches or BENCHES:
            found = [BENCHES[name](run) for run in range(chosen.repeat)]
            figures = {key: statistics.median(one[key] for one in found) for key in found[0]}
            print(f"{name:8}" + "   ".join(f"{key}: {value:,.2f}" for key, value in figures.items()))
    print(f"{psutil.cpu_count()} processors, load {psutil.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
