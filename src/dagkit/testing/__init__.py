"""For testing your own pipelines: stores and queues in memory, a clock you may set, an executor that you direct."""

from __future__ import annotations

from dagkit.queues.memory import MemoryTransport
from dagkit.stores.memory import MemoryStore
from dagkit.testing.executor import FakeExecutor

__all__ = ["FakeExecutor", "MemoryStore", "MemoryTransport"]
