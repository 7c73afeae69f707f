"""Coordinators that live in this process: one for each store and target, shared by the runs that are going on."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

from dagkit.config import Settings, Target
from dagkit.coordinator import Coordinator, Pace
from dagkit.model.states import RunStatus
from dagkit.stores.base import Store

__all__ = ["Host", "close_all", "drive", "driving"]

log = logging.getLogger("dagkit.embedded")

_CLOSE_S = 30.0

_hosts: dict[tuple[str, str], Host] = {}
_closing: set[Host] = set()
_lock = threading.Lock()


class Host:
    """An embedded coordinator with the executors of its target. Closes itself when its last run has ended."""

    def __init__(self, store: Store, target: Target) -> None:
        self.store, self.target = store, target
        self._route = target.route(store)
        pace = Pace(cancel_poll_interval_s=0.25)
        self.coordinator = Coordinator(store, self._route, role=role_of_this_process(), pace=pace).start()
        self._users = 0
        self.is_closed = threading.Event()

    @property
    def key(self) -> tuple[str, str]:
        return self.store.url, self.target.name

    def _leave(self, _: object = None) -> None:
        with _lock:
            self._users -= 1
            if self._users or _hosts.get(self.key) is not self:
                return
            del _hosts[self.key]
            _closing.add(self)
        # the callback of a future runs in the coordinator's own thread, which close() joins
        threading.Thread(target=self.close, name="dagkit-close", daemon=True).start()

    def close(self) -> None:
        """Hand back what runs, save, stop the executors and the threads."""
        with _lock:
            if _hosts.get(self.key) is self:
                del _hosts[self.key]
        try:
            self.coordinator.close()
            self._route.close()
        finally:
            self.is_closed.set()
            _closing.discard(self)


def drive(
    store: Store, settings: Settings, target: str, begin: Callable[[Coordinator], Future[RunStatus]]
) -> Future[RunStatus]:
    """Have a run driven in this process, beside the others of the same store and target.

    `begin` has the coordinator take over a run, or create one.
    """
    with _lock:
        host = _hosts.get((store.url, target))
        if host is None:
            host = _hosts[store.url, target] = Host(store, settings.target(target))
        host._users += 1
    try:
        outcome = begin(host.coordinator)
    except BaseException:
        host._leave()
        raise
    outcome.add_done_callback(host._leave)
    return outcome


def driving(store_url: str, workflow_id: str) -> Host | None:
    """The host in this process that drives this run, if one does."""
    with _lock:
        hosts = [host for (url, _), host in _hosts.items() if url == store_url]
    return next((host for host in hosts if host.coordinator.is_driving(workflow_id)), None)


def role_of_this_process() -> str:
    """`notebook`, `session` or `script`: who drives the run, for people who look at it from elsewhere."""
    if "ipykernel" in sys.modules:
        return "notebook"
    return "session" if hasattr(sys, "ps1") else "script"


@atexit.register
def close_all() -> None:
    """Hand back every run that this process drives. Returns when no thread and no worker of dagkit's is left."""
    for host in list(_hosts.values()):
        host.close()
    for host in list(_closing):
        host.is_closed.wait(_CLOSE_S)
