"""The coordinator: the only writer of run state.

`loop` takes completions, advances the DAG and dispatches; `drive` is one run under it; `fleet` the executors behind the
queues; `saver` writes; `ownership` says who may.
"""

from __future__ import annotations

from dagkit.coordinator.loop import SERVICE_LEASE, Coordinator, Counters, Pace

__all__ = ["SERVICE_LEASE", "Coordinator", "Counters", "Pace"]
