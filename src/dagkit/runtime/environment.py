"""The environment of one task: the variables it may read (facts: jobq, 9) and the undoing of what it changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dagkit.model.trace_ids import TRACEPARENT, traceparent

__all__ = [
    "ATTEMPT",
    "OUTPUT_FILE",
    "STORE",
    "TASK",
    "TASK_ID",
    "TRACING",
    "UPSTREAM_REFS",
    "WORKFLOW_ID",
    "Surroundings",
    "task_id",
]

WORKFLOW_ID: Final = "JOBQ_WORKFLOW_ID"
TASK: Final = "JOBQ_WORKFLOW_TASK"
ATTEMPT: Final = "JOBQ_WORKFLOW_ATTEMPT"
TASK_ID: Final = "JOBQ_TASK_ID"
OUTPUT_FILE: Final = "JOBQ_OUTPUT_FILE"
UPSTREAM_REFS: Final = "JOBQ_WORKFLOW_UPSTREAM_REFS"
STORE: Final = "DAGKIT_STORE"
TRACING: Final = "DAGKIT_TRACING"

_SMALL: Final = 65_536


def task_id(workflow_id: str, task: str, generation: int, attempt: int) -> str:
    """The id of an attempt's message (facts: jobq 8.2)."""
    return f"{workflow_id}/{task}/{generation}.{attempt}" if generation else f"{workflow_id}/{task}/{attempt}"


def is_traced(environ: Mapping[str, str]) -> bool:
    """Whether tasks are told the span of their attempt."""
    return environ.get(TRACING, "").strip().lower() in ("1", "true", "yes", "on")


def processes_of(identity: str, scratch: Path) -> list[int]:
    """Processes that have the environment of this attempt in a worker that uses `scratch`. Empty without /proc."""
    wanted = (f"{TASK_ID}={identity}\0".encode(), f"{OUTPUT_FILE}={scratch}/".encode())
    found = []
    for pid in _process_ids():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if all(part in environ for part in wanted):
            found.append(pid)
    return found


def _process_ids() -> list[int]:
    try:
        return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return []


class Surroundings:
    """Sets up the process for each task that runs in it, and puts back what the task changed.

    Files of a task are in `scratch`: the output file does not exist before the task writes it, and its name is not used
    again once something may have been written; the refs of the parents are one file, written again when they differ.
    """

    def __init__(self, scratch: Path, store_url: str) -> None:
        self.scratch = scratch
        self._count = 0
        self._upstream: dict[str, str | None] | None = None
        self._upstream_file = str(scratch / "upstream.json")
        self._upstream_size = 0
        self._open_upstream()
        os.environ["PYTHONUNBUFFERED"] = "1"
        os.environ[STORE] = store_url
        self._base = dict(os.environ)
        self._cwd = str(Path.cwd())
        self.is_traced = is_traced(os.environ)
        traced = (TRACEPARENT,) if self.is_traced else ()
        self._names = (WORKFLOW_ID, TASK, ATTEMPT, TASK_ID, OUTPUT_FILE, UPSTREAM_REFS, *traced)
        self._keys = tuple(name.encode() for name in self._names)
        self._set: tuple[str | None, ...] = (None,) * len(self._names)
        self._raw: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
        self._expected = dict(self._raw)
        self.output_file = ""

    def variables(
        self, workflow_id: str, task: str, generation: int, attempt: int, upstream: dict[str, str | None]
    ) -> tuple[str, ...]:
        """Values for the variables of a task; writes the file that one of them names."""
        if upstream != self._upstream:
            self._write_upstream(upstream)
        if not self.output_file:
            self._count += 1
            self.output_file = f"{self.scratch}/output-{self._count}.json"
        identity = task_id(workflow_id, task, generation, attempt)
        values = (workflow_id, task, str(attempt), identity, self.output_file, self._upstream_file)
        return (*values, traceparent(workflow_id, task, generation, attempt)) if self.is_traced else values

    def enter(self, values: tuple[str, ...]) -> None:
        """Make these the values in this process; past `os.environ`, which takes four times as long."""
        raw, expected = self._raw, self._expected
        for key, value, before in zip(self._keys, values, self._set, strict=True):
            if value != before:
                data = value.encode("utf-8", "surrogateescape")
                os.putenv(key, data)
                raw[key] = expected[key] = data
        self._set = values

    def leave(self) -> None:
        """Undo changes of the environment and of the working directory."""
        if self._raw != self._expected:
            for key in [key for key in self._raw if key not in self._expected]:
                del os.environ[os.fsdecode(key)]
            for key, value in self._expected.items():
                if self._raw.get(key) != value:
                    os.environ[os.fsdecode(key)] = os.fsdecode(value)
        try:
            moved = os.getcwd() != self._cwd  # noqa: PTH109 - called for every task
        except OSError:
            moved = True
        if moved:
            os.chdir(self._cwd)

    def for_command(self, values: tuple[str, ...], own: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a command: this process's, the task's variables, then the task's own `env`."""
        return {**self._base, **dict(zip(self._names, values, strict=True)), **own}

    def new_output_file(self) -> None:
        """Use another name for the next task: something may still write to this one."""
        self.output_file = ""

    def _write_upstream(self, upstream: dict[str, str | None]) -> None:
        """Overwrites in place, padded with blanks: one system call, where truncating may make a file system write."""
        data = json.dumps(upstream).encode()
        self._upstream = None
        if self._upstream_size > _SMALL or os.fstat(self._upstream_fd).st_nlink == 0:
            os.close(self._upstream_fd)
            self._open_upstream()
        data = data.ljust(self._upstream_size)
        at = 0
        while at < len(data):
            at += os.pwrite(self._upstream_fd, memoryview(data)[at:], at)
        self._upstream, self._upstream_size = upstream, len(data)

    def _open_upstream(self) -> None:
        Path(self._upstream_file).unlink(missing_ok=True)
        self._upstream_fd = os.open(self._upstream_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._upstream_size = 0
