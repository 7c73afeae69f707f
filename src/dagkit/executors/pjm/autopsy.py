"""What is reported of the attempts of a job that ended without leaving their completions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from dagkit.errors import DagkitError
from dagkit.executors.pjm.jobs import Attempt, Job
from dagkit.executors.pjm.listing import Row
from dagkit.executors.spool import Spool
from dagkit.model.messages import Completion
from dagkit.model.states import FailureKind
from dagkit.runtime.failure import signal_name
from dagkit.stores.base import Store

__all__ = ["Row", "completions", "failed"]

_TAIL_BYTES: Final = 4000
#: Exit codes of the job's own process (`dagkit.executors.job`): it was told to stop, and nobody knows by whom; it could
#: not do its work.
_OF_OURS: Final = {143: FailureKind.PREEMPTED, 70: FailureKind.NODE}
_OTHERS: Final = (FailureKind.CANCELLED, FailureKind.NODE, FailureKind.CONFIG)


def completions(
    job: Job, attempts: Sequence[Attempt], kind: FailureKind, words: str, spool: Spool, store: Store
) -> list[Completion]:
    """One failure for each attempt, in order. In a pack the first is the one that ran; the others had not begun."""
    said, row = _output(job, spool), job.row
    if kind is FailureKind.USER and row is not None:
        kind = _OF_OURS.get(row.ec or 0, kind)
    text = f"PJM job {job.id or job.submission.name} {words}"
    reports = []
    for place, attempt in enumerate(attempts):
        if place == 0:
            reports.append(failed(attempt, f"{text}\n{said}" if said else text, kind, _usage(row)))
            _keep(store, attempt, said)
        else:
            later = kind if kind in _OTHERS else FailureKind.PREEMPTED
            reports.append(failed(attempt, f"had not begun when its job ended: {text}", later))
    return reports


def failed(attempt: Attempt, text: str, kind: FailureKind, usage: dict[str, Any] | None = None) -> Completion:
    """A failure of one attempt."""
    key = attempt.key
    return Completion(key.workflow_id, key.task, False, None, text, key.attempt, key.generation, kind, usage)


def _usage(row: Row | None) -> dict[str, Any] | None:
    """What PJM says of its end, in the words of `Completion.usage`."""
    if row is None:
        return None
    signal = signal_name(row.sn) if row.sn and row.sn < 65 else None
    measured = {"exit_code": row.ec or None, "signal": signal, "wall_s": row.elapse_s}
    return {name: value for name, value in measured.items() if value is not None} or None


def _output(job: Job, spool: Spool) -> str:
    """The end of what the job itself wrote beside the tasks' own logs."""
    folder = spool.folder(job.submission.name).path
    said = b""
    for name in ("pjm.out", f"out.{job.index}"):
        with contextlib.suppress(OSError):
            said += (folder / name).read_bytes()[-_TAIL_BYTES:]
    return said.decode("utf-8", "replace").strip()


def _keep(store: Store, attempt: Attempt, said: str) -> None:
    """Add it to the attempt's log. One that cannot be kept is in the error all the same."""
    if not said:
        return
    key = attempt.key
    number = f"{key.generation}.{key.attempt}"
    with contextlib.suppress(DagkitError):
        size = len(store.read_log(key.workflow_id, key.task, number))
        store.append_log(key.workflow_id, key.task, number, size, f"{said}\n".encode())
