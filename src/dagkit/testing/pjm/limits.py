"""How much a simulated PJM takes: limits, what our jobs consume of them, and what others do (facts: pjm 3)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from dagkit.testing.pjm.state import ACTIVE, ON_NODES, State

__all__ = ["Account", "Row", "check_accept", "note_peaks", "rows", "run_room", "set_limit"]

_NODES: Final = ", ".join(f"'{state}'" for state in ON_NODES)


class Account(NamedTuple):
    """Whom a job is charged to."""

    rscunit: str
    user: str
    group: str


class Row(NamedTuple):
    """One row of `pjstat --limit`; `most` None is unlimited."""

    section: str
    value: str
    name: str
    most: int | None
    alloc: int


def set_limit(state: State, section: str, name: str, most: int | None, value: str = "") -> None:
    """A limit of a section (USER, GROUP, ALL); by default of the only user, or of every group."""
    site = state.site
    values = [value] if value else {"USER": [site.user], "GROUP": list(site.groups), "ALL": [""]}[section]
    for one in values:
        state.do("INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?, ?)", site.rscunit, section, one, name, most)


def rows(state: State, names: Iterable[str], group: str | None = None) -> list[Row]:
    """Limits and what is taken of them, for the user, for the groups (or one) and for all, in this order."""
    site, names = state.site, list(names)
    most = {
        (section, value, name): limit
        for section, value, name, limit in state.do("SELECT section, value, name, most FROM limits")
    }
    load, used = _load(state), _used(state)
    groups = [one for one in site.groups if group in (None, one)]
    total: dict[str, int] = {}
    for one in site.groups:
        for name in names:
            total[name] = total.get(name, 0) + used.get((one, name), 0)
    found = [Row("USER", site.user, name, most.get(("USER", site.user, name)), total.get(name, 0)) for name in names]
    others: dict[str, int] = dict.fromkeys(names, 0)
    for one in site.groups:
        for name in names:
            ours, limit = used.get((one, name), 0), most.get(("GROUP", one, name))
            taken = load.get(("GROUP", one, name), 0)
            room = None if limit is None else max(0, limit - ours)
            taken = taken if room is None else min(taken, room)
            others[name] += taken
            if one in groups:
                found.append(Row("GROUP", one, name, limit, ours + taken))
    for name in names:
        limit = most.get(("ALL", "", name))
        ours = total.get(name, 0)
        alloc = ours + others[name] + load.get(("ALL", "", name), 0)
        found.append(Row("ALL", "", name, limit, alloc if limit is None else min(alloc, max(limit, ours))))
    return found


def _used(state: State) -> dict[tuple[str, str], int]:
    """What our jobs take, by group and name."""
    counted = state.do(
        f"SELECT grp, kind, count(DISTINCT p.job), count(*), sum(st IN ({_NODES})), "
        f"sum(CASE WHEN st IN ({_NODES}) THEN p.node ELSE 0 END) "
        f"FROM parts p JOIN jobs j ON j.job = p.job WHERE {ACTIVE} GROUP BY grp, kind"
    )
    found: dict[tuple[str, str], int] = {}

    def add(group: str, name: str, count: int) -> None:
        found[group, name] = found.get((group, name), 0) + count

    for group, kind, jobs, parts, running, nodes in counted:
        add(group, "ru-accept", jobs)
        if kind != "NM" or state.site.does_single_count:
            add(group, "ru-accept-allsubjob", parts)
        if kind == "BU":
            add(group, "ru-accept-bulksubjob", parts)
            add(group, "ru-run-bulksubjob", running)
        if kind == "ST":
            add(group, "ru-accept-stepsubjob", parts)
        add(group, "ru-run-job", running)
        add(group, "ru-use-node", nodes)
    return found


def _load(state: State) -> dict[tuple[str, str, str], int]:
    """What others take: a steady part, and neighbours of whose jobs some change every minute."""
    found = {(section, value, name): alloc for section, value, name, alloc in state.do("SELECT * FROM load")}
    noisy: dict[str, Any] = state.setting("neighbours", {})
    for name, one in noisy.items():
        change = int(state.now() // one["every_s"])
        dice = random.Random(f"{one['seed']} {name} {change}")
        count = one["least"] + dice.randrange(one["most"] - one["least"] + 1)
        for group in state.site.groups:
            found["GROUP", group, name] = found.get(("GROUP", group, name), 0) + count
    return found


def check_accept(state: State, kind: str, parts: int, group: str) -> bool:
    """Whether one more job with so many parts is taken; all or nothing, over every section."""
    need = {"ru-accept": 1}
    if kind != "NM" or state.site.does_single_count:
        need["ru-accept-allsubjob"] = parts
    if kind != "NM":
        need["ru-accept-bulksubjob" if kind == "BU" else "ru-accept-stepsubjob"] = parts
    return all(row.most is None or row.alloc + need[row.name] <= row.most for row in rows(state, list(need), group))


def run_room(state: State) -> tuple[float, float]:
    """How many more parts may run, and on how many nodes."""
    found = {"ru-run-job": float("inf"), "ru-use-node": float("inf")}
    if not state.do("SELECT 1 FROM limits WHERE name IN ('ru-run-job', 'ru-use-node') AND most IS NOT NULL LIMIT 1"):
        return found["ru-run-job"], found["ru-use-node"]
    for row in rows(state, list(found)):
        if row.most is not None:
            found[row.name] = min(found[row.name], max(0, row.most - row.alloc))
    return found["ru-run-job"], found["ru-use-node"]


def note_peaks(state: State) -> None:
    """Remember the most that was ever taken of each limit."""
    names = ("ru-accept", "ru-accept-allsubjob", "ru-accept-bulksubjob", "ru-run-job", "ru-use-node")
    state.do_many(
        "INSERT INTO peaks VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET alloc = max(alloc, excluded.alloc)",
        [(state.site.rscunit, row.section, row.value, row.name, row.alloc) for row in rows(state, names)],
    )
