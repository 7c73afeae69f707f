"""The executors of a runner: one for each kind of target, told of every profile that its jobs have."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dagkit.bulk.jobs import HpcProfile
from dagkit.config import Settings
from dagkit.config.targets import ExecutorChoice, Route, Target, read_choice
from dagkit.errors import ConfigError
from dagkit.executors.base import Executor
from dagkit.stores.base import Store

__all__ = ["Places", "choice_of"]

_QUEUE_KEY: Final = {"pjm": "rscgrp", "slurm": "partition"}
_PROJECT_KEY: Final = {"pjm": "group", "slurm": "account"}


class Places:
    """Executors by queue name. A queue name stands for one profile. One thread's."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._choices: dict[str, ExecutorChoice] = {}
        self._routes: dict[str, Route] = {}
        self.made: list[Executor] = []

    def queue_of(self, profile: HpcProfile) -> str:
        """The name of the queue that stands for a profile."""
        choice = choice_of(profile, self._settings)
        digest = hashlib.sha256(repr(choice).encode()).hexdigest()[:8]  # the same in every process
        name = f"{profile.target}-{profile.queue or 'default'}-{digest}"
        if name not in self._choices:
            self._choices[name] = choice
            self._renew(choice.kind)
        return name

    def _renew(self, kind: str) -> None:
        """Executors of schedulers are made anew when a profile comes: their jobs live on, and are found again."""
        route = self._routes.pop(kind, None)
        if route is not None:
            if kind == "local":
                self._routes[kind] = route
                return
            route.close()
        self.made = [executor for one in self._routes.values() for executor in one.executors]

    def of(self, queue: str) -> Executor:
        """The executor of a queue."""
        choice = self._choices[queue]
        route = self._routes.get(choice.kind)
        if route is None:
            named: Mapping[str, ExecutorChoice] = {
                name: other for name, other in self._choices.items() if other.kind == choice.kind
            }
            route = self._routes[choice.kind] = Route(
                Target("bulk", choice, named), self._store, self._settings.coordinator
            )
        executor = route(queue if choice.kind != "local" else "default")
        self.made = [one for each in self._routes.values() for one in each.executors]
        return executor

    def close(self) -> None:
        for route in self._routes.values():
            route.close()
        self._routes.clear()


def choice_of(profile: HpcProfile, settings: Settings) -> ExecutorChoice:
    """The executor that a profile means, and its settings. `ConfigError`."""
    target = settings.targets.get(profile.target)
    if target is None:
        known = ", ".join(sorted(settings.targets))
        raise ConfigError(f"no target {profile.target!r}; there are {known}")
    is_built_in = profile.target in ("local", "queued", "slurm", "pjm")
    base = target.choice(profile.queue or "default") if not is_built_in else target.default
    added: dict[str, Any] = dict(profile.options)
    if profile.queue is not None and is_built_in and base.kind in _QUEUE_KEY:
        added[_QUEUE_KEY[base.kind]] = profile.queue
    if profile.project is not None and base.kind in _PROJECT_KEY:
        added[_PROJECT_KEY[base.kind]] = profile.project
    where = f"profile {profile.target}"
    checked = read_choice({"executor": base.kind, **added}, settings.general, where)
    return replace(base, settings=tuple(sorted({**dict(base.settings), **dict(checked.settings)}.items())))
