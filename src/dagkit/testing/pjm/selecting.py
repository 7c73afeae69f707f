"""Which jobs a command is about: `N`, `N-M`, `N[i]`, `N[i-j]`, `N_k`, `N_k-m` (facts: pjm 2.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["BadId", "Chosen", "chosen"]

_ID: Final = re.compile(
    r"(?P<job>\d+)(?:-(?P<to>\d+)|\[(?P<sub>\d+)(?:-(?P<last>\d+))?\]|_(?P<step>\d+)(?:-(?P<end>\d+))?)?", re.ASCII
)


class BadId(Exception):
    """It is no id."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Jobs, or parts of one job (`first` to `last`; None: the whole job)."""

    text: str
    jobs: tuple[int, int]
    first: int | None = None
    last: int = 0

    def where(self) -> tuple[str, tuple[int, ...]]:
        """A condition on `job` and `sub`, and its values."""
        if self.first is None:
            return "p.job BETWEEN ? AND ?", self.jobs
        return "p.job = ? AND p.sub BETWEEN ? AND ?", (self.jobs[0], self.first, self.last)


def chosen(word: str) -> Chosen:
    """What an argument names. `BadId` for anything else."""
    match = _ID.fullmatch(word)
    if match is None:
        raise BadId(word)
    job = int(match["job"])
    if match["to"] is not None:
        return Chosen(word, (job, int(match["to"])))
    first, last = match["sub"] or match["step"], match["last"] or match["end"]
    if first is None:
        return Chosen(word, (job, job))
    return Chosen(word, (job, job), int(first), int(last if last is not None else first))
