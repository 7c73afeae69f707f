"""The exact commands and scripts that a scheduler would be given for the jobs of a workflow or a campaign."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagkit.errors import UsageError

if TYPE_CHECKING:
    from dagkit.config import Settings
    from dagkit.model.messages import TaskMessage
    from dagkit.model.spec import WorkflowSpec

__all__ = ["scripts_of_campaign", "scripts_of_workflow"]


def scripts_of_workflow(spec: WorkflowSpec, target: str, settings: Settings) -> Iterator[tuple[str, str]]:
    """A title and a text for each template on each queue that PJM or Slurm serves."""
    from dagkit.model.messages import TaskMessage

    chosen = settings.targets.get(target)
    if chosen is None:
        raise UsageError(f"no target {target!r}; there are {', '.join(sorted(settings.targets))}")
    alike: dict[tuple[str, str, str], list[TaskMessage]] = {}
    for task in spec.tasks:
        queue = task.queue or spec.default_queue
        resources = task.resources if isinstance(task.resources, dict) else None
        message = TaskMessage("run", task.name, 1, 0, queue, {}, template=task.template or "", resources=resources)
        message.timeout_s = task.timeout_s or spec.default_task_timeout_s
        alike.setdefault((task.template or task.name, queue, repr(resources)), []).append(message)
    for (template, queue, _), messages in alike.items():
        choice = chosen.choice(queue)
        if choice.kind == "pjm":
            yield f"# {template} on queue {queue}", _text(messages[0], queue, dict(choice.settings))
        elif choice.kind == "slurm":
            yield f"# {template} on queue {queue}", _sbatch_text(messages, dict(choice.settings))


def scripts_of_campaign(path: Path, settings: Settings) -> Iterator[tuple[str, str]]:
    """A title and a text for each profile of a bulk file."""
    from dagkit.bulk.file import read_campaign
    from dagkit.bulk.places import choice_of
    from dagkit.model.messages import TaskMessage

    campaign, seen = read_campaign(path), set()
    for job in campaign.jobs:
        execution, hpc = job.execution_profile or campaign.execution, job.hpc_profile or campaign.hpc
        choice = choice_of(hpc, settings)
        key = (repr(choice), repr(execution), job.stage_id)
        if choice.kind != "pjm" or key in seen:
            continue
        seen.add(key)
        queue = hpc.queue or "default"
        resources: dict[str, Any] = dict(execution.resources)
        message = TaskMessage(
            "bulk", job.job_key, 1, 0, queue, {}, template=job.stage_id or "bulk", resources=resources
        )
        yield f"# {job.job_key} and jobs like it, on queue {queue}", _text(message, queue, dict(choice.settings))


def _text(message: TaskMessage, queue: str, table: dict[str, Any]) -> str:
    from dagkit.config.pjm import pjm_queue
    from dagkit.executors.pjm.names import job_name
    from dagkit.executors.pjm.request import request_of
    from dagkit.executors.pjm.script import arguments_of, script_of

    request = request_of(message, pjm_queue(queue, table))
    name = job_name(f"{request.template}-0123456789ab")
    folder = Path("SPOOL") / name
    is_bulk = request.settings.mode == "bulk"
    arguments = arguments_of(request, name, folder, request.settings.group_size if is_bulk else None)
    return (
        f"{shlex.join(['pjsub', *arguments, str(folder / 'job.sh')])}\n\n{script_of(request, folder, is_bulk=is_bulk)}"
    )


def _sbatch_text(messages: list[TaskMessage], table: dict[str, Any]) -> str:
    """The array of all of them, as if they were ready together."""
    from dagkit.config.slurm import slurm_queue
    from dagkit.executors.slurm.request import request_of
    from dagkit.executors.slurm.script import job_name, script_of

    request = request_of(messages[0], slurm_queue(table))
    name, count = job_name(request.template, "0123456789"), -(-len(messages) // request.pack)
    folder = Path("SPOOL") / name
    index = "SLURM_ARRAY_TASK_ID" if count > 1 else "0"
    script = script_of(request, name, folder, count, ["-m", "dagkit.executors.job", str(folder), index])
    return f"{shlex.join(['sbatch', str(folder / 'script.sh')])}\n\n{script}"
