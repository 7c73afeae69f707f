"""Runs in a memory store for views to look at, and a comm that counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dagkit.config import load_settings
from dagkit.engine.state import WorkflowState
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.run import Run
from dagkit.stores.memory import MemoryStore


def sweep(size: int) -> WorkflowSpec:
    """One preparation, a map over it, one comparison of all."""
    train = [TaskSpec.trusted(f"train-{i}", depends_on=("prepare",), template="train") for i in range(size)]
    compare = TaskSpec.trusted("compare", depends_on=tuple(task.name for task in train))
    return WorkflowSpec.trusted("sweep", [TaskSpec.trusted("prepare"), *train, compare])


def stored(size: int = 4, entries: Mapping[str, Mapping] | None = None, status: str = "running") -> Run:
    """A run of `sweep` with these entries, that nobody drives."""
    spec, store = sweep(size), MemoryStore()
    state = WorkflowState.create(spec, "run", store.now()).document()
    state["tasks"] = {name: dict(entry) for name, entry in (entries or {}).items()}
    state["workflow_state"] = status
    store.create("run", spec.definition("run", "2026-01-01T00:00:00+00:00"), state)
    return Run(store, "run", load_settings(store="memory:"), spec=spec)


class CountingComm:
    """Takes what a view publishes: how many messages, how many bytes, and what stands."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, int]] = []
        self.state: dict[str, Any] = {}
        self._changed = threading.Condition()

    def __call__(self, update: dict[str, Any]) -> None:
        size = len(json.dumps(update))
        with self._changed:
            self.messages.append((time.monotonic(), size))
            self.state.update(update)
            self._changed.notify_all()

    def wait_for(self, holds: Callable[[dict[str, Any]], object], timeout_s: float = 10.0) -> dict[str, Any]:
        """The state once it is so."""
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.state), timeout_s), f"not in time: {self.state}"
            return dict(self.state)

    def busiest_bytes(self) -> int:
        """The most bytes within any second."""
        return max(
            (sum(size for at, size in self.messages if first <= at < first + 1.0) for first, _ in self.messages),
            default=0,
        )

    def busiest_second(self) -> int:
        """The most messages within any second."""
        times = [at for at, _ in self.messages]
        return max((sum(first <= at < first + 1.0 for at in times) for first in times), default=0)
