"""What tasks ask for, said beside the workflow: by template, as `run.resources()` suggests it from an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dagkit.errors import DefinitionError, Problem, UsageError
from dagkit.model import document
from dagkit.model.names import closest
from dagkit.model.resources import resource_faults
from dagkit.model.spec import TaskSpec, WorkflowSpec

__all__ = ["with_resources"]


def with_resources(spec: WorkflowSpec, settings: Mapping[str, Mapping[str, Any]] | str | Path) -> WorkflowSpec:
    """The workflow in which the tasks of each template ask for what the settings say, and else for what they did.

    Args:
        settings: `{"train": {"memory": "40G", "runtime": "2h", "queue": "long"}}`, or a file with that: YAML or JSON.
            Tasks of the workflow that are not made from a declaration are named by their own names.

    Raises `DefinitionError` with all that is wrong with the settings, `UsageError` for a template that is not there.
    """
    source = None if isinstance(settings, Mapping) else str(settings)
    wanted = settings if isinstance(settings, Mapping) else document.read_file(Path(settings)).data
    if problems := list(_problems(wanted)):
        raise DefinitionError(problems, source or "resources")
    _refuse_unknown(spec, wanted)
    tasks = [_asking(task, wanted.get(task.template or task.name)) for task in spec.tasks]
    return spec.model_copy(update={"tasks": tuple(tasks)})


def _problems(wanted: Any) -> Iterator[Problem]:
    if not isinstance(wanted, Mapping):
        yield Problem("found no mapping; allowed: resources by template, such as train: {memory: 40G}")
        return
    for template, asked in wanted.items():
        if not isinstance(asked, Mapping):
            yield Problem(f"{template}: found {asked!r:.40}; allowed: resources, such as {{memory: 40G}}")
            continue
        for _, fault in resource_faults(asked, refs_allowed=False):
            yield Problem(f"{template}: {fault}")


def _refuse_unknown(spec: WorkflowSpec, wanted: Mapping[str, Any]) -> None:
    known = dict.fromkeys(task.template or task.name for task in spec.tasks if not task.name.startswith("__"))
    unknown = [template for template in wanted if template not in known]
    if unknown:
        near = closest(unknown[0], list(known))
        hint = f" Did you mean {near[0]!r}?" if near else f" There are {', '.join(list(known)[:10])}."
        raise UsageError(f"resources: workflow {spec.name} has no template {unknown[0]!r}.{hint}")


def _asking(task: TaskSpec, asked: Mapping[str, Any] | None) -> TaskSpec:
    if not asked:
        return task
    own, said = dict(task.resources or {}), {key: value for key, value in asked.items() if value is not None}
    queue = said.pop("queue", None)
    changes: dict[str, Any] = {"resources": {**own, **said}} if said else {}
    if queue is not None:
        own.pop("queue", None)
        changes = {"resources": {**own, **said} or None, "queue": queue}
    return task.model_copy(update=changes)
