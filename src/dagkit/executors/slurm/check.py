"""Whether Slurm can be used from here, and which of one's jobs wait for what will not come: for `dagkit doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dagkit.errors import BackendError, ConfigError, MissingExtra
from dagkit.executors.slurm.commands import Commands, NoAccounting
from dagkit.executors.slurm.listing import Listed
from dagkit.executors.slurm.script import check_installed
from dagkit.executors.slurm.tracker import WORRIES

__all__ = ["check"]

_NAMED: Final = 5
Finding = tuple[str, str, str]


def check(commands: Commands | None = None) -> Iterator[Finding]:
    """(`pass` | `warn` | `fail`, what was found, what to do about it)."""
    commands = commands or Commands(10.0)
    try:
        check_installed()
        listed = commands.squeue()
    except (ConfigError, MissingExtra, BackendError) as error:
        yield "fail", str(error), ""
        return
    waiting = sum(row.state == "PENDING" for row in listed.values())
    yield "pass", f"the controller answers; {len(listed)} jobs of yours, {waiting} of them wait", ""
    yield from _worries(listed)
    try:
        commands.sacct(["1"])
        yield "pass", "accounting answers", ""
    except (NoAccounting, BackendError) as error:
        yield "warn", f"no accounting: {error}", "jobs that end without a result are judged by squeue alone"


def _worries(listed: dict[str, Listed]) -> Iterator[Finding]:
    """Jobs by the reason for which they may wait for ever."""
    by_reason: dict[str, list[str]] = {}
    for job, row in listed.items():
        if row.state == "PENDING" and any(worry in row.reason for worry in WORRIES):
            by_reason.setdefault(row.reason, []).append(job)
    for reason, jobs in by_reason.items():
        shown = ", ".join(jobs[:_NAMED]) + (f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else "")
        hint = "ask for less, or name another partition; `scancel` ends what will never run"
        yield "warn", f"waiting for {reason}, perhaps for ever: {shown}", hint
