"""A Slurm that does what a test says: commands on PATH, and a record of every job that was ever accepted."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dagkit.executors.spool import JobFolder
from dagkit.model.messages import Completion, TaskMessage
from dagkit.testing import slurm_commands

__all__ = ["FakeSlurm", "FakeSlurmJob"]

#: What can go wrong with one call of a command.
Fault = Literal[
    "fails",
    "slow",
    "refuses",
    "is full",
    "times out, accepted",
    "times out, accepted later",
    "times out, not accepted",
    "hangs, accepted",
    "kills caller before",
    "kills caller after",
]

_PROGRAMS: Final = ("sbatch", "squeue", "sacct", "sacctmgr", "scancel", "scontrol", "srun", "sinfo")
_SCRIPT: Final = """#!{python} -SE
import sys
sys.path.insert(0, {place!r})
from slurm_commands import main
sys.exit(main({command!r}, {folder!r}, sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class FakeSlurmJob:
    """A job that was accepted, or one element of an array.

    Attributes:
        id: `12`, or `12_3` for an element.
        place: The element's index; 0 for a single job.
        restarts: How often it was requeued.
    """

    id: str
    name: str
    place: int
    state: str
    script: str
    submitted_at: float
    restarts: int

    @property
    def is_active(self) -> bool:
        return self.state in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD", "CONFIGURING")


class FakeSlurm:
    """Jobs wait until the test starts them, ends them, loses them. May be used from several processes.

    Put `environment` into the environment of whatever is to find the commands.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        place = str(Path(slurm_commands.__file__).parent)
        for command in _PROGRAMS:
            path = self.bin / command
            path.write_text(
                _SCRIPT.format(python=sys.executable, place=place, command=command, folder=str(self.folder))
            )
            path.chmod(0o755)
        connection = sqlite3.connect(self.folder / "truth.db")
        connection.executescript(slurm_commands.TABLES)
        connection.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variable that makes the commands be found, before any others of their names."""
        return {"PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"}

    # --- what goes wrong

    def fault(self, command: str, fault: Fault, *, times: int = 1, value: float = 0.0) -> None:
        """The next calls of a command go wrong in this way, one after the other; `value` is seconds for waits."""
        with slurm_commands.opened(str(self.folder)) as truth:
            truth.executemany(
                "INSERT INTO faults (command, fault, value) VALUES (?, ?, ?)", [(command, fault, value)] * times
            )

    def forget_faults(self) -> None:
        """Nothing goes wrong any more."""
        self._do("DELETE FROM faults")

    def set(
        self,
        name: Literal["submit_limit", "told_limit", "sacct_lag_s", "accounting_off", "max_array_size"],
        value: float,
    ) -> None:
        """How the cluster is: a limit on active jobs, and what accounting says of it; seconds by which accounting lags;
        no accounting; array size."""
        self._do("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)

    # --- the truth

    def jobs(self, *, active: bool | None = None) -> list[FakeSlurmJob]:
        """Every job and element that was ever accepted, in order; or those that are active, or are not."""
        rows = self._do(
            "SELECT e.job, e.place, name, state, script, submitted_at, restarts FROM elements e "
            "JOIN jobs j ON e.job = j.job ORDER BY e.job, e.place"
        )
        found = [
            FakeSlurmJob(f"{job}_{place}" if place >= 0 else str(job), name, max(place, 0), *rest)
            for job, place, name, *rest in rows
        ]
        return found if active is None else [job for job in found if job.is_active is active]

    def calls(self) -> dict[str, int]:
        """How often each command was run."""
        return dict(self._do("SELECT command, count FROM calls"))

    # --- what happens to jobs

    def start(self, job: FakeSlurmJob) -> None:
        self._change(job, "state = 'RUNNING'")

    def end(self, job: FakeSlurmJob, state: str = "COMPLETED", exit_code: int = 0, signal: int = 0) -> None:
        """A job that is active ends; it is no longer listed by squeue, and by accounting after its lag."""
        self._change(
            job,
            "state = ?, exit_code = ?, signal = ?, ended_at = ?",
            state,
            exit_code,
            signal,
            time.time(),
            active=True,
        )

    def requeue(self, job: FakeSlurmJob) -> None:
        """It was preempted, or lost its node, and waits again under the same id."""
        self._change(job, "state = 'PENDING', restarts = restarts + 1, ended_at = NULL")

    def hold(self, job: FakeSlurmJob, reason: str) -> None:
        """It waits, for this reason in squeue's words."""
        self._change(job, "state = 'PENDING', reason = ?", reason)

    def vanish(self, job: FakeSlurmJob) -> None:
        """Nobody knows anything about it any more: neither the controller nor accounting."""
        self._do("DELETE FROM elements WHERE job = ? AND place = ?", *_key(job))

    def run(self, job: FakeSlurmJob, environ: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> int:
        """Run a job's script here and now, as a node would; returns and records its exit code."""
        self.start(job)
        number, _, place = job.id.partition("_")
        variables = {"SLURM_JOB_ID": number, "SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": place}
        inside = {key: value for key, value in variables.items() if value and (place or "ARRAY" not in key)}
        done = subprocess.run(
            ["bash"],
            input=job.script,
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environ or {}), **inside},
        )
        self.end(job, "COMPLETED" if done.returncode == 0 else "FAILED", max(done.returncode, 0))
        return done.returncode

    def complete(
        self,
        job: FakeSlurmJob,
        outcome: Callable[[TaskMessage], Completion] | None = None,
        *,
        end: bool = True,
        state: str = "COMPLETED",
    ) -> list[TaskMessage]:
        """Leave completions of the tasks of a job as if they had run, by `outcome` (default: success, their name as
        output), then end it; returns the tasks."""
        folder = JobFolder(_folder_of(job.script))
        _, messages, _ = folder.read(job.place)
        for place, message in enumerate(messages):
            folder.finish(job.place, place, (outcome or _success)(message))
        if end:
            self.end(job, state)
        return messages

    def run_all(self, run: Callable[[FakeSlurmJob], Any] | None = None) -> int:
        """Run whatever is pending with `run`, or `self.run`; returns how many there were."""
        waiting = [job for job in self.jobs(active=True) if job.state == "PENDING"]
        for job in waiting:
            (run or self.run)(job)
        return len(waiting)

    def _change(self, job: FakeSlurmJob, change: str, *values: object, active: bool = False) -> None:
        only = " AND ended_at IS NULL" if active else ""
        self._do(f"UPDATE elements SET {change} WHERE job = ? AND place = ?{only}", *values, *_key(job))

    def _do(self, statement: str, *values: object) -> list[Any]:
        with slurm_commands.opened(str(self.folder)) as truth:
            return truth.execute(statement, values).fetchall()


def _folder_of(script: str) -> Path:
    command = shlex.split(script.strip().splitlines()[-1])
    return Path(command[command.index("dagkit.executors.job") + 1])


def _success(message: TaskMessage) -> Completion:
    output = json.dumps(message.task)
    return Completion(message.workflow_id, message.task, True, output, None, message.attempt, message.generation)


def _key(job: FakeSlurmJob) -> tuple[int, int]:
    number, _, place = job.id.partition("_")
    return int(number), int(place) if place else -1
