"""What there is to see of a run, computed from its definition and task rows; nothing here prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagkit.model.records import Counts, RunRow
from dagkit.model.states import TaskState

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec
    from dagkit.notebook.picture import Picture
    from dagkit.rows import TaskRow

__all__ = ["GroupView", "RunView", "layers_of", "view_of"]

_RATE_WINDOW_S = 30.0


@dataclass(frozen=True)
class GroupView:
    """Tasks shown as one line; `waits` says what the group needs while none of it has begun."""

    title: str
    counts: Counts
    queue: str
    median_s: float | None = None
    peak_bytes: float | None = None
    waits: str = ""


@dataclass(frozen=True)
class RunView:
    """A run at one moment.

    Attributes:
        failed: Tasks whose attempts are used up, newest first.
        doubtful: Tasks skipped because their condition could not be decided.
        rate: Tasks a second lately; None when nothing has ended lately, or the run is over.
    """

    row: RunRow
    groups: Sequence[GroupView]
    failed: Sequence[TaskRow]
    doubtful: Sequence[TaskRow]
    now: float
    rate: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds until the rest has ended at this rate."""
        counts = self.row.counts
        return (counts.total - counts.ended) / self.rate if self.rate else None


def view_of(
    row: RunRow, picture: Picture, tasks: Iterable[TaskRow], now: float, groups: Sequence[GroupView] | None = None
) -> RunView:
    """The view of a run; `picture` says what stands together."""
    by_name = {task.name: task for task in tasks}
    failed = [task for task in by_name.values() if task.state is TaskState.FAILED]
    failed.sort(key=lambda task: task.completed_at or 0.0, reverse=True)
    doubtful = [
        task
        for task in by_name.values()
        if task.state is TaskState.SKIPPED and task.error and not task.error.startswith("condition false")
    ]
    shown = groups if groups is not None else _groups(picture, by_name)
    return RunView(row, shown, failed, doubtful, now, _rate(row, by_name.values(), now))


def layers_of(spec: WorkflowSpec, tasks: Iterable[TaskRow]) -> list[GroupView]:
    """One group for each depth of the graph."""
    layers: dict[int, list[TaskRow]] = {}
    depths = spec.graph.depths()
    for task in tasks:
        layers.setdefault(depths[spec.index[task.name]], []).append(task)
    return [_group(f"layer {depth}", layers[depth], _queues(layers[depth]), "") for depth in sorted(layers)]


def _groups(picture: Picture, tasks: Mapping[str, TaskRow]) -> list[GroupView]:
    parents: dict[int, list[str]] = {}
    for parent, child in picture.edges:
        parents.setdefault(child, []).append(picture.boxes[parent].title)
    groups = []
    for place, box in enumerate(picture.boxes):
        members = [tasks[name] for name in box.members if name in tasks]
        few = ", ".join(parents.get(place, [])[:3]) + (", ..." if len(parents.get(place, [])) > 3 else "")
        waits = ", ".join(filter(None, (box.needs or (few and f"after {few}"), box.when)))
        title = box.title.removesuffix(f" × {len(box.members):,}")
        groups.append(_group(title, members, box.queue, waits))
    return groups


def _group(title: str, members: Sequence[TaskRow], queue: str, waits: str) -> GroupView:
    counts = Counts()
    for task in members:
        setattr(counts, task.state.value, counts.of(task.state) + 1)
    times = [task.duration_s for task in members if task.state is TaskState.COMPLETED and task.duration_s is not None]
    peaks = [task.usage["peak_rss_bytes"] for task in members if task.usage.get("peak_rss_bytes")]
    has_begun = counts.pending < counts.total
    return GroupView(
        title,
        counts,
        queue,
        statistics.median(times) if times else None,
        max(peaks, default=None),
        "" if has_begun else waits,
    )


def _queues(tasks: Sequence[TaskRow]) -> str:
    return ", ".join(sorted({task.queue for task in tasks}))


def _rate(row: RunRow, tasks: Iterable[TaskRow], now: float) -> float | None:
    if str(row.status) in ("completed", "failed", "cancelled"):
        return None
    window_s = max(1.0, min(_RATE_WINDOW_S, now - row.created_at))
    ended = sum(1 for task in tasks if task.completed_at is not None and task.completed_at >= now - window_s)
    return ended / window_s if ended else None
