"""The terminal app without a terminal: keys go in, and what stands on the screen is read from the picture of it."""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from dagkit.config import load_settings
from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore
from dagkit_tui import DagkitApp

NOW = 1_800_000_000.0
_TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
#: What stands between two lines of a dialog.
_BOX = re.compile(r"[\s│]+")


def screen_text(app: DagkitApp) -> str:
    """What stands on the screen, line by line, from the SVG that Textual makes of it."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in _TEXT.findall(app.export_screenshot()):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for y in sorted(rows):
        line = ""
        for x, text in sorted(rows[y]):
            line = line.ljust(round(x / 12.2)) + text
        lines.append(line.rstrip())
    return "\n".join(lines[1:]) if lines and lines[0].strip() == app.title else "\n".join(lines)


class Terminal:
    """An app in the hands of a test."""

    def __init__(self, app: DagkitApp, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        return screen_text(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, words: str) -> None:
        await self.pilot.press(*[{" ": "space", "-": "minus", "[": "left_square_bracket"}.get(c, c) for c in words])

    async def shows(self, *words: str, without: str = "", timeout_s: float = 15.0) -> str:
        """The screen, once all of this stands on it (and that does not)."""
        deadline = time.monotonic() + timeout_s
        while True:
            await self.pilot.pause()
            text = self.text
            flat = _BOX.sub(" ", text)
            if all(word in text or word in flat for word in words) and not (without and without in text):
                return text
            assert time.monotonic() < deadline, f"{words} (without {without!r}) not on the screen:\n{text}"
            await asyncio.sleep(0.02)

    async def until(self, holds: Callable[[], object], what: str, timeout_s: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.text}"
            await self.pilot.pause()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def terminal(
    store: Store, run_id: str | None = None, *, size: tuple[int, int] = (120, 36), is_dark: bool = True, **options: Any
) -> AsyncIterator[Terminal]:
    """The app on a store."""
    app = DagkitApp(load_settings(store=options.pop("url", "memory:")), store, run_id, is_dark=is_dark, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield Terminal(app, pilot)


def add_run(
    store: MemoryStore, run_id: str, spec: WorkflowSpec, entries: Mapping[str, Mapping[str, Any]], status: str
) -> None:
    """A run with these entries, that nobody drives."""
    state = WorkflowState.create(spec, run_id, store.now()).document()
    state["tasks"] = {name: dict(entry) for name, entry in entries.items()}
    state["workflow_state"] = status
    store.create(run_id, spec.definition(run_id, "2026-01-01T00:00:00+00:00"), state)


def sweep(size: int, name: str = "sweep") -> WorkflowSpec:
    """One preparation, a map over it, one comparison of all."""
    train = [
        TaskSpec.trusted(f"train-{i}", depends_on=("prepare",), template="train", queue="gpu", num_retries=3)
        for i in range(size)
    ]
    compare = TaskSpec.trusted("compare", depends_on=tuple(task.name for task in train))
    return WorkflowSpec.trusted(name, [TaskSpec.trusted("prepare"), *train, compare])


TRACEBACK = 'Traceback (most recent call last):\n  File "steps.py", line 7, in train\n    raise MemoryError(text)\n'


def _at(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, timezone.utc).isoformat()


def entries_of_sweep() -> dict[str, dict[str, Any]]:
    """Done, failed in two ways, running, and the rest waiting."""
    done = {"state": "completed", "attempt_no": 1, "completed_at": _at(30), "usage": {"wall_s": 38.0}}
    return {
        "prepare": {**done, "usage": {"wall_s": 12.0, "peak_rss_bytes": 2 << 30}},
        "train-0": done,
        "train-1": {
            "state": "failed",
            "attempt_no": 4,
            "kind": "memory",
            "completed_at": _at(20),
            "error": f"MemoryError: batch of 8192 does not fit\n{TRACEBACK}",
            "usage": {"wall_s": 38.0, "peak_rss_bytes": 39 << 30, "host": "node-7", "signal": 9},
            "past": [{"attempt": 3, "kind": "memory", "wall_s": 36.0, "resources": {"memory": "27G"}}],
            "resources": {"memory": "40G"},
        },
        "train-2": {
            "state": "failed",
            "attempt_no": 4,
            "completed_at": _at(10),
            "error": "[/red] [bold]exit\x1b[2J 2",
        },
        "train-3": {"state": "running", "attempt_no": 1, "started_at": _at(65)},
        "train-4": {"state": "ready"},
        "compare": {"state": "upstream_failed", "error": "upstream train-1 failed"},
    }


@pytest.fixture
def store() -> MemoryStore:
    """Four runs, two of them in trouble; the clock stands still."""
    now = [NOW - 7200]
    store = MemoryStore(clock=lambda: now[0])
    add_run(store, "prep-9", sweep(2, "prep"), {n: {"state": "completed"} for n in _names(2)}, "completed")
    now[0] = NOW - 3600
    failed = {n: {"state": "completed"} for n in _names(2)} | {"train-1": {"state": "failed", "error": "exit code 2"}}
    add_run(store, "nightly-02", sweep(2, "nightly"), failed, "failed")
    now[0] = NOW - 60
    add_run(store, "calm-1", sweep(3, "calm"), {"prepare": {"state": "running", "attempt_no": 1}}, "running")
    add_run(store, "sweep-3f9c", sweep(6), entries_of_sweep(), "running")
    now[0] = NOW
    return store


def _names(size: int) -> list[str]:
    return [task.name for task in sweep(size).tasks]


class HeldStore:
    """A store whose reads wait at a gate, or fail."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.error = ""
        self.waiting = 0
        self.read_rows = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in ("rows", "row", "task_entries", "load_definition", "read_log"):
            return found

        def read(*args: Any, **kwargs: Any) -> Any:
            self.waiting += 1
            self.gate.wait(30)
            self.waiting -= 1
            if self.error:
                raise BackendError(self.error)
            answer = found(*args, **kwargs)
            self.read_rows += len(answer) if name == "task_entries" else 0
            return answer

        return read


SNAPSHOTS = Path(__file__).parent / "snapshots"
