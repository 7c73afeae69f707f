"""For testing your own pipelines: stores and queues in memory, with a clock you may set."""

from __future__ import annotations

from dagkit.queues.memory import MemoryTransport
from dagkit.stores.memory import MemoryStore

__all__ = ["MemoryStore", "MemoryTransport"]
