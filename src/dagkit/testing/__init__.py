"""For testing your own pipelines: stores and queues in memory, an executor that you direct, a Slurm that you direct."""

from __future__ import annotations

from dagkit.queues.memory import MemoryTransport
from dagkit.stores.memory import MemoryStore
from dagkit.testing.executor import FakeExecutor
from dagkit.testing.slurm import FakeSlurm

__all__ = ["FakeExecutor", "FakeSlurm", "MemoryStore", "MemoryTransport"]
