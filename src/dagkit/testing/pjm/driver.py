"""dagkit's PJM executor over a simulated PJM, in one process and by its clock: nothing runs, nothing waits."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import Completion, TaskMessage
from dagkit.stores.base import Store
from dagkit.testing.pjm.simulator import PjmSimulator, SimulatedJob

__all__ = ["InThisProcess", "VirtualClient", "folder_of", "leave_completions", "success", "virtual_executor"]


class InThisProcess(Pool):
    """Runs what it is given at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # as in any pool, whoever asks for the result gets it
            future.set_exception(error)
        return future


class VirtualClient(Client):
    """PJM's commands on a simulated PJM, without processes."""

    def __init__(self, pjm: PjmSimulator) -> None:
        super().__init__()
        self._pjm = pjm

    def _run(self, name: str, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.calls[name] = self.calls.get(name, 0) + 1
        return self._pjm.run(command[list(command).index(name) :])


def virtual_executor(
    pjm: PjmSimulator, store: Store, folder: Path, queue: PjmQueue, patience: Patience, **settings: Any
) -> PjmExecutor:
    """dagkit's executor as it is, but for time and processes."""
    return PjmExecutor(
        store,
        folder=folder,
        default=queue,
        client=VirtualClient(pjm),
        clock=lambda: pjm.now,
        pools=lambda count: InThisProcess(),
        patience=patience,
        **settings,
    )


def folder_of(script: str) -> JobFolder:
    """The folder of the job whose script this is."""
    command = shlex.split(script.strip().splitlines()[-1])
    return JobFolder(Path(command[command.index("dagkit.executors.job") + 1]))


def leave_completions(job: SimulatedJob) -> list[TaskMessage]:
    """Leave what a job would have left, had it run well; returns its tasks."""
    folder, index = folder_of(job.script), max(job.sub, 0)
    _, messages, _ = folder.read(index)
    for place, message in enumerate(messages):
        folder.finish(index, place, success(message))
    return messages


def success(message: TaskMessage) -> Completion:
    """A success whose output is the task's name."""
    output = json.dumps(message.task)
    return Completion(message.workflow_id, message.task, True, output, None, message.attempt, message.generation)
