"""For testing your pipelines: stores and queues in memory, an executor and a Slurm that you direct, a simulated PJM."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagkit.queues.memory import MemoryTransport
    from dagkit.stores.memory import MemoryStore
    from dagkit.testing.executor import FakeExecutor
    from dagkit.testing.pjm.simulator import PjmSimulator
    from dagkit.testing.slurm import FakeSlurm

__all__ = ["FakeExecutor", "FakeSlurm", "MemoryStore", "MemoryTransport", "PjmSimulator"]

#: Loaded when they are asked for: the programs of the simulated PJM are in this package, and must start quickly.
_PLACES: Final = {
    "FakeExecutor": "dagkit.testing.executor",
    "FakeSlurm": "dagkit.testing.slurm",
    "MemoryStore": "dagkit.stores.memory",
    "MemoryTransport": "dagkit.queues.memory",
    "PjmSimulator": "dagkit.testing.pjm.simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
