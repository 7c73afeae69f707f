"""A workflow as a bounded number of boxes with words in them; every drawing starts from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.notebook.folding import fold
from dagkit.notebook.grouping import Group, group
from dagkit.notebook.lettering import shorten
from dagkit.notebook.palette import GLYPHS, headline

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["Box", "Picture"]

_REFERENCE = re.compile(r"""inputs(?:\.(\w+|\*)|\[\s*"([^"]*)"\s*\]|\[\s*'([^']*)'\s*\])""")


@dataclass(frozen=True, slots=True)
class Box:
    """One box: a task, the tasks of a template, or what was left out of a drawing that would be too large.

    Attributes:
        key: Unique in the picture and stable between drawings of one definition.
        members: Names of its tasks, in definition order.
        needs: The dependency policy in words; empty for the usual `all`.
        when: The condition in words; empty if its tasks have none.
        is_fold: Whether it stands for boxes that were left out.
    """

    key: str
    title: str
    members: tuple[str, ...]
    queue: str
    needs: str = ""
    when: str = ""
    is_fold: bool = False

    def lines(self, counts: Counts | None = None) -> list[str]:
        """Its words, shortened: title (with the glyph of its state), queue, policy, condition."""
        glyph = "" if counts is None else f"{GLYPHS[headline(counts)]} "
        more = [shorten(line, 60) for line in (self.queue, self.needs, self.when) if line]
        return [glyph + shorten(self.title, 40), *more]


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and the edges between them (parent, child). Costs O(tasks + edges) to make and is then small."""

    name: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    total: int

    @property
    def size(self) -> str:
        """How many tasks it shows, in words: `131 tasks`."""
        return f"{self.total:,} task" + ("" if self.total == 1 else "s")

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Picture:
        """The picture of a definition: at most about 300 boxes, whatever its size."""
        grouping = group(spec)
        folded = fold([len(g.members) for g in grouping.groups], grouping.edges)
        boxes = [
            _box(spec, grouping.groups[bundle[0]])
            if len(bundle) == 1
            else _fold_box(spec, [grouping.groups[i] for i in bundle])
            for bundle in folded.bundles
        ]
        total = sum(len(g.members) for g in grouping.groups)
        return cls(spec.name, tuple(boxes), tuple(sorted(folded.edges)), total)

    def tally(self, states: Mapping[str, TaskState]) -> list[Counts]:
        """The counts of each box; a task without a state counts as pending."""
        return [_count(states.get(name, TaskState.PENDING) for name in box.members) for box in self.boxes]


def _count(states: Iterable[TaskState | str]) -> Counts:
    counts = Counts()
    for state in states:
        field = TaskState(state).value
        setattr(counts, field, getattr(counts, field) + 1)
    return counts


def _box(spec: WorkflowSpec, group: Group) -> Box:
    tasks = [spec.tasks[i] for i in group.members]
    return Box(
        key=tasks[0].name,
        title=tasks[0].name if len(tasks) == 1 else f"{group.label} × {len(tasks):,}",
        members=tuple(task.name for task in tasks),
        queue=_few(dict.fromkeys(spec.queue_of(task) for task in tasks)),
        needs=_needs(tasks),
        when=_when(tasks),
    )


def _fold_box(spec: WorkflowSpec, groups: Sequence[Group]) -> Box:
    members = [spec.tasks[i] for g in groups for i in g.members]
    first, last = members[0].name, members[-1].name
    return Box(
        key=f"… {first}",
        title=f"… {len(members):,} more …",
        members=tuple(task.name for task in members),
        queue=f"{first} to {last}",
        is_fold=True,
    )


def _few(words: Iterable[str]) -> str:
    found = list(words)
    return ", ".join(found) if len(found) <= 2 else f"{found[0]} and {len(found) - 1} other queues"


def _needs(tasks: Sequence[TaskSpec]) -> str:
    policies = {task.dep_policy for task in tasks}
    if policies == {"all"}:
        return ""
    if len(policies) > 1:
        return "needs: one policy per task"
    policy, widths = tasks[0].dep_policy, {len(task.depends_on) for task in tasks}
    width = f"{widths.pop():,}" if len(widths) == 1 else ""
    if policy == "all_settled":
        return f"once all {width} have ended".replace("  ", " ")
    return " ".join(["needs any", *([] if policy == "any" else [str(policy)]), *(["of", width] if width else [])])


def _when(tasks: Sequence[TaskSpec]) -> str:
    """The condition of the group, if it reads the same for all: `when compare.mae < 0.1`."""
    conditions = {task.condition for task in tasks}
    if conditions == {None}:
        return ""
    if len(conditions) == 1:
        return f"when {_readable(tasks[0].condition or '')}"
    return "when its own condition holds" if None not in conditions else "some only when a condition holds"


def _readable(condition: str) -> str:
    return _REFERENCE.sub(lambda match: match[1] or match[2] or match[3] or match[0], condition)
