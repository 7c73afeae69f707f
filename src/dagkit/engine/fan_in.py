"""Cutting wide fan-ins into batches that run one after the other (facts: jobq, section 14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagkit.engine.shape import is_merge
from dagkit.errors import DefinitionError, Problem, UsageError
from dagkit.model.graph import find_cycles
from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["split"]


def split(spec: WorkflowSpec, max_fan_in: int) -> WorkflowSpec:
    """The workflow with the dependencies of every task that has more than `max_fan_in` cut into batches of that many.

    A merge node ends each batch and holds back the next one; the engine resolves them, so that every task ends as it
    would without. A workflow without such tasks is returned as it is. Raises `UsageError` for a `max_fan_in` below 2,
    and `DefinitionError` for a wide task with a condition or where the batches contradict the graph.
    """
    if max_fan_in < 2:
        raise UsageError(f"max_fan_in is {max_fan_in}; it has to be at least 2")
    wide = [task for task in spec.tasks if len(task.depends_on) > max_fan_in]
    if not wide:
        return spec
    _refuse_conditions(spec, wide)
    barriers: dict[str, list[str]] = {}
    dependencies = {task.name: task.depends_on for task in spec.tasks}
    merges = []
    for target in wide:
        before = ""
        for number, batch in enumerate(_batches(target.depends_on, max_fan_in)):
            merge = f"__merge_{target.name}_{number}"
            for name in batch if before else ():
                barriers.setdefault(name, []).append(before)
            merges.append(_merge_node(merge, batch, target.name, number))
            before = merge
        dependencies[target.name] = (before,)
    for name, before_it in barriers.items():
        dependencies[name] += tuple(before_it)
    tasks = [task.model_copy(update={"depends_on": dependencies[task.name]}) for task in spec.tasks]
    cut = spec.model_copy(update={"tasks": (*tasks, *merges)})
    _refuse_contradictions(cut)
    return cut


def _batches(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _merge_node(name: str, batch: Sequence[str], target: str, number: int) -> TaskSpec:
    kwargs = {"__batch_merge": True, "__target": target, "__batch": number}
    return TaskSpec.trusted(name=name, kwargs=kwargs, depends_on=tuple(batch), dep_policy="all_settled")


def _refuse_conditions(spec: WorkflowSpec, wide: Sequence[TaskSpec]) -> None:
    problems = [
        Problem(
            f"{task.name} has {len(task.depends_on)} dependencies and a condition, which cannot be cut into batches; "
            "leave out max_fan_in or move the condition to a task behind it",
            field="condition",
            task=task.name,
            index=spec.index[task.name],
        )
        for task in wide
        if task.condition is not None
    ]
    if problems:
        raise DefinitionError(problems)


def _refuse_contradictions(cut: WorkflowSpec) -> None:
    """A barrier that would have a task wait for what depends on it shows as a cycle."""
    if not cut.graph.is_acyclic:
        cycles = find_cycles(cut.graph)
        raise DefinitionError([_contradiction([cut.tasks[task] for task in cycle]) for cycle in cycles])


def _contradiction(cycle: Sequence[TaskSpec]) -> Problem:
    targets = sorted({task.kwargs["__target"] for task in cycle if is_merge(task.kwargs)})
    tasks = [task.name for task in cycle if not is_merge(task.kwargs)]
    return Problem(
        f"the order of depends_on of {', '.join(targets)} contradicts the graph or that of another task: "
        f"{', '.join(tasks)} would wait for each other; reorder it or leave out max_fan_in",
        field="depends_on",
    )
