"""What a viewer costs: time and bytes of an update, at 100, 10,000 and 100,000 tasks. They have to be flat.

    python benchmarks/bench_view.py

A run of one map stands half done in an SQLite store. An update is what the live view does when tasks have ended since
the last one: look, make words of it, publish. The first look reads the definition and lays out the graph. With `usage
and events` these tabs are open too; to know what happened is to read all tasks, within a tenth of the time.

Then a flood: every task ends as fast as the store takes it, while a live view publishes to a comm that counts.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from dagkit.config import load_settings
from dagkit.engine.state import WorkflowState
from dagkit.model.messages import Completion
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.notebook.live import LiveView
from dagkit.notebook.selection import Selection
from dagkit.notebook.wording import of_group, of_snapshot
from dagkit.run import Run
from dagkit.stores.sqlite import SQLiteStore
from dagkit.viewing import RunViewer

UPDATES = 100


def sweep(tasks: int) -> WorkflowSpec:
    train = [TaskSpec.trusted(f"train-{i}", depends_on=("prepare",), template="train") for i in range(tasks)]
    return WorkflowSpec.trusted("sweep", [TaskSpec.trusted("prepare"), *train])


class Driven:
    """A run whose tasks end when they are told to."""

    def __init__(self, store: SQLiteStore, tasks: int) -> None:
        self.spec = sweep(tasks)
        self.state = WorkflowState.create(self.spec, "run", time.time())
        self.store = store
        self.etag = store.create("run", self.spec.definition("run", "2026-01-01T00:00:00+00:00"), self.state.document())
        self.run = Run(store, "run", load_settings(store=store.url), spec=self.spec)
        self.end(1)
        self.end(tasks // 2)

    def end(self, count: int) -> None:
        now, usage = time.time(), {"wall_s": 1.0, "peak_rss_bytes": 2**25}
        for one in self.state.dispatch(now, lambda queue: count):
            self.state.apply(Completion("run", one.name, True, attempt=one.attempt, usage=usage), now)
        self.etag = self.store.save("run", self.state.take_changes(), self.etag)


def measure(tasks: int, *tabs: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        driven = Driven(SQLiteStore(Path(folder)), tasks)
        began = time.perf_counter()
        viewer = RunViewer(driven.run)
        viewer.look()
        first_s = time.perf_counter() - began
        selection = Selection(viewer)
        for tab in tabs:
            selection.choose_tab({"name": tab, "view": tab})
        times, sizes = [], []
        for _ in range(UPDATES):
            driven.end(max(1, tasks // 1000))
            began = time.perf_counter()
            shown = viewer.look()
            update = {"head": of_snapshot(shown, True), "groups": [of_group(group) for group in shown.groups]}
            update.update(selection.refreshed(True))
            sizes.append(len(json.dumps(update)))
            times.append(time.perf_counter() - began)
        driven.store.close()
    median_ms, worst_ms = 1000 * statistics.median(times), 1000 * max(times)
    print(
        f"{tasks:>8,} tasks: first look {1000 * first_s:7.1f} ms   update {median_ms:6.2f} ms median, "
        f"{worst_ms:7.1f} ms at most   {max(sizes):,} bytes   {' and '.join(tabs)}"
    )


def flood(tasks: int) -> None:
    """What a front end is sent while every task of a run ends."""
    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        driven = Driven(SQLiteStore(Path(folder)), tasks)
        live = LiveView(driven.run, lambda update: sizes.append(len(json.dumps(update))))
        live.ask({"ask": "page"})
        live.settle()
        sizes.clear()
        began = time.perf_counter()
        for _ in range(50):
            driven.end(tasks // 100)
        took_s = time.perf_counter() - began
        live.settle()
        live.close()
        driven.store.close()
    print(
        f"{tasks:>8,} tasks: {tasks // 2:,} ended within {took_s:.1f} s: {len(sizes)} messages, "
        f"{max(sizes, default=0):,} bytes at most"
    )


if __name__ == "__main__":
    sizes_of_runs = (100, 10_000, 100_000)
    for tasks in sizes_of_runs:
        measure(tasks)
    for tasks in sizes_of_runs:
        measure(tasks, "usage", "events")
    for tasks in sizes_of_runs:
        flood(tasks)
