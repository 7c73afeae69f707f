"""What a queue is on a PJM machine, and what one job asks for: settings and resources become arguments of pjsub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from dagkit.engine.gate import GateOptions
from dagkit.errors import ConfigError
from dagkit.model.messages import TaskMessage
from dagkit.model.resources import ResourceRequest

__all__ = ["PjmQueue", "Request", "checked_queue", "request_of"]

_VALUE: Final = re.compile(r"[A-Za-z0-9._:/=@+%-]+", re.ASCII)
_VOLUME: Final = re.compile(r"/[A-Za-z0-9._/-]+", re.ASCII)
_NODES: Final = re.compile(r"\d+(?:x\d+){0,2}(?::(?:torus|mesh|noncont|strict|strict-io))?", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
#: What dagkit sets itself; another value would cut the wire between a job and its completion.
_RESERVED: Final = frozenset(("node", "elapse", "rscgrp"))


@dataclass(frozen=True, slots=True)
class PjmQueue:
    """How the tasks of one queue become jobs; None leaves it to the site.

    Attributes:
        rscgrp: Resource group (`small`); `rscunit` the resource unit, where there are several.
        group: Project that pays (`-g`).
        node: Nodes, with a shape if wanted: `12`, `2x3x2:torus`.
        elapse_s: Limit of a job; tasks may name their own with `runtime`. PJM's own default is one minute, so one of
            the two must be given.
        gfscache: Volumes for `PJM_LLIO_GFSCACHE` (`/vol0004`).
        llio: Options of `--llio` by name, and `mpi` those of `--mpi`.
        rsc: Further keys of `-L` (`freq`, `eco_state`).
        arguments: Further arguments of pjsub, as they are.
        setup: Lines of shell before Python starts.
        python: The interpreter in the job; default: that of the submitting process.
        mode: `single`, `bulk`, or `auto`, which chooses by which limit is scarce.
        pack: How many short tasks of one kind share a job, one after the other.
        group_size: Most sub-jobs of one bulk job.
        template: File with a script of your own around `{command}`.
        gate: How many jobs may go, beside what PJM allows; shared by the queues of one project.
    """

    rscgrp: str | None = None
    rscunit: str | None = None
    group: str | None = None
    node: str | None = None
    elapse_s: float | None = None
    gfscache: tuple[str, ...] = ()
    llio: tuple[tuple[str, str], ...] = ()
    mpi: tuple[tuple[str, str], ...] = ()
    rsc: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    python: str | None = None
    mode: str = "auto"
    pack: int = 1
    group_size: int = 100
    template: str | None = None
    gate: GateOptions = field(default_factory=GateOptions)

    @property
    def project(self) -> tuple[str | None, str | None]:
        """What limits are counted by: resource unit and group."""
        return (self.rscunit, self.group)


@dataclass(frozen=True, slots=True)
class Request:
    """What one job asks for. Tasks with equal requests can be sub-jobs of one bulk job.

    Attributes:
        queue, template: For the name of the job and for people.
        rsc: Keys and values of `-L`, in order.
    """

    queue: str
    template: str
    settings: PjmQueue
    rsc: tuple[tuple[str, str], ...] = field(default=())
    pack: int = 1

    @property
    def profile(self) -> str:
        """What configuration errors are counted by."""
        return f"{self.queue} ({self.settings.rscgrp or 'default resource group'})"

    def arguments(self) -> list[str]:
        """Arguments of pjsub for this request, without those of one submission (name, files, bulk numbers)."""
        settings = self.settings
        found = ["-L", ",".join(f"{key}={value}" for key, value in self.rsc)]
        if settings.group is not None:
            found += ["-g", settings.group]
        if settings.mpi:
            found += ["--mpi", ",".join(f"{key}={value}" for key, value in settings.mpi)]
        for key, value in settings.llio:
            found += ["--llio", f"{key}={value}"]
        if settings.gfscache:
            # Volumes are joined by a colon: a comma separates variables of -x, and sends the job to ERR minutes later.
            found += ["-x", f"PJM_LLIO_GFSCACHE={':'.join(settings.gfscache)}"]
        return [*found, "--norestart", *settings.arguments]


def request_of(message: TaskMessage, settings: PjmQueue) -> Request:
    """The request of one task. `ConfigError` naming what cannot be passed on, or what is missing."""
    resources = ResourceRequest.of(message.resources)
    extra = dict(resources.extra)
    pack = extra.pop("pack", settings.pack)
    if type(pack) is not int or pack < 1:
        raise ConfigError(f"{message.task}: resources.extra.pack: found {pack!r:.40}; allowed: a whole number from 1")
    elapse_s = resources.runtime_s if resources.runtime_s is not None else settings.elapse_s
    if elapse_s is None:
        raise ConfigError(
            f"{message.task}: a job on queue {message.queue} needs an elapse limit, and PJM's own is one minute. "
            f"Give the task a runtime (runtime='2h'), or the queue an `elapse` in dagkit.toml."
        )
    node = str(resources.nodes) if resources.nodes is not None else settings.node or "1"
    rsc = {"node": node, "elapse": _elapse(elapse_s * pack)}
    if settings.rscgrp is not None:
        rsc["rscgrp"] = settings.rscgrp
    if settings.rscunit is not None:
        rsc["rscunit"] = settings.rscunit
    rsc.update(settings.rsc)
    rsc.update(_extra(message, extra))
    return Request(message.queue, message.template or message.task, settings, tuple(rsc.items()), pack)


def _extra(message: TaskMessage, extra: dict[str, Any]) -> dict[str, str]:
    found = {}
    for key, value in extra.items():
        if not _WORD.fullmatch(key) or key in _RESERVED:
            raise ConfigError(
                f"{message.task}: resources.extra.{key}: allowed are further keys of pjsub -L; nodes, runtime and the "
                f"queue's resource group have settings of their own"
            )
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not _VALUE.fullmatch(str(value)):
            raise ConfigError(f"{message.task}: resources.extra.{key}: {value!r:.60} is no value of pjsub -L")
        found[key] = str(value)
    return found


def _elapse(seconds: float) -> str:
    """`h:mm:ss`, rounded up to a whole second."""
    whole = ceil(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def checked_queue(name: str, settings: PjmQueue) -> PjmQueue:
    """The settings, if pjsub would take them apart as they are meant. `ConfigError` naming the key."""
    texts = {"rscgrp": settings.rscgrp, "rscunit": settings.rscunit, "group": settings.group}
    for key, value in texts.items():
        if value is not None and not _VALUE.fullmatch(value):
            raise ConfigError(f"queue {name}: {key}: {value!r:.60} is no name")
    if settings.node is not None and not _NODES.fullmatch(settings.node):
        raise ConfigError(
            f"queue {name}: node: {settings.node!r:.60}; allowed: 12, 4x3, 2x3x2, with :torus or :noncont"
        )
    for volume in settings.gfscache:
        if not _VOLUME.fullmatch(volume):
            raise ConfigError(f"queue {name}: gfscache: {volume!r:.60} is no volume, such as /vol0004")
    for key, pairs in (("llio", settings.llio), ("mpi", settings.mpi), ("rsc", settings.rsc)):
        _check_pairs(name, key, pairs)
    if settings.mode not in ("single", "bulk", "auto"):
        raise ConfigError(f"queue {name}: mode: {settings.mode!r:.40}; allowed: single, bulk, auto")
    return settings


def _check_pairs(name: str, section: str, pairs: Sequence[tuple[str, str]]) -> None:
    for key, value in pairs:
        if not _WORD.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError(f"queue {name}: {section}.{key}: {value!r:.60} is no value that pjsub takes")
        if section == "rsc" and key in _RESERVED:
            raise ConfigError(f"queue {name}: {section}.{key}: it has a setting of its own")
