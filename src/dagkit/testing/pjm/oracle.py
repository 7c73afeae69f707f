"""The record of everything that ever happened on a simulated PJM: what tests believe (facts: pjm 11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dagkit.testing.pjm.state import State, label

__all__ = ["Change", "Oracle", "Peak", "Submit", "oracle_of"]


class Submit(NamedTuple):
    """One call of pjsub: `result` is `accepted`, PJM's code, or the fault that came before either."""

    at: float
    name: str
    arguments: str
    job: int | None
    parts: int
    result: str


class Change(NamedTuple):
    """A part came into a state."""

    at: float
    id: str
    name: str
    st: str
    pc: int


class Peak(NamedTuple):
    """The most that was ever taken of a limit; `most` None is unlimited."""

    section: str
    value: str
    name: str
    alloc: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Oracle:
    """The record.

    Attributes:
        calls: How often each command was run; `longest` the most arguments that it was given.
        runs: How often each part came to run, by id.
    """

    submits: tuple[Submit, ...]
    changes: tuple[Change, ...]
    peaks: tuple[Peak, ...]
    calls: dict[str, int]
    longest: dict[str, int]

    @property
    def runs(self) -> Counter[str]:
        return Counter(change.id for change in self.changes if change.st == "RUN")

    @property
    def refused(self) -> tuple[Submit, ...]:
        """Calls of pjsub after which there was no job."""
        return tuple(one for one in self.submits if one.job is None)

    @property
    def queue_full(self) -> int:
        """Calls that were refused because the queue was full."""
        return sum(one.result in ("0072", "queue-full") for one in self.submits)

    @property
    def duplicates(self) -> dict[str, int]:
        """Names under which more than one job was accepted."""
        counts = Counter(one.name for one in self.submits if one.job is not None)
        return {name: count for name, count in counts.items() if count > 1}

    @property
    def over(self) -> tuple[Peak, ...]:
        """Limits that were ever exceeded: none, or the simulator is wrong."""
        return tuple(peak for peak in self.peaks if peak.most is not None and peak.alloc > peak.most)

    def plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        found = asdict(self)
        for name, of in (("submits", Submit), ("changes", Change), ("peaks", Peak)):
            found[name] = [dict(zip(of._fields, one, strict=True)) for one in getattr(self, name)]
        return {**found, "duplicates": self.duplicates, "refused": len(self.refused), "queue_full": self.queue_full}


def oracle_of(state: State) -> Oracle:
    """The record so far."""
    changes = state.do(
        "SELECT at, c.job, sub, st, pc, name, kind FROM changes c JOIN jobs j ON j.job = c.job ORDER BY id"
    )
    calls = state.do("SELECT command, count, longest FROM calls")
    peaks = state.do(
        "SELECT p.section, p.value, p.name, p.alloc, l.most FROM peaks p LEFT JOIN limits l ON "
        "(l.rscunit, l.section, l.value, l.name) = (p.rscunit, p.section, p.value, p.name)"
    )
    return Oracle(
        tuple(
            Submit(*row) for row in state.do("SELECT at, name, arguments, job, parts, result FROM submits ORDER BY id")
        ),
        tuple(Change(at, label(job, sub, kind), name, st, pc) for at, job, sub, st, pc, name, kind in changes),
        tuple(Peak(*row) for row in peaks),
        {command: count for command, count, _ in calls},
        {command: longest for command, _, longest in calls},
    )
