"""Points in time at which something is due for a task."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

__all__ = ["Alarms"]


class Alarms:
    """At most one point in time per task. Setting and clearing cost O(log n); what was cleared is removed lazily."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, task: int) -> bool:
        return task in self._at

    def set(self, task: int, at: float) -> None:
        self._at[task] = at
        heappush(self._heap, (at, task))

    def clear(self, task: int) -> None:
        if self._at.pop(task, None) is not None and len(self._heap) > 2 * len(self._at) + 64:
            self._heap = [(at, task) for task, at in self._at.items()]
            heapify(self._heap)

    def due(self, now: float) -> list[int]:
        """Tasks whose time has come, the earliest first; each is returned once."""
        tasks = []
        while self._heap and self._heap[0][0] <= now:
            at, task = heappop(self._heap)
            if self._at.get(task) == at:
                del self._at[task]
                tasks.append(task)
        return tasks

    def next(self) -> float | None:
        """The earliest point in time, None if there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None
