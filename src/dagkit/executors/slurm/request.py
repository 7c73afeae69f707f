"""What a queue is on a Slurm cluster, and what one job asks for: settings and resources become options of sbatch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagkit.errors import ConfigError
from dagkit.model.messages import TaskMessage
from dagkit.model.resources import ResourceRequest

__all__ = ["Request", "SlurmQueue", "request_of"]

_OPTION: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
#: Options that dagkit sets itself; another value would cut the wire between a job and its completion.
_RESERVED: Final = frozenset(
    ("array", "error", "job-name", "open-mode", "output", "parsable", "signal", "wait", "wrap")
)
_MIB: Final = 1 << 20
_TIMEOUT_MARGIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """How the tasks of one queue become jobs; None leaves it to the cluster.

    Attributes:
        setup: Lines of shell before Python starts; after `modules`, which are loaded in order.
        container: A command that runs another in a container: `apptainer exec --nv image.sif`.
        python: The interpreter in the job; default: that of the submitting process.
        srun: Start the job's processes with `srun`, one for each of `ntasks`.
        pack: How many short tasks of one kind share a job, one after the other.
        submit_limit: How many jobs (elements of arrays count) this user may have in the queue.
        max_array: Largest number of elements in an array; the cluster's own limit is found out if None.
        parallelism: How many elements of an array may run at a time.
        requeue: Let Slurm run a job again after a preemption or the failure of its node.
        notice_s: How long before its time limit a task is told of it.
        sbatch: Further options of sbatch by their long names.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    setup: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    container: str | None = None
    python: str | None = None
    srun: bool = False
    pack: int = 1
    submit_limit: int | None = None
    max_array: int | None = None
    parallelism: int | None = None
    requeue: bool = True
    notice_s: float = 60.0
    sbatch: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What one job asks for. Tasks with equal requests can be elements of one array.

    Attributes:
        queue: The queue's name, and `template` the tasks' group, for the name of the job.
        options: Options of sbatch by their long names, in order.
    """

    queue: str
    template: str
    settings: SlurmQueue
    options: tuple[tuple[str, Any], ...] = field(default=())
    srun: bool = False
    pack: int = 1


def request_of(message: TaskMessage, settings: SlurmQueue) -> Request:
    """The request of one task. `ConfigError` naming the resource that cannot be passed on."""
    resources = ResourceRequest.of(message.resources)
    extra = dict(resources.extra)
    pack = _whole(message, "pack", extra.pop("pack", settings.pack))
    ntasks = extra.pop("ntasks", None)
    srun = extra.pop("srun", settings.srun)
    options: dict[str, Any] = dict(settings.sbatch)
    named = (
        ("partition", settings.partition),
        ("account", settings.account),
        ("qos", settings.qos),
        ("constraint", settings.constraint),
        ("gres", settings.gres),
        ("time", _minutes(resources.runtime_s, message.timeout_s, pack)),
        ("mem", None if resources.memory_bytes is None else f"{math.ceil(resources.memory_bytes / _MIB)}M"),
        ("cpus-per-task", resources.cores),
        ("gpus-per-node", resources.gpus or None),
        ("nodes", resources.nodes),
        ("ntasks", None if ntasks is None else _whole(message, "ntasks", ntasks)),
    )
    options.update({key: value for key, value in named if value is not None})
    options.update(_extra(message, extra))
    return Request(
        message.queue, message.template or message.task, settings, tuple(sorted(options.items())), bool(srun), pack
    )


def check_option(key: str) -> str:
    """The long name of an option of sbatch, if it may be set. ValueError says why not."""
    name = key.replace("_", "-")
    if not _OPTION.fullmatch(name):
        raise ValueError(f"{key!r} is no option of sbatch: give its long name, such as 'mail-type'")
    if name in _RESERVED:
        raise ValueError(f"{key!r} is set by dagkit itself")
    return name


def _extra(message: TaskMessage, extra: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in extra.items():
        try:
            name = check_option(key)
        except ValueError as error:
            raise ConfigError(f"{message.task}: resources.extra: {error}") from None
        if not isinstance(value, (str, int, float, bool)) or (isinstance(value, str) and _has_control(value)):
            raise ConfigError(f"{message.task}: resources.extra.{key}: {value!r:.60} is no text, number or true")
        if value is not False:
            found[name] = value
    return found


def _has_control(text: str) -> bool:
    return any(ord(character) < 32 for character in text)


def _minutes(runtime_s: float | None, timeout_s: int | None, pack: int) -> int | None:
    """Slurm counts in minutes. A timeout alone asks for a little more: the coordinator is to stop the task first."""
    if runtime_s is not None:
        return math.ceil(runtime_s * pack / 60)
    return None if timeout_s is None else math.ceil((timeout_s * pack + _TIMEOUT_MARGIN_S) / 60)


def _whole(message: TaskMessage, key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ConfigError(f"{message.task}: resources.extra.{key}: found {value!r:.40}; allowed: a whole number from 1")
    return value
