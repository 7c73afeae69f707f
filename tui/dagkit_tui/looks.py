"""What a screen shows, as a thread finds it in the store. Findings that are equal need not be drawn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dagkit.model.records import RunRow
from dagkit.model.states import RunStatus
from dagkit.notebook.text import walk
from dagkit.queues.base import QueueStats, Transport
from dagkit.rows import TaskRow, task_row
from dagkit.run import Run
from dagkit.stores.base import Store
from dagkit.viewing import Filter, LogTail, Page, RunViewer, Snapshot
from dagkit.viewing.pace import RateMeter

__all__ = [
    "LogLook",
    "LogLooker",
    "QueueLook",
    "QueuesLook",
    "RunLook",
    "RunLooker",
    "RunsLook",
    "RunsLooker",
    "TaskLook",
    "TaskLooker",
    "Wanted",
    "look_at_queues",
]

#: Runs that a listing reads; older ones are found with `dagkit list`.
MAX_RUNS: Final = 2000
_NEIGHBOURS: Final = 30


@dataclass(frozen=True, slots=True)
class RunsLook:
    """The runs of a store; `rates` are tasks that ended a second, by id, lately."""

    rows: tuple[RunRow, ...]
    rates: dict[str, float]
    now: float = field(compare=False)

    def left_s(self, row: RunRow) -> float | None:
        """Seconds until the run is over at this rate; None if nobody can tell."""
        rate = self.rates.get(row.workflow_id)
        return (row.counts.total - row.counts.ended) / rate if rate else None


class RunsLooker:
    """Lists the runs of a store, again and again."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._meters: dict[str, RateMeter] = {}

    def __call__(self) -> RunsLook:
        rows = self._store.rows(limit=MAX_RUNS)
        now = self._store.now()
        going = [row for row in rows if not _is_over(row)]
        self._meters = {row.workflow_id: self._meters.get(row.workflow_id) or RateMeter() for row in going}
        rates = {row.workflow_id: self._rate(row, now) for row in going}
        return RunsLook(tuple(rows), {name: rate for name, rate in rates.items() if rate}, now)

    def _rate(self, row: RunRow, now: float) -> float | None:
        meter = self._meters[row.workflow_id]
        meter.note(self._clock(), row.counts.ended)
        rate = meter.rate(now - row.created_at, row.counts.ended)
        return round(rate, 1) or rate if rate else None


def _is_over(row: RunRow) -> bool:
    return isinstance(row.status, RunStatus) and row.status.is_over


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a run is looked at: tasks that pass the filter, from one place on."""

    filter: Filter = field(default_factory=Filter)
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class RunLook:
    """A run and some of its tasks; `wanted` is what was asked for.

    Attributes:
        branches: What is drawn before each group in a tree of them, with the place of the group in the snapshot.
    """

    mark: int
    page: Page
    wanted: Wanted
    snapshot: Snapshot = field(compare=False)
    branches: tuple[tuple[int, str], ...] = field(compare=False, default=())


class RunLooker:
    """Looks at one run. `wanted` may be changed at any time, by any thread; the next look follows it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.viewer = RunViewer(run)
        self.wanted = Wanted()

    @cached_property
    def _branches(self) -> tuple[tuple[int, str], ...]:
        return tuple([(place, branch) for place, branch, _ in walk(self.viewer.picture)])

    def __call__(self) -> RunLook:
        wanted = self.wanted
        snapshot = self.viewer.look()
        page = self.viewer.page(wanted.filter, wanted.offset, wanted.limit)
        return RunLook(snapshot.mark, page, wanted, snapshot, self._branches)


@dataclass(frozen=True, slots=True)
class TaskLook:
    """All about one task: its attempts, and the tasks around it with their states."""

    row: TaskRow
    attempts: tuple[Mapping[str, Any], ...]
    above: tuple[TaskRow, ...]
    below: tuple[TaskRow, ...]
    more_above: int
    more_below: int
    command: str
    condition: str
    now: float = field(compare=False)


class TaskLooker:
    """Looks at one task again and again, and at some of its neighbours."""

    def __init__(self, run: Run, task: str) -> None:
        self.run, self.task = run, task
        self._viewer = RunViewer(run)

    def __call__(self) -> TaskLook:
        spec = self.run.spec
        place = spec.index[self.task]
        row = self._viewer.detail(self.task)
        above, below = spec.graph.parents[place], spec.graph.children[place]
        task = spec.tasks[place]
        return TaskLook(
            row,
            tuple(self._viewer.attempts(row)),
            self._rows(above),
            self._rows(below),
            max(0, len(above) - _NEIGHBOURS),
            max(0, len(below) - _NEIGHBOURS),
            "" if "call" in task.kwargs else str(task.kwargs.get("cmd") or ""),
            task.condition or "",
            self.run.store.now(),
        )

    def _rows(self, places: Sequence[int]) -> tuple[TaskRow, ...]:
        spec, some = self.run.spec, places[:_NEIGHBOURS]
        if not some:
            return ()
        entries = self.run.store.task_entries(self.run.id, [spec.tasks[place].name for place in some])
        return tuple([task_row(spec, place, entries.get(spec.tasks[place].name, {})) for place in some])


@dataclass(frozen=True, slots=True)
class LogLook:
    """What a task has written since the look before; `is_new` if it begins anew, `is_cut` if its beginning is left out.

    `size` tells findings apart.
    """

    row: TaskRow
    text: str
    is_new: bool
    is_cut: bool
    size: int


class LogLooker:
    """Follows the log of a task."""

    def __init__(self, run: Run, task: str) -> None:
        self.run, self.task = run, task
        self._tail = LogTail(run.store, run.id, task)
        self._size = 0

    def __call__(self) -> LogLook:
        row = self.run.task(self.task)
        text, is_new = self._tail.read(row)
        self._size += len(text)
        return LogLook(row, text, is_new, self._tail.is_cut, self._size)


@dataclass(frozen=True, slots=True)
class QueueLook:
    """One queue. `workers` is None where the service does not know them."""

    stats: QueueStats
    workers: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class QueuesLook:
    """All queues of a service, by name."""

    queues: tuple[QueueLook, ...]


def look_at_queues(transport: Transport) -> QueuesLook:
    """Depth, age and workers of every queue. `BackendError`."""
    return QueuesLook(tuple([_queue(transport, name) for name in _in_order(transport.names())]))


def _in_order(names: Sequence[str]) -> list[str]:
    """Queues of tasks first, those of completions after them."""
    return sorted(names, key=lambda name: (name.endswith("workflow-completions"), name))


def _queue(transport: Transport, name: str) -> QueueLook:
    workers = transport.workers(name)
    return QueueLook(transport.open(name).stats(), None if workers is None else tuple(sorted(workers)))
