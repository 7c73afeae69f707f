"""Until the terminal app shows the runs of a store, beside an empty Textual app; and what a key costs among many tasks.

python benchmarks/bench_tui.py [--repeat 7] [--tasks 100000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dagkit.config import load_settings
from dagkit.engine.state import WorkflowState
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore

EMPTY = (
    "from textual.app import App\nfrom textual.widgets import Static\n"
    "class Empty(App):\n    def compose(self): yield Static('sweep-0')\nEmpty().run()\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{folder}/store"
        store = open_store(url)
        for number in range(20):
            add(store, f"sweep-{number}", 100)
        store.close()
        start(url, given.repeat)
    asyncio.run(scroll(given.tasks))


def add(store: Store, run_id: str, size: int) -> None:
    train = [TaskSpec.trusted(f"train-{n}", depends_on=("prepare",), template="train") for n in range(size)]
    spec = WorkflowSpec.trusted("sweep", [TaskSpec.trusted("prepare"), *train])
    state = WorkflowState.create(spec, run_id, store.now()).document()
    store.create(run_id, spec.definition(run_id, "2026-01-01T00:00:00+00:00"), state)


def start(url: str, repeat: int) -> None:
    programs = {
        "an empty Textual app": [sys.executable, "-c", EMPTY],
        "dagkit tui": [sys.executable, "-m", "dagkit.cli", "--store", url, "tui"],
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeat):
        for name, command in programs.items():
            times[name].append(until_shown(command, b"sweep-0"))
    empty = statistics.median(times["an empty Textual app"])
    for name, found in times.items():
        median = statistics.median(found)
        report = {"bench": f"start of {name}", "repeat": repeat, "ms": round(median * 1e3)}
        print(json.dumps({**report, "times empty": round(median / empty, 2)}))


def until_shown(command: list[str], words: bytes) -> float:
    """Seconds until a program has written this to its terminal."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "36"}
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, cwd=Path(__file__).parent)
    os.close(its)
    seen = b""
    while words not in seen:
        seen += os.read(ours, 65536)
    took = time.perf_counter() - began
    process.kill()
    process.wait()
    os.close(ours)
    return took


async def scroll(tasks: int) -> None:
    """Keys a second while a hundred pages go by, of a run of so many tasks and of one of a hundred."""
    from dagkit_tui import DagkitApp

    for size in (100, tasks):
        store = MemoryStore()
        add(store, "large", size)
        app = DagkitApp(load_settings(store="memory:"), store, "large")
        async with app.run_test(size=(120, 36)) as pilot:
            table = app.screen.query_one("#tasks")
            while not getattr(table, "total", 0):
                await pilot.pause(0.02)
            times = []
            for _ in range(100):
                began = time.perf_counter()
                await pilot.press("pagedown")
                times.append(time.perf_counter() - began)
        report = {"bench": "a page further", "tasks": size, "ms": round(statistics.median(times) * 1e3, 1)}
        print(json.dumps({**report, "worst ms": round(max(times) * 1e3, 1)}))


if __name__ == "__main__":
    main()
