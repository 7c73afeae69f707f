"""Some rows of the table of tasks: filtered, in an order in which rows keep their place while they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.viewing.census import Census

__all__ = ["Filter", "Page", "select"]

#: What comes first when trouble does; everything else keeps the order of the definition.
_TROUBLE: Final = {TaskState.FAILED: 0, TaskState.UPSTREAM_FAILED: 1, TaskState.CANCELLED: 2}
_CALM: Final = len(_TROUBLE)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks; all that is given has to hold.

    Attributes:
        states: One of these; empty for any.
        group: Key of a `GroupView`.
        text: Somewhere in the name or in the first line of the error, whatever the case.
        trouble_first: Failed, upstream failed and cancelled tasks above the others.
    """

    states: frozenset[TaskState] = frozenset()
    group: str | None = None
    prefix: str = ""
    text: str = ""
    trouble_first: bool = True

    @property
    def needs_states(self) -> bool:
        return bool(self.states or self.trouble_first or self.text)


@dataclass(frozen=True, slots=True)
class Page:
    """Rows `offset` to `offset + len(rows)` of the `total` that pass the filter.

    Attributes:
        is_current: Which tasks pass is as of now; if not, all tasks will be read again when it is time for that.
    """

    rows: tuple[TaskRow, ...]
    offset: int
    total: int
    is_current: bool = True


def select(spec: WorkflowSpec, census: Census | None, places: Sequence[int], wanted: Filter) -> Sequence[int]:
    """Those of `places` that pass the filter, in the order in which they are shown. O(places)."""
    tests = _tests(spec, census, wanted)
    kept = [place for place in places if all(test(place) for test in tests)] if tests else places
    if census is None or not wanted.trouble_first:
        return kept
    ranks = [_TROUBLE.get(census.state_of(place), _CALM) for place in kept]
    if min(ranks, default=_CALM) == _CALM:
        return kept
    return [kept[i] for i in sorted(range(len(kept)), key=ranks.__getitem__)]


def _tests(spec: WorkflowSpec, census: Census | None, wanted: Filter) -> list[Callable[[int], bool]]:
    tasks, text = spec.tasks, wanted.text.casefold()
    tests: list[Callable[[int], bool]] = []
    if wanted.states and census is not None:
        tests.append(lambda place: census.state_of(place) in wanted.states)
    if wanted.prefix:
        tests.append(lambda place: tasks[place].name.startswith(wanted.prefix))
    if text:
        errors = {} if census is None else census.errors
        tests.append(lambda place: text in tasks[place].name.casefold() or text in errors.get(place, "").casefold())
    return tests
