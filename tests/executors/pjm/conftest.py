from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.model.messages import Completion, TaskMessage
from dagkit.stores.base import Store
from dagkit.testing.pjm import PjmSimulator, SimulatedJob, Site
from dagkit.testing.pjm.driver import leave_completions, virtual_executor

QUEUE = PjmQueue(rscgrp="small", group="group1", elapse_s=600)


class World:
    """An executor and its PJM under a clock that the test moves."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.at = 1_800_000_000.0
        #: Without nodes: jobs wait until the test says what becomes of them.
        self.pjm = PjmSimulator(
            folder / "pjm", Site(mode="plan", nodes=0, accept_s=0.0, is_group_needed=False), at=self.at, speed=None
        )
        self.limit(accept=None)
        self.done: dict[str, Completion] = {}
        self.executor = self.make()

    def make(self, default: PjmQueue = QUEUE, **settings: Any) -> PjmExecutor:
        """Another executor over the same files, which the former one has left as after a crash."""
        patience = settings.pop("patience", Patience(submit_interval_s=0.0))
        self.executor = virtual_executor(self.pjm, self.store, self.folder / "spools", default, patience, **settings)
        return self.executor

    def offer(self, messages: list[TaskMessage]) -> None:
        """Submit what is taken, and keep the rest in the list."""
        if messages and self.executor.capacity() != 0:
            del messages[: self.executor.submit(messages)]

    def poll(self) -> list[Completion]:
        found = [report for report in self.executor.poll(0) if isinstance(report, Completion)]
        found += [report for report in self.executor.poll(0) if isinstance(report, Completion)]
        self.executor.acknowledge(found)
        for one in found:
            assert one.task not in self.done or self.done[one.task].attempt != one.attempt, f"twice: {one}"
            self.done[one.task] = one
        return found

    def pass_s(self, seconds: float, messages: list[TaskMessage] | None = None, *, step_s: float = 10.0) -> None:
        """Time goes by, with a step of the coordinator every now and then."""
        end = self.at + seconds
        while self.at < end:
            self.wait(min(end - self.at, step_s))
            self.poll()
            self.offer(messages if messages is not None else [])
            self.poll()

    def wait(self, seconds: float) -> None:
        """Time goes by, and nobody does anything."""
        self.at += seconds
        self.pjm.tick(seconds)

    def limit(self, **limits: int | None) -> None:
        """Limits of our own user."""
        for name, most in limits.items():
            self.pjm.limit("ru-accept" if name == "accept" else f"ru-accept-{name}", most)

    def submits(self) -> list[tuple[str, str]]:
        """Name and result of every call of pjsub, in order."""
        return [(one.name, one.result) for one in self.pjm.oracle().submits]

    def calls(self, command: str) -> int:
        return self.pjm.oracle().calls[command]

    def states(self) -> list[str]:
        return [job.st for job in self.pjm.jobs()]

    def begin(self, messages: list[TaskMessage]) -> None:
        """Offer, and let the first refill happen."""
        self.offer(messages)
        self.poll()
        self.offer(messages)
        self.poll()

    def complete(self, job: SimulatedJob, **fields: Any) -> list[str]:
        """A job runs to its end; returns its tasks."""
        messages = leave_completions(job)
        self.pjm.force(job, "EXT", **{"ec": 0, **fields})
        return [message.task for message in messages]

    def complete_all(self) -> list[str]:
        return [task for job in self.pjm.jobs("QUE", "RUN") for task in self.complete(job)]


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Iterator[World]:
    made = World(tmp_path, store)
    yield made
    made.executor.close()
