from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import Completion, TaskMessage
from dagkit.stores.base import Store
from dagkit.testing.pjm import PjmSimulator, SimulatedJob, Site

QUEUE = PjmQueue(rscgrp="small", group="group1", elapse_s=600)


class InThisProcess(Pool):
    """Runs what it is given at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class QuickClient(Client):
    """PJM's commands, without processes."""

    def __init__(self, pjm: PjmSimulator) -> None:
        super().__init__()
        self._pjm = pjm

    def _run(self, name: str, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.calls[name] = self.calls.get(name, 0) + 1
        return self._pjm.run(command[list(command).index(name) :])


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
        self.executor = PjmExecutor(
            self.store,
            folder=self.folder / "spools",
            default=default,
            client=QuickClient(self.pjm),
            clock=lambda: self.at,
            pools=lambda count: InThisProcess(),
            patience=patience,
            **settings,
        )
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


def leave_completions(job: SimulatedJob) -> list[TaskMessage]:
    """What a job would have left, had it run; returns its tasks."""
    folder, index = folder_of(job.script), max(job.sub, 0)
    _, messages, _ = folder.read(index)
    for place, message in enumerate(messages):
        folder.finish(index, place, success(message))
    return messages


def folder_of(script: str) -> JobFolder:
    command = shlex.split(script.strip().splitlines()[-1])
    return JobFolder(Path(command[command.index("dagkit.executors.job") + 1]))


def success(message: TaskMessage) -> Completion:
    return Completion(
        message.workflow_id, message.task, True, json.dumps(message.task), None, message.attempt, message.generation
    )


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Iterator[World]:
    made = World(tmp_path, store)
    yield made
    made.executor.close()
