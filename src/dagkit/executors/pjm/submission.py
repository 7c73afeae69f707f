"""What a call of pjsub, or of pjdel, came to (facts: pjm 1 and 8.1).

Only the text after `PJM <code> pjsub` counts: never the command line, a path or the name of a script.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dagkit.executors.pjm.ids import JobId, expanded

__all__ = ["Answer", "Deleted", "Verdict", "read_pjdel", "read_pjsub"]

_SUBMITTED: Final = re.compile(
    r"^\[(?:INFO|WARN)\.?\]\s+PJM\s+0000\s+pjsub\s+Job\s+(\d+(?:_\d+)?)\s+submitted\.?\s*$", re.MULTILINE
)
_BARE: Final = re.compile(r"^(\d+(?:_\d+)?)$", re.MULTILINE)
_CODED: Final = re.compile(r"^\[ERR\.?\]\s+PJM\s+(\d{4})\s+pjsub\s*(.*?)\s*$", re.MULTILINE)
_BOUND: Final = re.compile(r"([\w-]+)=(\d+) is (?:greater|less) than the (?:upper|lower) limit \((\d+)\)")
_CONFIG_TEXTS: Final = (
    "The current directory is not a data area",
    "If you use Spack, set PJM_LLIO_GFSCACHE",
    "The current directory is contained in vol",
)
_CONFIG_CODES: Final = frozenset(("0007", "0012", "0020", "0045", "0049", "0054", "0057", "0071"))
#: Reasons of 0079 by what they begin with, and whether somebody who waits can hope (facts: pjm 1.2).
_GATE: Final = (
    ("group is not active", "Q01"),
    ("user is not active", "Q02"),
    ("Node is too few", "Q03"),
    ("Elapse limit is too short", "Q04"),
    ("Use resource is too few", "Q05"),
    ("Node is too many", "Q06"),
    ("Elapse limit is too long", "Q07"),
    ("Use resource is too many", "Q08"),
    ("Computing resources shortage occurred.[group]", "Q09"),
    ("Computing resources shortage occurred.[rsc-grp]", "Q10"),
    ("Computing resources shortage occurred.[user]", "Q11"),
)
_ACCEPTED: Final = re.compile(r"^\[INFO\.?\]\s+PJM\s+0100\s+pjdel\s+Accepted\s+job\s+(\S+?)\.?\s*$", re.MULTILINE)
_GONE: Final = re.compile(r"^\[ERR\.?\]\s+PJM\s+\d{4}\s+pjdel\s+Job\s+(\S+)\s+does not exist\.?\s*$", re.MULTILINE)


class Verdict(Enum):
    """What follows from the answer to a submission."""

    SUBMITTED = "submitted"
    QUEUE_FULL = "queue_full"
    """Later, at no cost; less at once."""
    BUDGET = "budget"
    """The project's budget is used up: the campaign pauses and no job fails."""
    RESTRICTED = "restricted"
    """The operator's restriction for the time being: again in an hour."""
    CONFIG = "config"
    """Wrong for this site, and wrong the next time too."""
    BULK_DENIED = "bulk_denied"
    """Single jobs only."""
    UNKNOWN_REJECT = "unknown_reject"
    """A code that is not known: a few more tries, then a pause."""
    AMBIGUOUS = "ambiguous"
    """It may have been accepted: its name is looked for before anything is submitted again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one submission.

    Attributes:
        job: Id of the job, or of a bulk job's parent; with `step` of a step sub-job.
        warnings: Other lines that came with a success.
        code: PJM's four digits, if there are any; `reason` Q01 to Q11 of the gate.
        field, value, limit: Of a resource that is out of bounds.
        text: What it said, for people.
    """

    verdict: Verdict
    job: str | None = None
    step: int | None = None
    warnings: tuple[str, ...] = ()
    code: str | None = None
    reason: str | None = None
    field: str | None = None
    value: int | None = None
    limit: int | None = None
    text: str = ""


def read_pjsub(rc: int | None, stdout: str, stderr: str) -> Answer:
    """What a pjsub that ended with `rc` said; None for one that did not end in time."""
    said = f"{stdout}\n{stderr}"
    submitted = _SUBMITTED.search(said) or (_BARE.search(stdout.strip()) if rc == 0 else None)
    coded = _CODED.search(said)
    if submitted is not None:
        job, _, step = submitted[1].partition("_")
        lines = (line.strip() for line in said.splitlines())
        others = tuple(line for line in lines if line and line != submitted[0].strip())
        return Answer(Verdict.SUBMITTED, job, int(step) if step else None, others)
    text = _first_line(said)
    if rc is None or rc < 0 or rc == 255:
        how = "did not answer in time" if rc is None else f"ended with {rc}"
        return Answer(Verdict.AMBIGUOUS, text=f"pjsub {how}" + (f": {text}" if text else ""))
    if coded is not None:
        return _refused(coded[1], coded[2])
    if any(words in said for words in _CONFIG_TEXTS):
        return Answer(Verdict.CONFIG, text=text)
    if rc == 0:
        return Answer(Verdict.AMBIGUOUS, text=f"pjsub named no job: {text}" if text else "pjsub said nothing")
    return Answer(Verdict.UNKNOWN_REJECT, text=text or f"pjsub ended with {rc} without a word")


def _refused(code: str, text: str) -> Answer:
    if code == "0072":
        return Answer(Verdict.QUEUE_FULL, code=code, text=text)
    if code == "0070":
        return Answer(Verdict.BULK_DENIED, code=code, text=text)
    if code == "0079":
        return _gated(code, text)
    if code in _CONFIG_CODES:
        bound = _BOUND.search(text)
        if bound is None:
            return Answer(Verdict.CONFIG, code=code, text=text)
        return Answer(Verdict.CONFIG, code=code, field=bound[1], value=int(bound[2]), limit=int(bound[3]), text=text)
    return Answer(Verdict.UNKNOWN_REJECT, code=code, text=text)


def _gated(code: str, text: str) -> Answer:
    reason = next((reason for words, reason in _GATE if text.startswith(words)), None)
    if reason is None:
        return Answer(Verdict.UNKNOWN_REJECT, code=code, text=text)
    verdict = Verdict.CONFIG if reason <= "Q02" else Verdict.RESTRICTED if reason <= "Q08" else Verdict.BUDGET
    return Answer(verdict, code=code, reason=reason, text=text)


def _first_line(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "")


@dataclass(frozen=True, slots=True)
class Deleted:
    """What pjdel said. Accepted is not deleted yet; what is gone need not be deleted any more."""

    accepted: tuple[JobId, ...] = ()
    gone: tuple[JobId, ...] = ()


def read_pjdel(said: str) -> Deleted:
    """What pjdel printed, on either stream."""
    return Deleted(_ids(_ACCEPTED.findall(said)), _ids(_GONE.findall(said)))


def _ids(words: list[str]) -> tuple[JobId, ...]:
    found: list[JobId] = []
    for word in words:
        try:
            found += expanded(word)
        except ValueError:
            continue
    return tuple(found)
