"""Targets: which executor runs the tasks of which queue."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagkit.config.files import check_keys
from dagkit.config.pjm import PJM_OPTIONS, PJM_SETTINGS, make_pjm
from dagkit.config.slurm import SLURM_OPTIONS, make_slurm, shared_by
from dagkit.engine.scaling import QueueLimits, over_limit
from dagkit.errors import ConfigError
from dagkit.model.resources import ResourceRequest, resource_faults
from dagkit.settings import CoordinatorSettings, GeneralSettings, Option, WorkerSettings, options_of

if TYPE_CHECKING:
    from dagkit.executors.base import Executor
    from dagkit.stores.base import Store

__all__ = ["ExecutorChoice", "Route", "Target", "read_choice", "read_targets"]

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "local": ("slots", "python", "kill_timeout_s"),
    "queued": ("service",),
    "slurm": tuple(SLURM_OPTIONS),
    "pjm": PJM_SETTINGS,
}
_OPTIONS: Mapping[str, Option] = {
    **SLURM_OPTIONS,
    **PJM_OPTIONS,
    "slots": options_of(GeneralSettings)["slots"],
    "python": options_of(GeneralSettings)["python"],
    "kill_timeout_s": options_of(WorkerSettings)["kill_timeout_s"],
    "service": options_of(GeneralSettings)["queues"],
}


@dataclass(frozen=True)
class ExecutorChoice:
    """An executor by kind with its settings; equal choices share one executor."""

    kind: str
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Target:
    """A named mapping queue -> executor.

    Attributes:
        default: For queues that are not named.
        queues: For those that are.
        limits: The most that one task may ask of a queue.
        defaults: What a task of a queue asks for where it does not say.
    """

    name: str
    default: ExecutorChoice
    queues: Mapping[str, ExecutorChoice] = field(default_factory=dict)
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def choice(self, queue: str) -> ExecutorChoice:
        return self.queues.get(queue, self.default)

    def route(self, store: Store, coordinator: CoordinatorSettings | None = None) -> Route:
        """The executors of this target over `store`; each is made when a queue first needs it."""
        return Route(self, store, coordinator or CoordinatorSettings())


class Route:
    """Gives the executor of a queue; the same one for all queues whose choices are equal. Not thread-safe."""

    def __init__(self, target: Target, store: Store, coordinator: CoordinatorSettings) -> None:
        self.target = target
        self._store, self._coordinator = store, coordinator
        self._executors: dict[ExecutorChoice, Executor] = {}

    def __call__(self, queue: str) -> Executor:
        choice = self.target.choice(queue)
        if choice.kind == "slurm":
            return self._slurm(choice)
        if choice.kind == "pjm":
            return self._pjm()
        if choice not in self._executors:
            self._executors[choice] = _MAKERS[choice.kind](self._store, self._coordinator, dict(choice.settings))
        return self._executors[choice]

    def _slurm(self, choice: ExecutorChoice) -> Executor:
        """One executor asks the scheduler for all queues."""
        key = ExecutorChoice("slurm", shared_by(choice.settings))
        if key not in self._executors:
            default = self.target.default
            others = {
                queue: dict(other.settings)
                for queue, other in self.target.queues.items()
                if other.kind == "slurm" and shared_by(other.settings) == key.settings
            }
            self._executors[key] = make_slurm(
                self._store, others, dict(default.settings) if default.kind == "slurm" else None
            )
        return self._executors[key]

    def _pjm(self) -> Executor:
        """One executor asks PJM for all queues of the target."""
        key = ExecutorChoice("pjm")
        if key not in self._executors:
            default, queues = self.target.default, self.target.queues
            others = {queue: dict(other.settings) for queue, other in queues.items() if other.kind == "pjm"}
            self._executors[key] = make_pjm(
                self._store, others, dict(default.settings) if default.kind == "pjm" else None
            )
        return self._executors[key]

    @property
    def executors(self) -> list[Executor]:
        """Those that have been made."""
        return list(self._executors.values())

    def close(self, grace_s: float = 5.0) -> None:
        """Close every executor that was made."""
        while self._executors:
            _, executor = self._executors.popitem()
            executor.close(grace_s)


def read_targets(tables: Mapping[str, tuple[Any, Path]], general: GeneralSettings) -> dict[str, Target]:
    """The built-in targets and those of configuration files (`name -> (table, file)`)."""
    targets = {kind: Target(kind, _with_general(kind, {}, general)) for kind in ("local", "queued", "slurm", "pjm")}
    for name, (table, path) in tables.items():
        targets[name] = _read_target(name, table, f"{path}: [targets.{name}]", general)
    return targets


def _read_target(name: str, table: Any, where: str, general: GeneralSettings) -> Target:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: expected a table")
    check_keys(table, ("default", "queues", *dict.fromkeys(key for keys in _SETTINGS.values() for key in keys)), where)
    shared = {key: value for key, value in table.items() if key not in ("default", "queues")}
    default = _read_choice(table.get("default", "local"), shared, f"{where} default", general)
    queues = table.get("queues", {})
    if not isinstance(queues, Mapping):
        raise ConfigError(f"{where}: queues is not a table of queue names")
    chosen, limits, defaults = {}, {}, {}
    for queue, value in queues.items():
        place = f"{where} queues.{queue}"
        own = dict(value) if isinstance(value, Mapping) else value
        if isinstance(own, dict):
            limits[queue], asked = _read_limits(own, place), _read_requests(own, "default_", place)
            if asked:
                defaults[queue] = _within(asked, limits[queue], place)
            if asked or limits[queue] != QueueLimits():
                own.setdefault("executor", default.kind)
        chosen[queue] = _read_choice(own, shared, place, general)
    return Target(name, default, chosen, limits, defaults)


def _read_limits(table: dict[str, Any], where: str) -> QueueLimits:
    """Takes the limits of a queue out of its table."""
    request = ResourceRequest.of(_read_requests(table, "max_", where))
    return QueueLimits(request.memory_bytes, request.runtime_s, request.cores)


def _read_requests(table: dict[str, Any], prefix: str, where: str) -> dict[str, Any]:
    """Takes memory, runtime and cores, whose names begin with `prefix`, out of the table of a queue."""
    found = {key: table.pop(prefix + key) for key in ("memory", "runtime", "cores") if prefix + key in table}
    faults = resource_faults(found, refs_allowed=False)
    if faults:
        raise ConfigError(f"{where}: " + "; ".join(fault.replace("resources.", prefix) for _, fault in faults))
    return found


def _within(asked: dict[str, Any], limits: QueueLimits, where: str) -> dict[str, Any]:
    over = over_limit(asked, limits)
    if over is not None:
        raise ConfigError(f"{where}: default_{over[0]} = {asked[over[0]]!r} is more than max_{over[0]}")
    return asked


def _read_choice(value: Any, shared: Mapping[str, Any], where: str, general: GeneralSettings) -> ExecutorChoice:
    table = {"executor": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("executor"), str):
        raise ConfigError(f"{where}: expected the name of an executor, or a table with an executor and its settings")
    kind = table["executor"]
    if kind not in _SETTINGS:
        near = difflib.get_close_matches(kind, [*_SETTINGS], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{where}: no executor {kind!r}; allowed: {', '.join(_SETTINGS)}.{hint}")
    check_keys(table, ("executor", *_SETTINGS[kind]), where)
    own = {key: value for key, value in table.items() if key != "executor"}
    return _with_general(kind, {**{k: v for k, v in shared.items() if k in _SETTINGS[kind]}, **own}, general, where)


def read_choice(table: Mapping[str, Any], general: GeneralSettings, where: str) -> ExecutorChoice:
    """A choice from a table with an `executor` and its settings, checked. `ConfigError`."""
    return _read_choice(table, {}, where, general)


def _with_general(kind: str, settings: dict[str, Any], general: GeneralSettings, where: str = "") -> ExecutorChoice:
    """A choice whose unsaid settings are the general ones."""
    if kind == "local":
        settings = {"slots": general.slots, "python": general.python, **settings}
    elif kind == "queued" and general.queues:
        settings = {"service": general.queues, **settings}
    checked = {key: _check(key, value, where) for key, value in settings.items() if value is not None}
    return ExecutorChoice(kind, tuple(sorted(checked.items())))


def _check(key: str, value: Any, where: str) -> Any:
    return _OPTIONS[key].read(value, f"{where}: {key}")


def _make_local(store: Store, coordinator: CoordinatorSettings, settings: dict[str, Any]) -> Executor:
    from dagkit.executors.local import LocalExecutor

    return LocalExecutor(store, **settings)


def _make_queued(store: Store, coordinator: CoordinatorSettings, settings: dict[str, Any]) -> Executor:
    from dagkit.executors.queued import QueuedExecutor
    from dagkit.queues import open_transport, service_url

    transport = open_transport(service_url(settings.get("service"), store.url))
    return QueuedExecutor(store, transport, batch_size=coordinator.batch_size, lock_s=coordinator.visibility_timeout_s)


_MAKERS: Mapping[str, Callable[[Store, CoordinatorSettings, dict[str, Any]], Executor]] = {
    "local": _make_local,
    "queued": _make_queued,
}
