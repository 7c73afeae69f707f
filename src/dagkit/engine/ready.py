"""The tasks that may run now, and which of them go first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from dagkit.engine.moves import READY

__all__ = ["UNLIMITED", "Lane", "ReadyTasks"]

UNLIMITED: Final = 1 << 62
_OUT, _IN, _WITHDRAWN = range(3)


class Lane:
    """Ready tasks that share a queue and, where it is limited, a template. `template` is None where it is not."""

    __slots__ = ("heap", "queue", "template")

    def __init__(self, queue: str, template: str | None) -> None:
        self.queue, self.template = queue, template
        self.heap: list[int] = []


class ReadyTasks:
    """One heap of ranks per lane; a rank is a task's place by (priority descending, definition order).

    Adding and taking cost O(log n). A task that is in no position to run when its turn comes is passed over.
    """

    __slots__ = ("_by_rank", "_lane_of", "_rank", "_where", "lanes")

    def __init__(self, lanes: list[Lane], lane_of: Sequence[int], priorities: Sequence[int] | None) -> None:
        """`priorities` is None where all are equal."""
        self.lanes, self._lane_of = lanes, array("l", lane_of)
        self._where = bytearray(len(lane_of))
        self._by_rank: list[int] | None = None
        self._rank: list[int] | None = None
        if priorities is not None:
            self._by_rank = sorted(range(len(lane_of)), key=lambda task: (-priorities[task], task))
            self._rank = [0] * len(lane_of)
            for rank, task in enumerate(self._by_rank):
                self._rank[task] = rank

    def add(self, task: int) -> None:
        if self._where[task] == _OUT:
            rank = task if self._rank is None else self._rank[task]
            heappush(self.lanes[self._lane_of[task]].heap, rank)
        self._where[task] = _IN

    def route(self, task: int, queue: str) -> None:
        """From now on `task`, which is not waiting, waits for another queue."""
        template = self.lanes[self._lane_of[task]].template
        known = {(lane.queue, lane.template): number for number, lane in enumerate(self.lanes)}
        number = known.get((queue, template), len(self.lanes))
        if number == len(self.lanes):
            self.lanes.append(Lane(queue, template))
        self._lane_of[task] = number
        self._where[task] = _OUT  # what is left of it in the heap of another lane is passed over

    def withdraw(self, task: int) -> None:
        """Leave `task` out until it is added again."""
        if self._where[task] == _IN:
            self._where[task] = _WITHDRAWN

    def take(self, states: bytearray, limit: int, room: Callable[[str], int], free: Callable[[str], int]) -> list[int]:
        """Up to `limit` tasks, the first in rank first, as the room of queues and the free places of templates allow.

        `room` and `free` are asked once per queue and limited template; `UNLIMITED` is an answer.
        """
        lanes = [lane for lane in self.lanes if lane.heap]
        chosen: list[int] = []
        if len(lanes) == 1:
            lane = lanes[0]
            most = min(limit, room(lane.queue), UNLIMITED if lane.template is None else free(lane.template))
            self._drain(lane.heap, states, most, UNLIMITED, chosen)
            return chosen
        rooms = {queue: room(queue) for queue in {lane.queue for lane in lanes}}
        frees = {name: UNLIMITED if name is None else free(name) for name in {lane.template for lane in lanes}}
        heads = [(lane.heap[0], number) for number, lane in enumerate(lanes)]
        heapify(heads)
        while heads and len(chosen) < limit:
            _, number = heappop(heads)
            lane = lanes[number]
            most = min(limit - len(chosen), rooms[lane.queue], frees[lane.template])
            if most <= 0:
                continue
            taken = self._drain(lane.heap, states, most, heads[0][0] if heads else UNLIMITED, chosen)
            rooms[lane.queue] -= taken
            if lane.template is not None:
                frees[lane.template] -= taken
            if lane.heap:
                heappush(heads, (lane.heap[0], number))
        return chosen

    def _drain(self, heap: list[int], states: bytearray, most: int, below: int, chosen: list[int]) -> int:
        """Move up to `most` tasks of ranks under `below` from a heap to `chosen`; how many they were."""
        where, by_rank, before = self._where, self._by_rank, len(chosen)
        end = before + most
        while heap and heap[0] < below and len(chosen) < end:
            task = heappop(heap) if by_rank is None else by_rank[heappop(heap)]
            if where[task] == _IN and states[task] == READY:
                chosen.append(task)
            where[task] = _OUT
        return len(chosen) - before
