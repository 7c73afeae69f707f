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
from executors.pjm.plain_pjm import InProcess, PlainPjm

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

    def __init__(self, pjm: PlainPjm) -> None:
        super().__init__()
        self._pjm = InProcess(pjm)

    def _run(self, name: str, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.calls[name] = self.calls.get(name, 0) + 1
        code, out, err = self._pjm.run(name, command)
        return subprocess.CompletedProcess(command, code, out, err)


class World:
    """An executor and its PJM under a clock that the test moves."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.pjm, self.at = PlainPjm(folder / "pjm"), 1_800_000_000.0
        self.pjm.set(now=self.at)
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
            self.at = min(end, self.at + step_s)
            self.pjm.set(now=self.at)
            self.poll()
            self.offer(messages if messages is not None else [])
            self.poll()

    def begin(self, messages: list[TaskMessage]) -> None:
        """Offer, and let the first refill happen."""
        self.offer(messages)
        self.poll()
        self.offer(messages)
        self.poll()

    def complete(self, job: int, sub: int, script: str, **fields: Any) -> list[str]:
        """A job runs to its end; returns its tasks."""
        folder = folder_of(script)
        _, messages, _ = folder.read(max(sub, 0))
        for place, message in enumerate(messages):
            folder.finish(max(sub, 0), place, success(message))
        self.pjm.change(job, sub, "EXT", 0, **fields)
        return [message.task for message in messages]

    def complete_all(self) -> list[str]:
        return [
            task for job, sub, _, script, _ in self.pjm.jobs("QUE", "RUN") for task in self.complete(job, sub, script)
        ]


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
