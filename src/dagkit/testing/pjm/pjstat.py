"""pjstat: what is known of jobs and of limits (facts: pjm 2 and 3)."""

from __future__ import annotations

import fnmatch
import time
from dataclasses import dataclass, field
from typing import Final

from dagkit.testing.pjm import faults, views
from dagkit.testing.pjm.callers import Call, kill_caller
from dagkit.testing.pjm.limits import rows
from dagkit.testing.pjm.lines import CHOICES, Cells, Line, lines
from dagkit.testing.pjm.selecting import BadId, Chosen, chosen
from dagkit.testing.pjm.site import LIMIT_NAMES
from dagkit.testing.pjm.state import State
from dagkit.testing.pjm.world import World

__all__ = ["pjstat"]

_FLAGS: Final = {
    "-v": "verbose", "-E": "parts", "--expand": "parts", "-A": "everybody", "--all": "everybody", "-s": "record",
    "-S": "record", "--data": "data", "--summary": "summary", "--with-summary": "with_summary", "--limit": "limit",
}  # fmt: skip
_KEPT_ANSWERS: Final = 50


class _Invalid(Exception):
    """An argument that pjstat does not take; the text is what it says."""


@dataclass(slots=True)
class _Asked:
    """What is asked for."""

    flags: set[str] = field(default_factory=set)
    columns: list[str] | None = None
    history_days: int | None = None
    group: str | None = None
    filters: dict[str, list[str]] = field(default_factory=dict)
    which: list[Chosen] = field(default_factory=list)


def pjstat(call: Call) -> int:
    """Run pjstat."""
    try:
        asked = _read(call.arguments)
    except _Invalid as error:
        call.complain(str(error))
        return 1
    with call.state() as state:
        World(state, call.outcome).go_on()
        kinds = ("stat-", "limits-fail") if "limit" in asked.flags else ("stat-",)
        fault = faults.taken(state, kinds, "limits" if "limit" in asked.flags else "jobs")
        text = "" if fault is not None and fault.kind == "stat-hangs" else _answer(state, asked)
    if fault is None:
        call.out.append(text)
        return 0
    if fault.kind == "stat-kills-caller":
        kill_caller(call)
        return 1
    if fault.kind in ("stat-fails", "limits-fail"):
        call.complain("[ERR.] PJM 0399 pjstat System error.")
        return 1
    if fault.kind == "stat-hangs":
        time.sleep(fault.seconds)
        return 1
    call.out.append(text[: len(text) // 2] if fault.kind == "stat-cut" else "")
    return 0


def _read(words: list[str]) -> _Asked:
    asked, rest = _Asked(), list(words)
    while rest:
        word = rest.pop(0)
        name, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _FLAGS:
            asked.flags.add(_FLAGS[name])
        elif name in ("--choose", "--filter", "--group"):
            value = value if is_joined else rest.pop(0) if rest else ""
            _read_value(asked, name, value)
        elif name in ("-H", "--history"):
            asked.history_days = 3
            if is_joined:
                asked.history_days = _days(value)
            elif rest and rest[0].startswith("day="):
                asked.history_days = _days(rest.pop(0))
        elif word.startswith("-"):
            raise _Invalid(f"[ERR.] PJM 0201 pjstat Invalid option: {word}.")
        else:
            try:
                asked.which.append(chosen(word))
            except BadId:
                raise _Invalid(f"[ERR.] PJM 0211 pjstat Invalid jobid: {word}.") from None
    if {"verbose", "record"} <= asked.flags:
        raise _Invalid("[ERR.] PJM 0203 pjstat Option -v and -s cannot be specified together.")
    return asked


def _read_value(asked: _Asked, name: str, value: str) -> None:
    if name == "--choose":
        columns = value.split(",")
        unknown = [column for column in columns if column not in CHOICES]
        if unknown:
            raise _Invalid(f"[ERR.] PJM 0202 pjstat Option argument is invalid. {unknown[0]}")
        asked.columns = [CHOICES[column] for column in columns]
    elif name == "--filter":
        key, _, wanted = value.partition("=")
        asked.filters[key] = wanted.split("+")
    else:
        asked.group = value


def _days(text: str) -> int:
    digits = text.removeprefix("day=")
    if not digits.isdigit() or not 1 <= int(digits) <= 90:
        raise _Invalid(f"[ERR.] PJM 0202 pjstat Option argument is invalid. day={digits}")
    return int(digits)


def _answer(state: State, asked: _Asked) -> str:
    if "limit" in asked.flags:
        return _limits(state, asked.group)
    if asked.history_days is not None and faults.taken(state, ("history-empty",)) is not None:
        found: list[Line] = []
    else:
        found = _found(state, asked)
    if state.site.dialect == "wisteria":
        return views.wisteria(found, Cells(state))
    if not found and asked.which and state.site.unknown_id == "nothing":
        return ""
    return _shown(state, asked, found)


def _found(state: State, asked: _Asked) -> list[Line]:
    has_parts = bool(asked.flags & {"parts", "summary", "with_summary"})
    everything = "record" in asked.flags and asked.history_days is None
    found = lines(state, asked.which, history_days=asked.history_days, has_parts=has_parts, everything=everything)
    cells = Cells(state)
    for key, wanted in asked.filters.items():
        text = cells.of(CHOICES.get(key, "JOB_ID"))
        found = [line for line in found if any(fnmatch.fnmatchcase(text(line), one) for one in wanted)]
    return found


def _shown(state: State, asked: _Asked, found: list[Line]) -> str:
    cells, site = Cells(state), state.site
    if "summary" in asked.flags:
        return views.summary(found, is_old=site.dialect == "fx100")
    if "record" in asked.flags:
        return views.records(found, cells, state.now())
    text = _counts(site.dialect, asked, found)
    if text and "parts" not in asked.flags:
        found = [line for line in found if line.is_parent or line.kind == "NM"]
    columns = asked.columns
    if columns is not None and site.has_extra_column and "RSC_GRP" not in columns:
        columns = [*columns[:-1], "RSC_GRP", columns[-1]]
    if "data" in asked.flags:
        return text + views.listed(found, cells, columns or list(views.VERBOSE))
    if columns is not None or "verbose" in asked.flags:
        return text + views.table(found, cells, columns, site.long_ids)
    are_named = "parts" not in asked.flags and any(one.first is not None for one in asked.which)
    return text + views.brief(found, cells, are_parts_named=are_named)


def _counts(dialect: str, asked: _Asked, found: list[Line]) -> str:
    """The counts that come before a table."""
    if "with_summary" in asked.flags:
        return views.summary(found) + "\n"
    is_plain = "data" not in asked.flags and asked.columns is None
    return views.summary(found, is_old=True) + "\n" if dialect == "fx100" and is_plain else ""


def _limits(state: State, group: str | None) -> str:
    text = views.limits_view(state.site, rows(state, LIMIT_NAMES, group))
    former: list[tuple[float, str]] = state.setting("limit_answers", [])
    stale = faults.taken(state, ("limits-stale",))
    state.set("limit_answers", [*former, (state.now(), text)][-_KEPT_ANSWERS:])
    if stale is None:
        return text
    old = [one for at, one in former if at <= state.now() - stale.seconds]
    return old[-1] if old else former[0][1] if former else text
