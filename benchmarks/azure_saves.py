"""One coordinator of a large run whose tasks complete at a steady rate: what its saves cost, and its memory.

    python benchmarks/azure_saves.py URL WORKFLOW_ID SECONDS

Prints JSON. A process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Sequence

import psutil

from dagkit.coordinator import Coordinator
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores import open_store

RATE = 200


class Steady:
    """Completes what it was given at a steady rate."""

    name, reports_start = "steady", False

    def __init__(self) -> None:
        self._given: list[TaskMessage] = []
        self._begun, self._told = time.monotonic(), 0

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        self._given += messages
        return len(messages)

    def poll(self, wait_s: float) -> list[Completion | Started]:
        time.sleep(min(wait_s, 0.02))
        due = int((time.monotonic() - self._begun) * RATE)
        done = self._given[self._told : due]
        self._told += len(done)
        return [Completion(m.workflow_id, m.task, True, '{"x": 1}', attempt=m.attempt, generation=0) for m in done]

    def acknowledge(self, completions: Sequence[Completion]) -> None: ...

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None: ...

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        return []

    def capacity(self) -> int | None:
        return 256

    def interrupt(self) -> None: ...

    def close(self, grace_s: float = 5.0) -> None: ...


def main(url: str, workflow_id: str, seconds: float) -> None:
    store, executor, saving = open_store(url), Steady(), [0.0]
    save = store.save

    def timed(*given: object) -> str:
        begun = time.perf_counter()
        etag = save(*given)  # type: ignore[arg-type]
        saving[0] += time.perf_counter() - begun
        return etag

    store.save = timed  # type: ignore[method-assign]
    coordinator = Coordinator(store, lambda queue: executor).start()
    coordinator.drive(workflow_id)
    begun = time.perf_counter()
    time.sleep(seconds)
    took, saves = time.perf_counter() - begun, coordinator.counters.saves
    found = {
        "saves": saves,
        "ms/save": saving[0] / max(1, saves) * 1e3,
        "% of the time in saves": saving[0] / took * 100,
        "completions": coordinator.counters.completions,
        "peak MB": psutil.Process().memory_info().rss / 1e6,
    }
    print(json.dumps(found))
    coordinator.close()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
