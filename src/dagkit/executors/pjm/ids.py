"""Ids of jobs and of their parts: `9714`, the sub-job `9714[3]` of a bulk job, `71080_0` of a step job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["JobId", "compressed", "expanded"]

_ID: Final = re.compile(r"(?P<job>\d+)(?:\[(?P<sub>\d+)\]|_(?P<step>\d+))?", re.ASCII)
_RANGE: Final = re.compile(r"(?P<job>\d+)(?:\[(?P<first>\d+)(?:-(?P<last>\d+))?\]|_(?P<step>\d+))?", re.ASCII)
_MOST: Final = 1_000_000


class JobId(NamedTuple):
    """One job, or one part of it: `sub` is the bulk number, `step` that of a step sub-job."""

    job: str
    sub: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> JobId | None:
        """The id that `text` is; None if it is none, or a part of one."""
        match = _ID.fullmatch(text)
        if match is None:
            return None
        sub, step = match["sub"], match["step"]
        return cls(match["job"], None if sub is None else int(sub), None if step is None else int(step))

    def __str__(self) -> str:
        if self.sub is not None:
            return f"{self.job}[{self.sub}]"
        return self.job if self.step is None else f"{self.job}_{self.step}"


def compressed(ids: Iterable[JobId]) -> list[str]:
    """The arguments that name these ids, sorted by job, sub-jobs as ranges: `10[0-2] 10[5] 11`."""
    runs: list[tuple[JobId, int]] = []
    for one in sorted(set(ids), key=_order):
        if runs and one.sub is not None:
            first, last = runs[-1]
            if first.job == one.job and first.sub is not None and last + 1 == one.sub:
                runs[-1] = (first, one.sub)
                continue
        runs.append((one, one.sub or 0))
    return [str(first) if first.sub in (None, last) else f"{first.job}[{first.sub}-{last}]" for first, last in runs]


def expanded(argument: str) -> Iterator[JobId]:
    """The ids that an argument of `compressed` names. ValueError for anything else."""
    match = _RANGE.fullmatch(argument)
    if match is None:
        raise ValueError(f"{argument!r} names no job")
    job, first, last = match["job"], match["first"], match["last"]
    if first is None:
        yield JobId(job, None, None if match["step"] is None else int(match["step"]))
        return
    end = int(last) if last is not None else int(first)
    if end - int(first) >= _MOST:
        raise ValueError(f"{argument!r} names more sub-jobs than a bulk job can have")
    for sub in range(int(first), end + 1):
        yield JobId(job, sub)


def _order(one: JobId) -> tuple[int, str, int, int]:
    return (len(one.job), one.job, -1 if one.sub is None else one.sub, -1 if one.step is None else one.step)
