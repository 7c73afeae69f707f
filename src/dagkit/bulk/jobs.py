"""What is to be run, how, and where: typed objects that say what a bulk job is."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dagkit.errors import UsageError
from dagkit.model.resources import resource_faults

__all__ = ["BulkJob", "BulkStatus", "CommandProfile", "ExecutionProfile", "HpcProfile", "command_of", "fingerprint_of"]


class BulkStatus(str, Enum):
    """Where a bulk job is."""

    PENDING = "PENDING"
    SUBMIT_DEFERRED = "SUBMIT_DEFERRED"
    """The gate or the scheduler did not take it yet: it is tried again."""
    SUBMITTED = "SUBMITTED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    """The scheduler does not say; it counts as active."""

    @property
    def is_over(self) -> bool:
        return self in (BulkStatus.SUCCEEDED, BulkStatus.FAILED, BulkStatus.CANCELLED)

    @property
    def is_active(self) -> bool:
        """Whether the scheduler has it, or may have it."""
        return not self.is_over and self not in (BulkStatus.PENDING, BulkStatus.SUBMIT_DEFERRED)


@dataclass(frozen=True, slots=True)
class CommandProfile:
    """What to run: a program and its first arguments, as a list. No shell takes it apart."""

    command: Sequence[str]

    def __post_init__(self) -> None:
        is_list = isinstance(self.command, Sequence) and not isinstance(self.command, str)
        if not is_list or not self.command or not all(isinstance(part, str) for part in self.command):
            raise UsageError(f"command: {self.command!r:.60} is not a list of texts, such as ['./simulate', '--fast']")


@dataclass(frozen=True, slots=True)
class ExecutionProfile:
    """How to run it.

    Attributes:
        resources: As tasks take them: runtime, nodes, cores, memory, gpus, extra.
        env: Variables of the command.
    """

    resources: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = resource_faults(dict(self.resources), refs_allowed=False)
        if faults:
            raise UsageError("; ".join(f"resources.{text}" for _, text in faults))


@dataclass(frozen=True, slots=True)
class HpcProfile:
    """Where to run it.

    Attributes:
        target: `local`, `slurm`, `pjm`, or a target of dagkit.toml.
        queue: Resource group or partition; for a target of dagkit.toml a queue of it.
        project: Who pays: group of PJM, account of Slurm.
        options: Further settings of a queue, as in dagkit.toml: mode, node, llio, setup, max_submit_per_refill, ...
    """

    target: str = "local"
    queue: str | None = None
    project: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BulkJob:
    """One logical job.

    Attributes:
        job_key: Names it for ever: the same key is never run twice at a time, and not again once it has succeeded,
            unless what would run has changed.
        work_dir: Where the command runs; made if it is not there.
        command_args: Further arguments: a list as it is, a table as `--key value` (true: the key alone).
        stage_id, wave_id, target_id: For your own questions; a wave is ready when all its jobs have succeeded.
        priority: Higher goes first.
        expected_outputs: Files below work_dir that must be there, and newly written, for a success.
        max_submit_attempts: How often it may be submitted before it fails for good.
        execution_profile, hpc_profile: Instead of the runner's.
    """

    job_key: str
    work_dir: str | Path
    command_args: Mapping[str, Any] | Sequence[str] = ()
    stage_id: str | None = None
    wave_id: str | None = None
    target_id: str | None = None
    priority: int = 0
    expected_outputs: Sequence[str] = ()
    max_submit_attempts: int = 5
    execution_profile: ExecutionProfile | None = None
    hpc_profile: HpcProfile | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.job_key, str) or not self.job_key.strip():
            raise UsageError(f"job_key: {self.job_key!r:.60} is blank; it names the job for ever")
        if isinstance(self.command_args, str):
            raise UsageError(f"{self.job_key}: command_args: a text; allowed: a list of texts, or a table")
        if isinstance(self.expected_outputs, str):
            raise UsageError(f"{self.job_key}: expected_outputs: a text; allowed: a list of paths")
        for path in self.expected_outputs:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise UsageError(f"{self.job_key}: expected_outputs: {path!r:.60} is not below work_dir")
        if type(self.max_submit_attempts) is not int or self.max_submit_attempts < 1:
            raise UsageError(f"{self.job_key}: max_submit_attempts: {self.max_submit_attempts!r:.40}; allowed: from 1")
        if any("\0" in part for part in _arguments(self.command_args)):
            raise UsageError(f"{self.job_key}: command_args: an argument cannot hold a NUL character")


def _arguments(given: Mapping[str, Any] | Sequence[str]) -> list[str]:
    if not isinstance(given, Mapping):
        return [str(part) for part in given]
    found: list[str] = []
    for key, value in given.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        found += [f"--{key}", *(str(item) for item in values if item is not True)]
    return found


def command_of(command: CommandProfile, job: BulkJob) -> str:
    """The command line; every argument arrives in the program byte for byte."""
    return shlex.join([*command.command, *_arguments(job.command_args)])


def fingerprint_of(command: CommandProfile, execution: ExecutionProfile, job: BulkJob) -> str:
    """A digest of what would run: command, arguments, folder, variables, expected outputs."""
    what = [
        list(command.command),
        _arguments(job.command_args),
        str(Path(job.work_dir).absolute()),
        sorted(execution.env.items()),
        sorted(job.expected_outputs),
    ]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
