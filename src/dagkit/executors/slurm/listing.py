"""What `squeue` and `sacct` print, read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["SACCT_FIELDS", "SQUEUE_FORMAT", "Ended", "Listed", "elements", "read_sacct", "read_squeue"]

SQUEUE_FORMAT: Final = "%i|%T|%r|%j"
SACCT_FIELDS: Final = "JobID,State,ExitCode,MaxRSS,ElapsedRaw,NodeList,JobName"

_ELEMENTS: Final = re.compile(r"(\d+)_\[([\d,\-:]+)(?:%\d+)?(?:,?\.\.\.)?\]", re.ASCII)
_SIZE: Final = re.compile(r"([\d.]+)([KMGT]?)", re.ASCII)
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class Listed:
    """A job, or an element of an array, that the controller knows.

    Attributes:
        state: Slurm's word, `PENDING`.
        reason: Why it waits, `Resources`; `None` in Slurm's own word for no reason.
    """

    state: str
    reason: str
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A job, or an element of an array, as accounting knows it; None where it does not say.

    Attributes:
        state: Slurm's word without its addition: `CANCELLED` for `CANCELLED by 1000`.
    """

    state: str
    exit_code: int | None
    signal: int | None
    name: str = ""
    peak_rss_bytes: int | None = None
    wall_s: int | None = None
    host: str | None = None


def elements(job: str) -> Iterator[str]:
    """Ids of single elements: `12_[0-2,7%4]` is 12_0, 12_1, 12_2 and 12_7; other ids are themselves."""
    match = _ELEMENTS.fullmatch(job)
    if match is None:
        yield job
        return
    for part in filter(None, match[2].split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{match[1]}_{index}"


def read_squeue(text: str) -> dict[str, Listed]:
    """Jobs by id, elements of arrays one by one, of `squeue --noheader --format` with `SQUEUE_FORMAT`."""
    found: dict[str, Listed] = {}
    for line in text.splitlines():
        fields = line.split("|", 3)
        if len(fields) != 4:
            continue  # a warning of a plugin, say
        row = Listed(fields[1].strip(), fields[2].strip(), fields[3].strip())
        job = fields[0].strip()
        if "[" in job:
            found.update(dict.fromkeys(elements(job), row))
        else:
            found[job] = row
    return found


def read_sacct(text: str) -> dict[str, Ended]:
    """Jobs by id of `sacct --noheader --parsable2 --format` with `SACCT_FIELDS`; steps add what only they know."""
    found: dict[str, Ended] = {}
    peaks: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) != 7:
            continue
        job, _, step = fields[0].partition(".")
        peak = _bytes(fields[3])
        if peak is not None:
            peaks[job] = max(peak, peaks.get(job, 0))
        if not step:
            row = _ended(fields)
            found.update((one, row) for one in elements(job))
    return _with_peaks(found, peaks)


def _with_peaks(found: Mapping[str, Ended], peaks: Mapping[str, int]) -> dict[str, Ended]:
    return {
        job: Ended(row.state, row.exit_code, row.signal, row.name, peaks[job], row.wall_s, row.host)
        if job in peaks
        else row
        for job, row in found.items()
    }


def _ended(fields: Iterable[str]) -> Ended:
    _, state, exit_code, _, elapsed, host, name = (field.strip() for field in fields)
    code, _, number = exit_code.partition(":")
    return Ended(
        state.split(" ")[0].rstrip("+") if state else "",
        _whole(code),
        _whole(number),
        name,
        None,
        _whole(elapsed),
        host if host and host != "None assigned" else None,
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _FACTORS[match[2]]) if match else None
