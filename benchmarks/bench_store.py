"""How fast the SQLite store saves and loads, and the SQLite queue moves messages.

    python benchmarks/bench_store.py [directory]

Targets: 200,000 rows/s at 1,000 rows a commit, synced; a thread that computes all the time slows such a save by no more
than 15 ms. The clock starts before the changes are turned into text. On a machine that others use, compare the best.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from dagkit.model.records import Counts, StateChanges
from dagkit.queues.base import OutMessage
from dagkit.queues.sqlite import SqliteTransport
from dagkit.stores.sqlite import SQLiteStore

TASKS, BATCH = 100_000, 1_000


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="bench-store-", dir=sys.argv[1] if len(sys.argv) > 1 else "."))
    try:
        sync(root)
        saves(root / "quiet", "saves, quiet", contextlib.nullcontext())
        saves(root / "busy", "saves, busy thread", busy_thread())
        outputs(root / "outputs")
        messages(root / "queues")
    finally:
        shutil.rmtree(root)


def sync(root: Path) -> None:
    with open(root / "probe", "wb", buffering=0) as file:
        times = [timed(lambda: (file.write(b"x" * 4096), os.fsync(file.fileno()))) for _ in range(50)]
    report("fsync of 4 KB", times)


def saves(root: Path, title: str, load: contextlib.AbstractContextManager[None]) -> None:
    store = SQLiteStore(root)
    definition = {"v": 1, "name": "bench", "tasks": {f"fit-{n}": {"queue": "cpu", "kwargs": {}} for n in range(TASKS)}}
    ready = {name: {"state": "ready"} for name in definition["tasks"]}
    begun = time.perf_counter()
    etag = store.create("w", definition, {"v": 1, "workflow_state": "pending", "tasks": ready})
    print(f"create {TASKS:,} tasks: {time.perf_counter() - begun:.2f} s")
    times = []
    with load:
        for first in range(0, TASKS, BATCH):
            rows = [(n, f"fit-{n}", entry(n)) for n in range(first, first + BATCH)]
            changes = StateChanges({"v": 1, "workflow_state": "running"}, rows, Counts(running=TASKS), dict)
            begun = time.perf_counter()
            etag = store.save("w", changes, etag)
            times.append(time.perf_counter() - begun)
    report(title, times, BATCH)
    report(f"load {TASKS:,} tasks", [timed(lambda: store.load("w")) for _ in range(3)])
    report("row()", [timed(lambda: store.row("w")) for _ in range(300)])
    store.close()


def entry(n: int) -> dict[str, object]:
    """What a completed task of a flat map looks like in the state."""
    return {
        "state": "completed",
        "output_ref": f"{n}",
        "started_at": 1_700_000_000.123 + n,
        "completed_at": 1_700_000_001.456 + n,
        "attempt_no": 1,
    }


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that never waits for anything, as a coordinator in the thick of it."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def outputs(root: Path) -> None:
    store = SQLiteStore(root)
    report(
        "put_output of 64 KB", [timed(lambda n=n: store.put_output("w", f"t{n}.pkl", b"x" * 65536)) for n in range(200)]
    )
    report("get_output of 64 KB", [timed(lambda n=n: store.get_output(f"blob:w/t{n}.pkl")) for n in range(200)])
    store.close()


def messages(root: Path) -> None:
    transport = SqliteTransport(root)
    queue = transport.open("cpu")
    batches = [[OutMessage(f"{b}/{n}", "x" * 500) for n in range(100)] for b in range(50)]
    report("send 100 messages", [timed(lambda batch=batch: queue.send_batch(batch)) for batch in batches], 100)

    def one() -> None:
        queue.complete(queue.receive(1, 0, 30))

    report("receive and complete 1", [timed(one) for _ in range(500)], 1)
    report(
        "receive and complete 100", [timed(lambda: queue.complete(queue.receive(100, 0, 30))) for _ in range(40)], 100
    )
    transport.close()


def timed(call: object) -> float:
    begun = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - begun


def report(title: str, times: list[float], rows: int | None = None) -> None:
    median, best, worst = statistics.median(times), min(times), max(times)
    rate = f"  {rows / median:>10,.0f}/s median  {rows / best:>10,.0f}/s best" if rows else ""
    print(f"{title:<28} median {median * 1e3:8.3f} ms  best {best * 1e3:8.3f}  worst {worst * 1e3:8.3f}{rate}")


if __name__ == "__main__":
    main()
