"""What a scheduler's job runs: `python -m dagkit.executors.job FOLDER INDEX`.

Runs the tasks of one job of a submission one after the other, as the local executor does, and leaves a completion for
each (see `executors.spool`). INDEX is a number, or the name of the variable in which the scheduler gives it
(`SLURM_ARRAY_TASK_ID`, `PJM_BULKNUM`). Exit codes: 0 when every task has a completion, whatever it says; 70 when the
job could not do its work, and why on stderr; 143 when it was told to stop and leaves the verdict to the scheduler; 1
when another rank than the first failed.

Options of the manifest: `path` (folders to import from), `kill_timeout_s`, `on_stop` (`leave`: no completion for what
was stopped), `srun` (this process is one of several ranks, and the first of them reports), `traced` (tasks are told the
span of their attempt, whatever the scheduler passes on of the environment). Memory is left to the scheduler.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dagkit.errors import DagkitError
from dagkit.executors.local import LocalExecutor
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import AttemptKey, Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.runtime.environment import TRACING
from dagkit.stores import open_store

__all__ = ["main", "run_job"]

UNABLE: Final = 70
"""EX_SOFTWARE of sysexits.h: no code that a task or a scheduler gives."""
TERMINATED: Final = 128 + signal.SIGTERM
_POLL_S: Final = 1.0
_KILL_TIMEOUT_S: Final = 20.0
_SAME_SIGNAL_S: Final = 1.0


def run_job(folder: JobFolder, job: int) -> int:
    """Run the tasks of a job that have no completion yet, and return its exit code.

    SIGTERM stops them: what has not ended is `preempted`, or without a completion. SIGUSR1 is notice of the time limit.
    """
    store_url, messages, options = folder.read(job)
    sys.path.extend(place for place in options.get("path", ()) if place not in sys.path)
    rank = int(os.environ.get("SLURM_PROCID", 0)) if options.get("srun") else 0
    places = {message.key: place for place, message in enumerate(messages) if not folder.is_finished(job, place)}
    waiting = [dataclasses.replace(message, resources=None) for message in messages if message.key in places]
    if options.get("traced"):
        os.environ[TRACING] = "1"
    store = open_store(store_url)
    kill_timeout_s = float(options.get("kill_timeout_s", _KILL_TIMEOUT_S))
    try:
        with LocalExecutor(store, slots=1, kill_timeout_s=kill_timeout_s) as executor, _Told(executor) as told:
            if rank:
                return _follow(executor, told, waiting, rank)
            return _lead(executor, told, waiting, _Desk(folder, job, places, options))
    finally:
        store.close()


class _Desk:
    """Where the completions of this job are left."""

    def __init__(self, folder: JobFolder, job: int, places: dict[AttemptKey, int], options: dict[str, Any]) -> None:
        self._folder, self._job, self.places = folder, job, places
        self._leaves_stopped = options.get("on_stop") == "leave"
        self._stopped: set[int] = set()
        self.has_left = False

    def stopped(self) -> set[AttemptKey]:
        """Attempts that are not wanted any more, since the last time this was asked; the rest of the pack is."""
        fresh = self._folder.stops(self._job) - self._stopped
        self._stopped |= fresh
        return {key for key, place in self.places.items() if place in fresh}

    def drop(self, messages: Sequence[TaskMessage]) -> None:
        """These will not begin here."""
        for message in messages:
            place = self.places.pop(message.key)
            self.has_left = self.has_left or (self._leaves_stopped and place not in self._stopped)

    def take(self, report: Completion, told: _Told) -> None:
        """Leave a completion, unless it says only that the scheduler has stopped this job, which knows why."""
        key = AttemptKey(report.workflow_id, report.task, report.generation or 0, report.attempt or 0)
        place = self.places.pop(key)
        if place in self._stopped and not report.success:
            return  # whoever stopped it has said so
        if self._leaves_stopped and not report.success and told.is_stopped(report):
            self.has_left = True
        else:
            self._folder.finish(self._job, place, report)


def _lead(executor: LocalExecutor, told: _Told, waiting: list[TaskMessage], desk: _Desk) -> int:
    is_pack = len(waiting) > 1
    while desk.places:
        if is_pack and (unwanted := desk.stopped()):
            desk.drop([message for message in waiting if message.key in unwanted])
            waiting[:] = [message for message in waiting if message.key not in unwanted]
            executor.cancel(unwanted, FailureKind.CANCELLED)
        if waiting and not told.to_stop:
            del waiting[: executor.submit(waiting)]
        for report in executor.poll(_POLL_S):
            if isinstance(report, Completion):
                desk.take(report, told)
        told.pass_on()
        if told.to_stop:
            desk.drop(waiting)
            waiting.clear()
            executor.cancel(list(desk.places), FailureKind.PREEMPTED)
    return TERMINATED if desk.has_left else 0


def _follow(executor: LocalExecutor, told: _Told, waiting: list[TaskMessage], rank: int) -> int:
    """Run the tasks as another rank: under a name of its own, so that logs and outputs are not those of the first."""
    named = [dataclasses.replace(message, task=f"{message.task}.rank{rank}") for message in waiting]
    left, failed = len(named), None
    while left and failed is None and not told.to_stop:
        del named[: executor.submit(named)]
        for report in executor.poll(_POLL_S):
            if isinstance(report, Completion):
                left -= 1
                failed = failed or report.error
        told.pass_on()
    if failed is not None:
        _say(f"rank {rank}: {failed}")
    return 0 if failed is None else 1


class _Told:
    """What the scheduler has told this job by signals."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor, self.to_stop, self._has_notice = executor, False, False

    def __enter__(self) -> _Told:
        self._before = [(number, signal.signal(number, self._hear)) for number in (signal.SIGTERM, signal.SIGUSR1)]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.to_stop = True
        else:
            self._has_notice = True
        self._executor.interrupt()

    def pass_on(self) -> None:
        """Give the running task its notice."""
        if self._has_notice:
            self._has_notice = False
            self._executor.give_notice()

    def is_stopped(self, report: Completion) -> bool:
        """Whether a task failed because this job is stopped. Schedulers signal all processes of a job, one by one: the
        task may have had its SIGTERM a moment before this process."""
        deadline = time.monotonic() + _SAME_SIGNAL_S
        while not self.to_stop and _is_terminated(report) and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.to_stop


def _is_terminated(report: Completion) -> bool:
    return "SIGTERM" in (report.error or "").partition("\n")[0] or (report.usage or {}).get("signal") == "SIGTERM"


def main(arguments: Sequence[str]) -> int:
    """Run a job and return its exit code."""
    folder, index = arguments
    try:
        return run_job(JobFolder(Path(folder)), int(index if index.isdigit() else os.environ[index]))
    except KeyError:
        _say(f"the scheduler has not set {index}")
    except DagkitError as error:
        _say(str(error))
    return UNABLE


def _say(text: str) -> None:
    print(f"dagkit job: {text}", file=sys.stderr)  # noqa: T201 - the job's own log


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
