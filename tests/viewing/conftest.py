"""Runs to look at: in a memory store, in any state, at any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

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


def stored(spec: WorkflowSpec, entries: Mapping[str, Mapping] | None = None, status: str = "running") -> Run:
    """A run of this workflow with these entries, that nobody drives."""
    store = MemoryStore()
    state = WorkflowState.create(spec, "run", store.now()).document()
    state["tasks"] = {name: dict(entry) for name, entry in (entries or {}).items()}
    state["workflow_state"] = status
    store.create("run", spec.definition("run", "2026-01-01T00:00:00+00:00"), state)
    return Run(store, "run", load_settings(store="memory:"), spec=spec)


@pytest.fixture
def run() -> Callable[..., Run]:
    return lambda size=10, entries=None, status="running": stored(sweep(size), entries, status)


class CountingStore:
    """A memory store that notes how often it was asked, and for how many tasks."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner, self.whole, self.named = inner, 0, 0

    def task_entries(self, workflow_id, names=None):
        names = None if names is None else list(names)
        self.whole += names is None
        self.named += len(names or ())
        return self.inner.task_entries(workflow_id, names)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.fixture
def counting() -> Callable[[Run], CountingStore]:
    """Counts what a run's store is asked from now on."""

    def count(run: Run) -> CountingStore:
        run.store = CountingStore(run.store)
        return run.store

    return count
