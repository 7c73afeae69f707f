"""What pjstat says of jobs and their parts, cell by cell (facts: pjm 2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from dagkit.testing.pjm.selecting import Chosen
from dagkit.testing.pjm.state import ENDED, State, label

__all__ = ["CHOICES", "Cells", "Line", "lines", "span", "used_s"]

_FIELDS: Final = (
    "p.job, p.sub, j.kind, j.name, p.st, p.lst, p.start_at, p.predicted_at, p.is_backfilled, p.ended_at, p.ec, p.pc, "
    "p.sn, p.reason, p.node, p.elapse_s, p.priority, j.accepted_at, j.grp, j.rscgrp, j.rscunit, j.options, "
    "p.queued_at, p.restarts, p.is_over, p.stopped_at"
)
_RANKS: Final = ("RUN", "RNE", "RNP", "RNA", "RNO", "QUE", "ACC", "HLD", "ERR", "EXT", "CCL", "RJT")


class Line(NamedTuple):
    """A job, a part of one, or (`is_parent`) what sums up the parts of one."""

    job: int
    sub: int
    kind: str
    name: str
    st: str
    lst: str
    start_at: float | None
    predicted_at: float | None
    is_backfilled: int
    ended_at: float | None
    ec: int | None
    pc: int
    sn: int
    reason: str
    node: int
    elapse_s: int
    priority: int
    accepted_at: float
    grp: str
    rscgrp: str
    rscunit: str
    options: str
    queued_at: float | None
    restarts: int
    is_over: int
    stopped_at: float | None
    is_parent: bool = False

    def option(self, name: str, default: str = "-") -> str:
        return str(json.loads(self.options).get(name, default))


def lines(
    state: State,
    which: Sequence[Chosen] = (),
    *,
    history_days: int | None = None,
    has_parts: bool = False,
    everything: bool = False,
) -> list[Line]:
    """Jobs of the live view, or of the history, in order; `has_parts` with their parts; `everything` ever."""
    now, site = state.now(), state.site
    values: tuple[float, ...] = ()
    if everything:
        where = "1"
    elif history_days is None:
        where, values = "(p.is_over = 0 OR p.ended_at > ?)", (now - site.live_s,)
    else:
        where = "p.is_over = 1 AND p.ended_at <= ? AND p.ended_at > ?"
        values = (now - site.history_lag_s, now - min(history_days, site.history_days) * 86400.0)
    found: list[Line] = []
    for condition, ids in [one.where() for one in which] or [("1", ())]:
        found += _found(state, f"{where} AND {condition}", (*values, *ids))
    named = {(one.jobs[0], sub) for one in which if one.first is not None for sub in range(one.first, one.last + 1)}
    found = sorted(set(found), key=lambda line: (line.job, line.sub)) if len(which) > 1 else found
    return list(_with_parents(state, found, named, has_parts))


def _found(state: State, where: str, values: tuple[Any, ...]) -> list[Line]:
    rows = state.do(
        f"SELECT {_FIELDS} FROM parts p JOIN jobs j ON j.job = p.job WHERE {where} ORDER BY p.job, p.sub", *values
    )
    return [Line(*row) for row in rows]


def _with_parents(state: State, found: list[Line], named: set[tuple[int, int]], has_parts: bool) -> Iterable[Line]:
    last = None
    for line in found:
        is_named = (line.job, line.sub) in named
        if line.kind != "NM" and line.job != last and not is_named:
            last = line.job
            yield _parent(state, line)
        if line.kind == "NM" or has_parts or is_named:
            yield line


def _parent(state: State, line: Line) -> Line:
    """RUN if any part runs, RNO when some have ended and none runs, EXT when all have (facts: pjm 11)."""
    counts = dict(state.do("SELECT st, count(*) FROM parts WHERE job = ? GROUP BY st", line.job))
    start_at, ended_at = state.do("SELECT min(start_at), max(ended_at) FROM parts WHERE job = ?", line.job)[0]
    over = sum(counts.get(st, 0) for st in ENDED)
    if over == sum(counts.values()):
        st = "EXT"
    elif any(counts.get(st) for st in ("RUN", "RNE", "RNP")):
        st = "RUN"
    elif over or counts.get("RNO"):
        st = "RNO"
    else:
        st = next(one for one in _RANKS if counts.get(one))
    return line._replace(
        sub=-1, st=st, lst="-" if st == "ACC" else "QUE", start_at=start_at, ended_at=ended_at if st == "EXT" else None,
        ec=None, pc=0, sn=0, reason="-", is_parent=True, is_over=int(st == "EXT"),
    )  # fmt: skip


def used_s(line: Line, now: float) -> float:
    """How long it has run."""
    if line.start_at is None:
        return 0.0
    end_at = line.stopped_at or line.ended_at or now
    return end_at - line.start_at


def span(seconds: float, hours: int = 4) -> str:
    """`hhhh:mm:ss`."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:0{hours}}:{whole % 3600 // 60:02}:{whole % 60:02}"


class Cells:
    """The text of cells, at one moment."""

    def __init__(self, state: State) -> None:
        self._now, self._user = state.now(), state.site.user

    def of(self, name: str) -> Callable[[Line], str]:
        """How a column is written, by its header."""
        found: Callable[[Line], str] = getattr(self, f"_{CELLS[name]}")
        return found

    def _id(self, line: Line) -> str:
        return label(line.job, line.sub, line.kind)

    def _name(self, line: Line) -> str:
        return line.name

    def _kind(self, line: Line) -> str:
        return line.kind

    def _st(self, line: Line) -> str:
        return line.st

    def _lst(self, line: Line) -> str:
        return line.lst

    def _own(self, line: Line) -> str:
        return self._user

    def _group(self, line: Line) -> str:
        return line.grp

    def _start(self, line: Line) -> str:
        mark = "<" if line.is_backfilled else ""
        if line.start_at is not None:
            return _date(line.start_at) + mark
        if line.predicted_at is not None and not line.is_over:
            return time.strftime("(%m/%d %H:%M)", time.localtime(line.predicted_at)) + mark
        return "-"

    def _elapsed(self, line: Line) -> str:
        return span(used_s(line, self._now))

    def _limit(self, line: Line) -> str:
        return "-" if line.kind == "ST" and line.is_parent else span(line.elapse_s)

    def _nodes(self, line: Line) -> str:
        return "-" if line.kind == "ST" and line.is_parent else line.option("shape", str(line.node))

    def _ec(self, line: Line) -> str:
        if line.ec is not None:
            return str(line.ec)
        return "-" if line.is_parent or line.is_over or line.st in ("ERR", "HLD") else "0"

    def _pc(self, line: Line) -> str:
        return str(line.pc)

    def _sn(self, line: Line) -> str:
        return str(line.sn)

    def _priority(self, line: Line) -> str:
        return str(line.priority)

    def _accept(self, line: Line) -> str:
        return _date(line.accepted_at)

    def _queued(self, line: Line) -> str:
        return "-" if line.queued_at is None else _date(line.queued_at)

    def _end(self, line: Line) -> str:
        return "-" if line.ended_at is None else _date(line.ended_at)

    def _rscgrp(self, line: Line) -> str:
        return line.rscgrp

    def _rscunit(self, line: Line) -> str:
        return line.rscunit

    def _reason(self, line: Line) -> str:
        return line.reason

    def _comment(self, line: Line) -> str:
        return line.option("comment")

    def _restarts(self, line: Line) -> str:
        return str(line.restarts)

    def _bychip(self, line: Line) -> str:
        return "bychip"

    def _nothing(self, line: Line) -> str:
        return "-"


def _date(at: float) -> str:
    return time.strftime("%m/%d %H:%M:%S", time.localtime(at))


#: How a column is written, by its header.
CELLS: Final = {
    "JOB_ID": "id", "JOB_NAME": "name", "MD": "kind", "ST": "st", "USER": "own", "GROUP": "group",
    "START_DATE": "start", "ELAPSE_TIM": "elapsed", "ELAPSE_LIM": "limit", "NODE_REQUIRE": "nodes", "VNODE": "nothing",
    "CORE": "nothing", "V_MEM": "nothing", "V_POL": "nothing", "E_POL": "nothing", "RANK": "bychip", "LST": "lst",
    "EC": "ec", "PC": "pc", "SN": "sn", "PRI": "priority", "ACCEPT": "accept", "RSC_GRP": "rscgrp", "REASON": "reason",
    "RSC_UNIT": "rscunit", "COMMENT": "comment", "QUEUED": "queued", "END_DATE": "end", "RETRY_NUM": "restarts",
}  # fmt: skip
#: Headers of `--choose` by the names that are asked for. Those that the facts do not show are inferred.
CHOICES: Final = {
    "jid": "JOB_ID", "jnam": "JOB_NAME", "jmdl": "MD", "st": "ST", "usr": "USER", "grp": "GROUP", "sdt": "START_DATE",
    "elp": "ELAPSE_TIM", "elpl": "ELAPSE_LIM", "nnumr": "NODE_REQUIRE", "lst": "LST", "ec": "EC", "pc": "PC",
    "sn": "SN", "pri": "PRI", "adt": "ACCEPT", "rscg": "RSC_GRP", "rscu": "RSC_UNIT", "ermsg": "REASON",
    "cmt": "COMMENT", "qdt": "QUEUED", "exc": "END_DATE", "rnum": "RETRY_NUM",
}  # fmt: skip
