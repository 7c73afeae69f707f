"""What a scheduler's job runs: `python -m dagkit.executors.job FOLDER INDEX`.

Runs the tasks of one job of a submission one after the other, as the local executor does, and leaves a completion for
each (see `executors.spool`). INDEX is a number, or the name of the variable in which the scheduler gives it
(`SLURM_ARRAY_TASK_ID`, `PJM_BULKNUM`). Exit codes: 0 when every task has a completion, whatever it says; 70 when the
job could not do its work, and why on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from dagkit.errors import DagkitError
from dagkit.executors.local import LocalExecutor
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import AttemptKey, Completion
from dagkit.model.states import FailureKind
from dagkit.stores import open_store

__all__ = ["main", "run_job"]

UNABLE: Final = 70
"""EX_SOFTWARE of sysexits.h: no code that a task or a scheduler gives."""
_POLL_S: Final = 1.0
_KILL_TIMEOUT_S: Final = 20.0


def run_job(folder: JobFolder, job: int) -> None:
    """Run the tasks of a job that have no completion yet. SIGTERM stops them: what has not ended is `preempted`."""
    store_url, messages, options = folder.read(job)
    open_ = {message.key: place for place, message in enumerate(messages) if not folder.is_finished(job, place)}
    store = open_store(store_url)
    kill_timeout_s = float(options.get("kill_timeout_s", _KILL_TIMEOUT_S))
    with LocalExecutor(store, slots=1, kill_timeout_s=kill_timeout_s) as executor, _Stop(executor) as stop:
        waiting = [message for message in messages if message.key in open_]
        while open_:
            if waiting and not stop.is_asked:
                del waiting[: executor.submit(waiting)]
            for report in executor.poll(_POLL_S):
                if isinstance(report, Completion):
                    key = AttemptKey(report.workflow_id, report.task, report.generation or 0, report.attempt or 0)
                    folder.finish(job, open_.pop(key), report)
            if stop.is_asked:
                open_ = {key: place for key, place in open_.items() if all(m.key != key for m in waiting)}
                waiting = []
                executor.cancel(list(open_), FailureKind.PREEMPTED)
    store.close()


class _Stop:
    """Whether this job was told to end."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor, self.is_asked = executor, False

    def __enter__(self) -> _Stop:
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True
        self._executor.interrupt()


def main(arguments: Sequence[str]) -> int:
    """Run a job and return its exit code."""
    folder, index = arguments
    try:
        run_job(JobFolder(Path(folder)), int(index if index.isdigit() else os.environ[index]))
    except KeyError:
        print(f"dagkit job: the scheduler has not set {index}", file=sys.stderr)  # noqa: T201 - the job's own log
        return UNABLE
    except DagkitError as error:
        print(f"dagkit job: {error}", file=sys.stderr)  # noqa: T201
        return UNABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
