"""Who may drive a run: owners, and the leases of one coordinator."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

from dagkit.errors import BackendError, DagkitError, LeaseLost, RunBusy
from dagkit.stores.base import Lease, Store

__all__ = ["Leases", "is_owner_dead", "is_this_process", "make_owner", "owner_words"]

log = logging.getLogger("dagkit.coordinator")

_FEW = 4
_AT_A_TIME = 8


def make_owner(role: str) -> str:
    """`notebook (host-a) #1234.567`: for people before the `#`, for `is_owner_dead` after it."""
    return f"{role} ({platform.node()}) #{os.getpid()}.{_start_time(os.getpid())}"


def owner_words(owner: str) -> str:
    """The part of an owner that people read."""
    return owner.split(" #", 1)[0]


def is_owner_dead(owner: str) -> bool:
    """Whether an owner ran on this host and is certainly gone."""
    words, _, process = owner.partition(" #")
    pid, _, started = process.partition(".")
    if not pid.isdigit() or f"({platform.node()})" not in words:
        return False
    return _start_time(int(pid)) != started


def is_this_process(owner: str) -> bool:
    """Whether an owner is this very process."""
    return owner.partition(" #")[2] == make_owner("").partition(" #")[2] and f"({platform.node()})" in owner


def _start_time(pid: int) -> str:
    """When a process began; empty for one that is gone, though nobody may have collected its status yet."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return ""


class Leases:
    """Acquires, renews and releases leases for one owner. A lease of a dead process of this host is broken at once."""

    def __init__(self, store: Store, owner: str, ttl_s: float) -> None:
        self._store, self.owner, self._ttl_s = store, owner, ttl_s

    def acquire(self, name: str) -> Lease:
        """The lease; `RunBusy` naming the holder if it is somebody else's."""
        lease = self._store.acquire_lease(name, self.owner, self._ttl_s)
        if lease is not None:
            return lease
        holder = self._store.lease(name)
        if holder is not None and is_owner_dead(holder.owner):
            self._store.break_lease(name)
        lease = self._store.acquire_lease(name, self.owner, self._ttl_s)
        if lease is not None:
            return lease
        by = owner_words(holder.owner) if holder else "another process"
        what = name.removeprefix("run/")
        raise RunBusy(f"{what} is driven by {by}; look at it with dagkit.attach, or wait for its end")

    def renew(self, lease: Lease) -> Lease:
        """The renewed lease, or the same one if the store did not answer; `LeaseLost` if it was taken over."""
        try:
            return self._store.renew_lease(lease, self._ttl_s)
        except LeaseLost:
            raise
        except BackendError as error:
            log.warning("cannot renew lease %s: %s", lease.name, error)
            return lease

    def renew_all(self, leases: Sequence[Lease]) -> list[Lease | LeaseLost]:
        """What `renew` gives for each; several at a time, as a service takes a request for each."""
        if len(leases) < _FEW:
            return [self._renewed(lease) for lease in leases]
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="dagkit-renew") as pool:
            return list(pool.map(self._renewed, leases))

    def _renewed(self, lease: Lease) -> Lease | LeaseLost:
        try:
            return self.renew(lease)
        except LeaseLost as error:
            return error

    def release(self, lease: Lease) -> None:
        """Give it up; a store that does not answer lets it lapse."""
        try:
            self._store.release_lease(lease)
        except DagkitError as error:
            log.warning("cannot release lease %s: %s", lease.name, error)
