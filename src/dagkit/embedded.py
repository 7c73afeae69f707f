"""Coordinators that live in this process: one for each store and target, shared by the runs that are going on.

A host and its workers stay for a few seconds after its last run: the next run, from the next cell perhaps, then starts
at once. It is not used again when what its workers have seen (files of modules, environment, working directory) has
changed since.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from dagkit.config import Settings, Target
from dagkit.coordinator import Coordinator, Pace
from dagkit.model.states import RunStatus
from dagkit.stores import open_store
from dagkit.stores.base import Store

if TYPE_CHECKING:
    from dagkit.coordinator.spans import Spans

__all__ = ["Host", "close_all", "drive", "driving"]

LINGER_S = 5.0
_CLOSE_S = 30.0

_current: dict[tuple[str, str], Host] = {}
_alive: set[Host] = set()
_lock = threading.Lock()


class Surroundings:
    """What workers were started with, and the state of the files of modules that they may have imported."""

    def __init__(self) -> None:
        self.started_with = os.getcwd(), list(sys.path), dict(os.environ)  # noqa: PTH109
        self.files = dict(_local_files())

    def still_hold_in(self, now: Surroundings) -> bool:
        """Whether nothing has changed since; modules imported meanwhile do not count."""
        same_files = all(now.files.get(file, stamp) == stamp for file, stamp in self.files.items())
        return same_files and self.started_with == now.started_with


def _local_files() -> Iterator[tuple[str, int]]:
    """Files of modules that are neither installed nor dagkit's own, with their times of modification."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    settled = (*installed, os.path.dirname(__file__))  # noqa: PTH120 - of dozens of files at each run
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(settled):
            with contextlib.suppress(OSError):
                yield file, os.stat(file).st_mtime_ns  # noqa: PTH116


class Host:
    """An embedded coordinator with the executors of its target. Closes itself a while after its last run has ended."""

    def __init__(self, store: Store, target: Target, surroundings: Surroundings, spans: Spans | None = None) -> None:
        self.key, self.target, self.surroundings = (store.url, target.name), target, surroundings
        self._own_store = None if store.url.startswith("memory:") else open_store(store.url)
        self._route = target.route(self._own_store or store)
        self.coordinator = Coordinator(
            self._own_store or store,
            self._route,
            role=role_of_this_process(),
            pace=Pace(cancel_poll_interval_s=0.25),
            limits=target.limits,
            spans=spans,
        ).start()
        self._users = self._visits = 0
        self._is_closing, self._is_closed = False, threading.Event()

    def fits(self, target: Target, surroundings: Surroundings) -> bool:
        """Whether a run with this target may use it now."""
        return self.coordinator.is_alive and self.target == target and self.surroundings.still_hold_in(surroundings)

    def enter(self) -> None:
        """One run more. Called under the lock."""
        self._users += 1
        self._visits += 1

    def leave(self, _: object = None) -> None:
        """One run less; after the last one it is closed in a while, unless another comes."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            linger_s, visits = (LINGER_S if _current.get(self.key) is self else 0.0), self._visits
        timer = threading.Timer(linger_s, self._close_unless_used, [visits])
        timer.name, timer.daemon = "dagkit-linger", True
        timer.start()

    def _close_unless_used(self, visits: int) -> None:
        with _lock:
            if self._users or self._visits != visits:
                return
            self._forget()
        self.close()

    def close(self) -> None:
        """Hand back what runs, save, stop the executors and the threads. Returns when that is done, whoever does it."""
        with _lock:
            self._forget()
            is_first, self._is_closing = not self._is_closing, True
        if not is_first:
            self._is_closed.wait(_CLOSE_S)
            return
        try:
            self.coordinator.close()
            self._route.close()
            if self._own_store is not None:
                self._own_store.close()
        finally:
            self._is_closed.set()
            with _lock:
                _alive.discard(self)

    def _forget(self) -> None:
        if _current.get(self.key) is self:
            del _current[self.key]


def drive(
    store: Store, settings: Settings, target: str, begin: Callable[[Coordinator], Future[RunStatus]]
) -> Future[RunStatus]:
    """Have a run driven in this process, beside the others of the same store and target.

    `begin` has the coordinator take over a run, or create one.
    """
    spans = settings.spans()
    chosen, surroundings = settings.target(target), Surroundings()
    with _lock:
        host = _current.get((store.url, chosen.name))
        if host is None or not host.fits(chosen, surroundings):
            host = _current[store.url, chosen.name] = Host(store, chosen, surroundings, spans)
            _alive.add(host)
        host.enter()
    try:
        outcome = begin(host.coordinator)
    except BaseException:
        host.leave()
        raise
    outcome.add_done_callback(host.leave)
    return outcome


def driving(store_url: str, workflow_id: str) -> Host | None:
    """The host in this process that drives this run, if one does."""
    with _lock:
        hosts = [host for host in _alive if host.key[0] == store_url]
    return next((host for host in hosts if host.coordinator.is_driving(workflow_id)), None)


def role_of_this_process() -> str:
    """`notebook`, `session` or `script`: who drives the run, for people who look at it from elsewhere."""
    if "ipykernel" in sys.modules:
        return "notebook"
    return "session" if hasattr(sys, "ps1") else "script"


@atexit.register
def close_all() -> None:
    """Hand back every run that this process drives. Returns when no thread and no worker of dagkit's is left."""
    with _lock:
        hosts = list(_alive)
    for host in hosts:
        host.close()
