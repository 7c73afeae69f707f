"""The coordinator: the only writer of run state.

`loop` takes completions, advances the DAG and dispatches; `drive` is one run under it; `fleet` the executors behind the
queues; `saver` writes; `ownership` says who may; `service` is the claim to every run of a store; `liveness`
tells others that it lives.
"""

from __future__ import annotations

from dagkit.coordinator.liveness import Liveness, Pulse
from dagkit.coordinator.loop import Coordinator
from dagkit.coordinator.pace import Counters, Pace
from dagkit.coordinator.service import SERVICE_LEASE

__all__ = ["SERVICE_LEASE", "Coordinator", "Counters", "Liveness", "Pace", "Pulse"]
