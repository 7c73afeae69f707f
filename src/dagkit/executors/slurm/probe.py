"""What the accounting database says of how many jobs one may have: asked once for each queue, and only a hint."""

from __future__ import annotations

import getpass
import logging
from typing import Final

from dagkit.errors import BackendError
from dagkit.executors.slurm.commands import Commands

__all__ = ["submit_limit"]

log = logging.getLogger("dagkit.executors.slurm")

_ASSOCIATIONS: Final = ("assoc", "where", "format=Account,MaxSubmitJobs,DefaultQOS")
_QUALITIES: Final = ("qos", "format=Name,MaxSubmitJobsPerUser")


def submit_limit(commands: Commands, account: str | None, qos: str | None) -> int | None:
    """The tightest limit on a user's jobs under this account and quality of service; None if none is known.

    Refusals of sbatch say the rest: limits of groups, of partitions, and what others have submitted by then.
    """
    what, where, form = _ASSOCIATIONS
    try:
        rows = _rows(commands.sacctmgr(what, where, f"user={getpass.getuser()}", form))
        limits = _rows(commands.sacctmgr(*_QUALITIES))
    except (BackendError, OSError, KeyError) as error:
        log.debug("limits are not known: %s", error)
        return None
    own = [row for row in rows if len(row) == 3 and (account is None or row[0] == account)]
    names = {qos} if qos else {row[2] for row in own}
    found = [row[1] for row in own] if account or len(own) == 1 else []
    found += [row[1] for row in limits if len(row) == 2 and row[0] in names]
    return min((int(text) for text in found if text.isdigit()), default=None)


def _rows(text: str) -> list[list[str]]:
    return [line.split("|") for line in text.splitlines()]
