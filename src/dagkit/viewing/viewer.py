"""Looks at one run again and again, for as long as somebody looks at it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from dagkit.model.records import Counts, RunRow
from dagkit.model.states import TaskState
from dagkit.notebook.picture import Box, Picture
from dagkit.rows import TaskRow, task_row
from dagkit.viewing.attempts import attempts_of
from dagkit.viewing.census import Census
from dagkit.viewing.effects import Effect, effect_of_rerun, effect_of_retry
from dagkit.viewing.events import Event, happened
from dagkit.viewing.log_tail import LogTail
from dagkit.viewing.pace import Allowance, RateMeter
from dagkit.viewing.pages import Filter, Page, select
from dagkit.viewing.sample import GroupUsage, Sample
from dagkit.viewing.snapshot import GroupView, Snapshot, is_over

if TYPE_CHECKING:
    from dagkit.run import Run

__all__ = ["RunViewer"]

MAX_FAILURES: Final = 20
_CENSUS_SHARE, _SAMPLE_SHARE = 0.1, 0.05


class RunViewer:
    """What a view of a run holds. One thread at a time.

    The first look reads the definition (O(tasks)); later ones cost by the number of groups. What only a reading of all
    tasks can tell (which tasks are in a state) is read again within a tenth of the time, and is as old as that.
    """

    def __init__(self, run: Run, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self._clock = clock
        self._census: Census | None = None
        self._census_of: tuple[object, ...] = ()
        self._census_allowance = Allowance(clock, _CENSUS_SHARE, 0.2)
        self._sample = Sample(Allowance(clock, _SAMPLE_SHARE, 1.0))
        self._rate = RateMeter()
        self._shown: tuple[object, ...] = ()
        self._made_from: tuple[object, ...] | None = None
        self._made: tuple[GroupView, ...] = ()
        self._selected_for: tuple[Filter, Census | None] | None = None
        self._selected: Sequence[int] = ()
        self._events: tuple[Event, ...] = ()
        self._events_of: tuple[object, ...] = ()
        self._mark = 0

    # --- what stays

    @cached_property
    def picture(self) -> Picture:
        """The boxes of the definition."""
        return Picture.of(self.run.spec)

    @cached_property
    def _places(self) -> dict[str, tuple[int, ...]]:
        index = self.run.spec.index
        return {box.key: tuple([index[name] for name in box.members]) for box in self.picture.boxes}

    @cached_property
    def _labels(self) -> dict[str, tuple[str, ...]]:
        """The groups that the coordinator counts, by the box they make up; none for a box that holds parts of some."""
        spec = self.run.spec
        sizes = Counter([task.template or task.name for task in spec.tasks if not task.name.startswith("__merge_")])
        labels: dict[str, tuple[str, ...]] = {}
        for key, places in self._places.items():
            names = tuple(dict.fromkeys([spec.tasks[place].template or spec.tasks[place].name for place in places]))
            labels[key] = names if sum(sizes[name] for name in names) == len(places) else ()
        return labels

    @cached_property
    def _uncounted(self) -> bool:
        """Whether some box can be counted only by reading all tasks."""
        return not all(self._labels.values())

    @cached_property
    def _all_places(self) -> Sequence[int]:
        return [place for place, task in enumerate(self.run.spec.tasks) if not task.name.startswith("__merge_")]

    # --- looking

    def look(self) -> Snapshot:
        """The run as it is now. `BackendError` if the store cannot be read."""
        row, now = self.run.row(), self.run.store.now()
        self._rate.note(self._clock(), row.counts.ended)
        counted = row.extra.get("groups") or {}
        self._refresh(row, for_trouble=bool(counted) and not self._uncounted)
        self._sample.refresh(self.run, self.picture.boxes, row)
        groups = self._groups(counted)
        failures = self._failures()
        rate = None if is_over(row) else self._rate.rate(now - row.created_at, row.counts.ended)
        driven_by = row.driven_by.split(" #", 1)[0] if row.driven_by else None
        shown = (row.status, row.counts, row.updated_at, driven_by, row.cancel_requested, groups, rate)
        if shown != self._shown:
            self._shown, self._mark = shown, self._mark + 1
        return Snapshot(row, groups, failures, rate, driven_by, now, self._mark)

    def _refresh(self, row: RunRow, *, for_trouble: bool = False) -> bool:
        """Read all tasks again if something changed and it may cost that much; whether what is known is as of now.

        `for_trouble`: only tasks that did not succeed matter, so if there are as many of each kind as before it is not
        needed.
        """
        trouble = (row.counts.failed, row.counts.upstream_failed, row.counts.cancelled)
        as_of = (trouble, row.status, row.counts, row.updated_at)
        is_needed = as_of[:1] != self._census_of[:1] if for_trouble else as_of != self._census_of
        if self._census is None and for_trouble:
            is_needed = any(trouble)
        if not is_needed:
            return True
        if not (is_over(row) or self._census_allowance.is_due):
            return False
        with self._census_allowance.spending():
            entries = self.run.store.task_entries(self.run.id)
            self._census, self._census_of = Census(self.run.spec, entries), as_of
        return True

    def _groups(self, counted: Mapping[str, Sequence[int]]) -> tuple[GroupView, ...]:
        """Made anew only when they were counted anew."""
        made_from = (self._census, self._sample.version, counted)
        if self._made_from != made_from:
            self._made_from = made_from
            self._made = tuple([self._group(box, counted) for box in self.picture.boxes])
        return self._made

    def _group(self, box: Box, counted: Mapping[str, Sequence[int]]) -> GroupView:
        labels = self._labels[box.key]
        if labels and all(label in counted for label in labels):
            counts = _sum([counted[label] for label in labels])
        elif self._census:
            counts = self._census.count(self._places[box.key])
        else:
            counts = Counts(pending=len(box.members))
        has_begun = counts.pending < counts.total
        used = self._sample.of(box.key)
        waits = "" if has_begun else ", ".join(filter(None, (box.needs, box.when)))
        return GroupView(box.key, box.title, len(box.members), box.queue, counts, waits, used.median_s, used.peak_bytes)

    def _failures(self) -> tuple[TaskRow, ...]:
        places = self._census.failed(MAX_FAILURES) if self._census else []
        rows = self._rows(places)
        return tuple([row for row in rows if row.state is TaskState.FAILED])

    # --- more about the whole

    def usage(self) -> list[tuple[GroupView, GroupUsage]]:
        """What the tasks of each group took, as of the last look."""
        return [(group, self._sample.of(group.key)) for group in self._made]

    def events(self) -> tuple[Event, ...]:
        """What happened, newest first; at most a hundred. Reads all tasks again when something changed, but that within
        the same tenth of the time."""
        row = self.run.row()
        as_of = (row.status, row.counts, row.updated_at)
        if as_of != self._events_of and (is_over(row) or not self._events_of or self._census_allowance.is_due):
            with self._census_allowance.spending():
                entries = self.run.store.task_entries(self.run.id)
                members = {box.key: box.members for box in self.picture.boxes}
                self._events, self._events_of = happened(self.run.spec, row, self._made, members, entries), as_of
        return self._events

    # --- tasks

    def page(self, wanted: Filter = Filter(), offset: int = 0, limit: int = 50) -> Page:  # noqa: B008 - it is frozen
        """Some rows of the table. Their places are those of the last reading of all tasks, what they say is new."""
        is_current = not wanted.needs_states or self._refresh(self.run.row(), for_trouble=not wanted.states)
        selected = self._selected if offset > 0 and self._stays(wanted) else self._select(wanted)
        offset = max(0, min(offset, len(selected) - 1)) if selected else 0
        return Page(tuple(self._rows(selected[offset : offset + limit])), offset, len(selected), is_current)

    def _stays(self, wanted: Filter) -> bool:
        """Whether somebody who has scrolled down would only see rows move: trouble comes first when they go back up."""
        return self._selected_for is not None and self._selected_for[0] == wanted and not (wanted.states or wanted.text)

    def _select(self, wanted: Filter) -> Sequence[int]:
        """Places of the tasks that pass; found anew only when the tasks were read anew or something else is wanted."""
        asked = (wanted, self._census)
        if self._selected_for != asked:
            places = self._all_places if wanted.group is None else self._places.get(wanted.group, ())
            self._selected_for, self._selected = asked, select(self.run.spec, self._census, places, wanted)
        return self._selected

    def detail(self, task: str) -> TaskRow:
        """One task with its whole error. `UnknownTask`."""
        return self.run.task(task)

    def attempts(self, row: TaskRow) -> list[Mapping[str, Any]]:
        """Its attempts, oldest first: what each used, asked for and died of."""
        return attempts_of(row, self.run.spec.tasks[self.run.spec.index[row.name]].resources)

    def group_of(self, task: str) -> str | None:
        """Key of the group that a task is shown in."""
        return next((box.key for box in self.picture.boxes if task in box.members), None)

    def log(self, task: str) -> LogTail:
        """The log of a task, to be read again and again."""
        return LogTail(self.run.store, self.run.id, task)

    def _rows(self, places: Sequence[int]) -> list[TaskRow]:
        spec = self.run.spec
        if not places:
            return []
        entries = self.run.store.task_entries(self.run.id, [spec.tasks[place].name for place in places])
        return [task_row(spec, place, entries.get(spec.tasks[place].name, {})) for place in places]

    # --- what an action would do

    def effect_of_retry(self, tasks: Sequence[str] | None = None) -> Effect:
        """What `run.retry(tasks)` would make eligible again. O(tasks)."""
        return effect_of_retry(self.run, tasks)

    def effect_of_rerun(self, tasks: Sequence[str]) -> Effect:
        """What `run.rerun(tasks)` would run again. O(tasks)."""
        return effect_of_rerun(self.run, tasks)


def _sum(groups: Sequence[Sequence[int]]) -> Counts:
    """As `RunRow.extra` tells them."""
    pending, ready, running, completed, failed, upstream_failed, skipped, cancelled = [
        sum(each) for each in zip(*groups, strict=True)
    ]
    return Counts(completed, failed, upstream_failed, skipped, cancelled, running, ready, pending)
