"""Who starts next: first come, first served, and small jobs in the gaps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Choice", "Running", "Waiting", "choose"]


class Waiting(NamedTuple):
    """One that waits, in the order of its turn."""

    key: tuple[int, int]
    node: int
    elapse_s: float


class Running(NamedTuple):
    """One that holds nodes, until `end_at` at the latest."""

    end_at: float
    node: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Who starts now, who of them in a gap, and when the next ones are expected to start."""

    start: tuple[tuple[int, int], ...]
    backfilled: frozenset[tuple[int, int]]
    predicted: dict[tuple[int, int], float]


def choose(
    now: float, free: int, most: float, waiting: Sequence[Waiting], running: Sequence[Running], *, may_backfill: bool
) -> Choice:
    """Who starts on `free` nodes, at most `most` of them. A small job may pass the first that has no room only if that
    one starts no later for it, by the elapse limits."""
    started: list[tuple[int, int]] = []
    backfilled: set[tuple[int, int]] = set()
    ends = list(running)
    place = 0
    while place < len(waiting) and waiting[place].node <= free and len(started) < most:
        one = waiting[place]
        started.append(one.key)
        ends.append(Running(now + one.elapse_s, one.node))
        free -= one.node
        place += 1
    blocked = waiting[place:]
    if not blocked:
        return Choice(tuple(started), frozenset(), {})
    begin_at, spare = _room(now, free, blocked[0].node, ends)
    predicted = {blocked[0].key: begin_at} if begin_at < float("inf") else {}
    for one in blocked[1:] if may_backfill and len(started) < most else ():
        if one.node > free or len(started) >= most:
            continue
        is_out_of_the_way = now + one.elapse_s <= begin_at
        if is_out_of_the_way or one.node <= spare:
            started.append(one.key)
            backfilled.add(one.key)
            free -= one.node
            spare -= 0 if is_out_of_the_way else one.node
    return Choice(tuple(started), frozenset(backfilled), predicted)


def _room(now: float, free: int, need: int, ends: Sequence[Running]) -> tuple[float, int]:
    """When so many nodes are free, by the limits, and how many are left over then."""
    if free >= need:
        return now, free - need
    for one in sorted(ends):
        free += one.node
        if free >= need:
            return one.end_at, free - need
    return float("inf"), 0
