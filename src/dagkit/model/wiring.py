"""Checks that look at more than one field: a task's own consistency, and how tasks depend on each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import ConditionError
from dagkit.model.condition import Condition
from dagkit.model.graph import Graph, find_cycles
from dagkit.model.names import task_name_fault
from dagkit.model.problems import Finding, json_fault, shown, suggestion
from dagkit.model.resources import resource_faults, scale_faults

if TYPE_CHECKING:
    from dagkit.model.spec import TaskSpec

__all__ = ["result_findings", "task_findings", "wire"]

_MAX_SUGGESTIONS: Final = 20
_SHOWN_MEMBERS: Final = 20


# --- one task


def task_findings(task: TaskSpec, wrong: Collection[object] = ()) -> list[Finding]:
    """What is wrong with a task as such. Fields in `wrong` are known to be and are not looked at."""
    findings = []
    if "name" not in wrong and (fault := task_name_fault(task.name)):
        findings.append(Finding(("name",), f"name: {shown(task.name)} {fault}"))
    if task.kwargs and (found := json_fault(task.kwargs, ("kwargs",))):
        findings.append(found)
    if task.depends_on and len(set(task.depends_on)) < len(task.depends_on):
        task.__dict__["depends_on"] = tuple(dict.fromkeys(task.depends_on))
    if "depends_on" not in wrong:
        findings += _policy_findings(task)
        if task.condition is not None:
            findings += _condition_findings(task)
    if task.resources is not None:
        findings += _resource_findings(task, "depends_on" in wrong)
    if task.resource_scales is not None:
        findings += [Finding(("resource_scales", key), fault) for key, fault in scale_faults(task.resource_scales)]
    if task.retry_delay_s == ():
        findings.append(Finding(("retry_delay_s",), "retry_delay_s: found an empty list; allowed: at least one number"))
    return findings


def _policy_findings(task: TaskSpec) -> list[Finding]:
    policy, available = task.dep_policy, len(task.depends_on)
    if isinstance(policy, str) or policy <= available:
        return []
    dependencies = f"{available} {'dependency' if available == 1 else 'dependencies'}"
    allowed = (
        f"all, any, all_settled, or a whole number from 1 to {available}" if available else "all, any, all_settled"
    )
    return [Finding(("dep_policy",), f"dep_policy: found {policy} with {dependencies}; allowed: {allowed}")]


def _condition_findings(task: TaskSpec) -> list[Finding]:
    text = task.condition or ""
    if not text.strip():
        return [Finding(("condition",), f"condition: found {shown(text)}; allowed: an expression, or no such field")]
    if not task.depends_on:
        return [Finding(("condition",), "condition: a task without depends_on has no inputs to look at")]
    try:
        Condition.parse(text, task.depends_on)
    except ConditionError as error:
        on_one_line = ConditionError(" ".join(text.split()), error.detail)
        return [Finding(("condition",), f"condition: {on_one_line}")]
    return []


def _resource_findings(task: TaskSpec, unknown_dependencies: bool) -> list[Finding]:
    resources = task.resources or {}
    findings = [Finding(("resources", key), fault) for key, fault in resource_faults(resources)]
    found = json_fault(resources, ("resources",))
    if found:
        return [*findings, found]
    strangers = (
        []
        if unknown_dependencies
        else [(path, name) for path, name in refs_in(resources) if name not in task.depends_on]
    )
    return findings + [
        Finding(("resources", *path), f"resources: {shown(name)} is not in depends_on") for path, name in strangers
    ]


# --- all tasks


def wire(tasks: Sequence[TaskSpec], findings: list[Finding]) -> tuple[dict[str, int], Graph | None]:
    """The index and the graph of the tasks; what is wrong with names and dependencies goes to `findings`."""
    index = {task.name: position for position, task in enumerate(tasks)}
    if len(index) < len(tasks):
        findings += _repeated_names(tasks)
    try:
        graph = Graph.of(tasks, index)
    except KeyError:
        graph = None
    if graph is not None and graph.is_acyclic:
        return index, graph
    findings += _dependency_findings(tasks, index)
    return index, None


def _repeated_names(tasks: Sequence[TaskSpec]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for position, task in enumerate(tasks):
        earlier = first.setdefault(task.name, position)
        if earlier != position and task.name:
            message = f"name: {shown(task.name)} is the name of tasks[{earlier}] already"
            yield Finding(("tasks", position, "name"), message)


def _dependency_findings(tasks: Sequence[TaskSpec], index: Mapping[str, int]) -> list[Finding]:
    findings: list[Finding] = []
    parents = []
    for position, task in enumerate(tasks):
        above = []
        for place, name in enumerate(task.depends_on):
            if name in index and name != task.name:
                above.append(index[name])
                continue
            fault = "is the task itself" if name == task.name else f"is not a task.{_suggest(name, index, findings)}"
            findings.append(Finding(("tasks", position, "depends_on", place), f"depends_on: {shown(name)} {fault}"))
        parents.append(tuple(above))
    return findings + [_cycle_finding(cycle, tasks) for cycle in find_cycles(Graph.from_parents(parents))]


def _suggest(name: str, index: Mapping[str, int], findings: Sequence[Finding]) -> str:
    """A similar name; not looked for without end in a file with thousands of wrong ones."""
    return suggestion(name, index) if len(findings) < _MAX_SUGGESTIONS else ""


def _cycle_finding(cycle: Sequence[int], tasks: Sequence[TaskSpec]) -> Finding:
    names = [tasks[member].name for member in [*cycle[:_SHOWN_MEMBERS], cycle[0]]]
    if len(cycle) > _SHOWN_MEMBERS:
        names.insert(-1, f"({len(cycle) - _SHOWN_MEMBERS:,} more)")
    message = f"depends_on: these {len(cycle)} tasks depend on each other: {' -> '.join(names)}"
    return Finding(("tasks", cycle[0], "depends_on"), message)


# --- the result


def result_findings(result: Any, index: Mapping[str, int]) -> list[Finding]:
    """What is wrong with the tree that says what a run returns."""
    if result is None:
        return []
    if found := json_fault(result, ("result",)):
        return [found]
    findings: list[Finding] = []
    for path, name in refs_in(result):
        if not isinstance(name, str) or name not in index:
            message = f"result: {shown(name)} is not a task.{_suggest(str(name), index, findings)}"
            findings.append(Finding(("result", *path), message))
    return findings


def refs_in(tree: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(place, task) of every `{$ref: task}` in a JSON tree; what stands below `$escape` is the user's own data."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), tree)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, Mapping):
            if "$ref" in item:
                yield path, item["$ref"]
            elif "$escape" in item and isinstance(item["$escape"], Mapping):
                stack += [((*path, "$escape", key), value) for key, value in item["$escape"].items()]
            else:
                stack += [((*path, key), value) for key, value in item.items()]
        elif isinstance(item, list):
            stack += [((*path, place), value) for place, value in enumerate(item)]
