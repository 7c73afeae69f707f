"""Runs to look at: in a memory store, in any state, at any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dagkit.run import Run
from dagkit.stores.memory import MemoryStore
from watched_runs import stored


@pytest.fixture
def run() -> Callable[..., Run]:
    return lambda size=10, entries=None, status="running": stored(size, entries, status)


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
