"""A whole campaign in one call: jobs are registered, submitted and followed until each of them is over."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dagkit.bulk.jobs import BulkJob, BulkStatus, CommandProfile, ExecutionProfile, HpcProfile
from dagkit.bulk.runner import BulkRunner
from dagkit.config import Settings
from dagkit.errors import RunBusy

__all__ = ["BulkResult", "run_bulk"]

log = logging.getLogger("dagkit.bulk")


@dataclass(frozen=True, slots=True)
class BulkResult:
    """How a campaign stands.

    Attributes:
        status_counts: Jobs by status.
        is_complete: Every job is over.
        problems: What keeps the rest from going on.
    """

    status_counts: Mapping[BulkStatus, int]
    is_complete: bool
    problems: Sequence[str] = field(default=())


def run_bulk(
    jobs: Iterable[BulkJob],
    command: CommandProfile | Sequence[str],
    *,
    registry: str | Path,
    execution: ExecutionProfile | None = None,
    hpc: HpcProfile | None = None,
    settings: Settings | None = None,
    progress: Callable[[BulkRunner], None] | None = None,
    timeout_s: float | None = None,
    step_s: float = 1.0,
) -> BulkResult:
    """Run jobs to their end: until each is over, or nothing more can happen (a paused queue), or the time is up.

    Waits while another process drives the registry. Jobs of a scheduler go on if this process ends; call it again with
    the same jobs to go on with them.

    Args:
        command: What to run; a list of texts does.
        progress: Called after every step.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    wanted = list(jobs)
    with BulkRunner(command, registry=registry, execution=execution, hpc=hpc, settings=settings) as runner:
        _register_when_free(runner, wanted, deadline, step_s)
        keys = {job.job_key for job in wanted}
        while True:
            runner.tick(step_s)
            if progress is not None:
                progress(runner)
            records = [record for record in runner.records() if record.job_key in keys]
            is_complete = all(record.status.is_over for record in records)
            is_late = deadline is not None and time.monotonic() > deadline
            if is_complete or is_late or runner.is_stuck:
                counts = dict(Counter(record.status for record in records))
                return BulkResult(counts, is_complete, tuple(runner.problems()))


def _register_when_free(runner: BulkRunner, jobs: Sequence[BulkJob], deadline: float | None, step_s: float) -> None:
    is_told = False
    while True:
        try:
            runner.register(jobs)
            return
        except RunBusy as busy:
            if deadline is not None and time.monotonic() > deadline:
                raise
            if not is_told:
                log.warning("waiting: %s", busy)
                is_told = True
            time.sleep(step_s)
