"""What a flow would do: tasks by template and queue, sizes, what is cached and why. Nothing runs."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagkit.engine.identity import identities, is_cached
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.runtime.values import INLINE_LIMIT

if TYPE_CHECKING:
    from dagkit.stores.base import Store

__all__ = ["CacheEntry", "Plan", "PlanGroup", "make_plan"]

#: Payloads above this are worth a warning, because every worker reads them.
LARGE_PAYLOAD: Final = 10_000_000
#: Tasks that are listed by name where there may be thousands.
MAX_LISTED: Final = 5

_to_json: Final = json.JSONEncoder(check_circular=False).encode


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """The tasks of one template on one queue.

    Attributes:
        executor: What runs the tasks of the queue under the target; "" if the plan is for no target.
        argument_bytes: Size of their arguments as JSON, all tasks together; payloads not included.
        retries: Largest number of retries.
    """

    template: str
    queue: str
    tasks: int
    executor: str = ""
    argument_bytes: int = 0
    retries: int = 0
    resources: str = ""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One task with `cache=True`: whether its result would be reused, and why or why not."""

    task: str
    is_hit: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a flow would do. Shows itself as a table in a notebook and as text elsewhere.

    Attributes:
        depth: Tasks in the longest chain: what no number of workers can run at the same time.
        payload_bytes: Size of all code and values that are stored once, before anything runs.
    """

    name: str
    groups: tuple[PlanGroup, ...]
    depth: int
    payload_bytes: int
    cache: tuple[CacheEntry, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return sum(group.tasks for group in self.groups)

    @property
    def cached(self) -> tuple[str, ...]:
        """Names of the tasks that would not run, because an earlier result is reused."""
        return tuple(entry.task for entry in self.cache if entry.is_hit)

    def __str__(self) -> str:
        rows = [list(_HEADINGS), *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = [f"{self.name}  {self._headline()}", ""]
        for row in rows:
            cells = [
                cell.rjust(width) if heading in _NUMERIC else cell.ljust(width)
                for heading, cell, width in zip(_HEADINGS, row, widths, strict=True)
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        return "\n".join([*lines, *(f"  {line}" for line in self._notes())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sides = ["right" if heading in _NUMERIC else "left" for heading in _HEADINGS]
        head = "".join(
            f"<th style='text-align:{side}'>{heading}</th>" for heading, side in zip(_HEADINGS, sides, strict=True)
        )
        body = "".join(f"<tr>{self._cells(row, sides)}</tr>" for row in self._rows())
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self._notes())
        title = f"<b>{html.escape(self.name)}</b> {html.escape(self._headline())}"
        return f"<div>{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"

    @staticmethod
    def _cells(row: list[str], sides: list[str]) -> str:
        aligned = zip(row, sides, strict=True)
        return "".join(f"<td style='text-align:{side}'>{html.escape(cell)}</td>" for cell, side in aligned)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for heading in _HEADINGS:
            table.add_column(heading, justify="right" if heading in _NUMERIC else "left")
        for row in self._rows():
            table.add_row(*map(Text, row))
        return Group(Text(f"{self.name}  {self._headline()}"), table, *map(Text, self._notes()))

    def _headline(self) -> str:
        parts = [_counted(self.tasks, "task"), f"{self.depth} deep"]
        if self.cache:
            parts.append(f"{len(self.cached)} cached")
        return ", ".join(parts) + f", {_size(self.payload_bytes)} of code and values"

    def _rows(self) -> list[list[str]]:
        return [
            [
                group.template,
                f"{group.tasks:,}",
                group.queue,
                group.executor or "–",
                _size(group.argument_bytes),
                str(group.retries) if group.retries else "–",
                group.resources or "–",
            ]
            for group in self.groups
        ]

    def _notes(self) -> list[str]:
        return [*self._cache_notes(), *(f"warning: {warning}" for warning in self.warnings)]

    def _cache_notes(self) -> Iterator[str]:
        """One line a reason, with as many names as fit."""
        reasons: dict[str, list[str]] = {}
        for entry in self.cache:
            reasons.setdefault(f"{'cached' if entry.is_hit else 'runs'}: {entry.reason}", []).append(entry.task)
        for reason, names in reasons.items():
            more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
            yield f"{reason}: {', '.join(names[:MAX_LISTED])}{more}"


_HEADINGS: Final = ("group", "tasks", "queue", "runs on", "arguments", "retries", "asks for")
_NUMERIC: Final = frozenset({"tasks", "arguments", "retries"})


def make_plan(
    spec: WorkflowSpec,
    payloads: Mapping[str, bytes],
    *,
    target: str | None = None,
    store: Store | None = None,
    cached: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a workflow; linear in its tasks.

    Args:
        target: Named target of the configuration; `ConfigError` if there is none of that name.
        store, cached: Where results of earlier runs are known: a store, or output refs by identity.
    """
    cache = tuple(_cache_entries(spec, store, cached))
    sizes = [_argument_bytes(task) for task in spec.tasks]
    groups = tuple(_groups(spec, sizes, target))
    warnings = tuple(_warnings(spec, sizes, payloads))
    return Plan(spec.name, groups, _depth(spec), sum(map(len, payloads.values())), cache, warnings)


def _groups(spec: WorkflowSpec, sizes: Sequence[int], target: str | None) -> Iterator[PlanGroup]:
    members: dict[tuple[str, str], list[int]] = {}
    for index, task in enumerate(spec.tasks):
        members.setdefault((task.template or task.name, spec.queue_of(task)), []).append(index)
    executors = _executors({queue for _, queue in members}, target)
    for (template, queue), indexes in members.items():
        tasks = [spec.tasks[index] for index in indexes]
        yield PlanGroup(
            template,
            queue,
            len(tasks),
            executors.get(queue, ""),
            sum(sizes[index] for index in indexes),
            max(task.num_retries for task in tasks),
            _requests(tasks),
        )


def _executors(queues: set[str], target: str | None) -> dict[str, str]:
    """What runs the tasks of each queue under the target."""
    if target is None:
        return {}
    from dagkit.config import load_settings

    settings = load_settings()
    return {queue: settings.target(target).choice(queue).kind for queue in queues}


def _argument_bytes(task: TaskSpec) -> int:
    call = task.kwargs.get("call", task.kwargs)
    return sum(len(_to_json(call[key])) for key in ("args", "kwargs", "env") if key in call)


def _requests(tasks: list[TaskSpec]) -> str:
    """What the tasks ask for, if they all ask for the same."""
    kinds = {repr(task.resources): task.resources for task in tasks}
    if len(kinds) > 1:
        return "various"
    resources = next(iter(kinds.values())) or {}
    if "$ref" in resources:
        return f"decided by {resources['$ref']}"
    return ", ".join(f"{key} {_request(value)}" for key, value in resources.items())


def _request(value: Any) -> str:
    return f"by {value['$ref']}" if isinstance(value, dict) and "$ref" in value else str(value)


def _depth(spec: WorkflowSpec) -> int:
    depths = [0] * len(spec.tasks)
    parents = spec.graph.parents
    for index in spec.graph.order:
        depths[index] = 1 + max((depths[parent] for parent in parents[index]), default=0)
    return max(depths)


def _warnings(spec: WorkflowSpec, sizes: Sequence[int], payloads: Mapping[str, bytes]) -> Iterator[str]:
    """What is legal and may surprise."""
    heavy = {digest: data for digest, data in payloads.items() if len(data) > LARGE_PAYLOAD}
    uses = _payload_uses(spec) if heavy else {}
    for digest, data in heavy.items():
        tasks = uses.get(digest, [])
        yield f"{_size(len(data))} travel to {_counted(len(tasks), 'task')} ({', '.join(tasks[:MAX_LISTED])})"
    large = [task.name for task, size in zip(spec.tasks, sizes, strict=True) if size > INLINE_LIMIT]
    if large:
        yield f"arguments over {_size(INLINE_LIMIT)} do not fit a message: {', '.join(large[:MAX_LISTED])}"
    for hint in spec.hints:
        yield str(hint)


def _payload_uses(spec: WorkflowSpec) -> dict[str, list[str]]:
    """Names of the tasks that use each payload."""
    uses: dict[str, list[str]] = {}
    for task in spec.tasks:
        todo: list[Any] = [task.kwargs.get("call")]
        found: dict[str, None] = {}
        while todo:
            item = todo.pop()
            if isinstance(item, dict):
                found.update({item[key]: None for key in ("$pickle", "pickle") if isinstance(item.get(key), str)})
                todo.extend(item.values())
            elif isinstance(item, list):
                todo.extend(item)
        for digest in found:
            uses.setdefault(digest, []).append(task.name)
    return uses


# --- cache


def _cache_entries(spec: WorkflowSpec, store: Store | None, cached: Mapping[str, str] | None) -> Iterator[CacheEntry]:
    asking = [index for index, task in enumerate(spec.tasks) if is_cached(task)]
    if not asking:
        return
    known = identities(spec)
    wanted = [identity for index in asking if (identity := known[index]) is not None]
    found = {**(store.cached(wanted) if store is not None and wanted else {}), **(cached or {})}
    for index in asking:
        yield _cache_entry(spec, index, known, found, store is None and cached is None)


def _cache_entry(
    spec: WorkflowSpec, index: int, known: list[str | None], found: Mapping[str, str], is_blind: bool
) -> CacheEntry:
    name, identity = spec.tasks[index].name, known[index]
    if identity is None:
        return CacheEntry(name, False, _why_unknown(spec, index, known))
    if identity in found:
        return CacheEntry(name, True, "same code, arguments and upstream work as in an earlier run")
    if is_blind:
        return CacheEntry(name, False, "no store was given to look in, plan(store=...)")
    return CacheEntry(name, False, "nothing in the store has the same code, arguments and upstream work")


def _why_unknown(spec: WorkflowSpec, index: int, known: list[str | None]) -> str:
    """The first task, from this one upwards, whose own work has no fingerprint."""
    seen = {index}
    todo = [index]
    while todo:
        current = todo.pop()
        above = [parent for parent in spec.graph.parents[current] if known[parent] is None]
        if not above:
            own = current == index
            what = "its code or an argument" if own else f"the code or an argument of {spec.tasks[current].name}"
            return f"{what} cannot be fingerprinted"
        todo.extend(parent for parent in above if parent not in seen)
        seen.update(above)
    return "something upstream cannot be fingerprinted"


# --- words


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
