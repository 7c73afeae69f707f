"""What is reported of the attempts of a job that ended without leaving their completions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dagkit.errors import DagkitError
from dagkit.executors.slurm.elements import Attempt, Element
from dagkit.executors.slurm.listing import Ended
from dagkit.executors.slurm.outcome import kind_of, words
from dagkit.executors.spool import Spool
from dagkit.model.messages import Completion
from dagkit.model.states import FailureKind
from dagkit.runtime.failure import signal_name
from dagkit.stores.base import Store

__all__ = ["completions"]

_TAIL_BYTES: Final = 4000
#: slurmstepd ends a job with it (`0:53` in sacct) if it cannot open the files for the job's output.
_NO_LOG: Final = 53
#: Exit codes of the job's own process (`dagkit.executors.job`): it was told to stop, and nobody knows by whom; it could
#: not do its work.
_OF_OURS: Final = {143: FailureKind.PREEMPTED, 70: FailureKind.NODE}


def completions(element: Element, attempts: Sequence[Attempt], spool: Spool, store: Store) -> list[Completion]:
    """One failure for each attempt, in order. In a pack the first is the one that ran; the others had not begun."""
    said = _stderr(element, spool)
    kind = kind_of(element.ended, said)
    if element.ended is not None and element.ended.state == "FAILED":
        kind = _OF_OURS.get(element.ended.exit_code or 0, kind)
    text = words(element.id or element.submission.name, element.ended, kind)
    if element.ended is not None and element.ended.signal == _NO_LOG:
        kind = FailureKind.CONFIG
        text += f": its node could not write to {spool.root}. Is that on a file system that nodes share? (`folder`)"
    full = f"{text}\n{said}" if said else text
    reports = []
    for place, attempt in enumerate(attempts):
        if place == 0:
            reports.append(_failed(attempt, full, kind, _usage(element.ended)))
            _keep(store, attempt, said)
        else:
            later = kind if kind in (FailureKind.CANCELLED, FailureKind.NODE) else FailureKind.PREEMPTED
            reports.append(_failed(attempt, f"had not begun when its job ended: {text}", later, None))
    return reports


def _failed(attempt: Attempt, text: str, kind: FailureKind, usage: dict[str, Any] | None) -> Completion:
    key = attempt.key
    return Completion(key.workflow_id, key.task, False, None, text, key.attempt, key.generation, kind, usage)


def _usage(ended: Ended | None) -> dict[str, Any] | None:
    """What accounting measured, in the words of `Completion.usage`."""
    if ended is None:
        return None
    measured = {
        "wall_s": ended.wall_s,
        "peak_rss_bytes": ended.peak_rss_bytes,
        "host": ended.host,
        "exit_code": ended.exit_code or None,
        "signal": signal_name(ended.signal) if ended.signal and ended.signal < 65 else None,
    }
    return {name: value for name, value in measured.items() if value is not None} or None


def _stderr(element: Element, spool: Spool) -> str:
    """The end of what Slurm and the job itself wrote beside the tasks' own logs."""
    if element.id is None:
        return ""
    folder: Path = spool.folder(element.submission.name).path
    said = b""
    for suffix in ("out", "err"):
        with contextlib.suppress(OSError):
            said += (folder / f"{element.id}_0_log.{suffix}").read_bytes()[-_TAIL_BYTES:]
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
