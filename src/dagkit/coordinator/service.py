"""The service of a store: who drives every run of it, and which runs there are to drive."""

from __future__ import annotations

import logging
from collections.abc import Container

from dagkit.coordinator.ownership import Leases
from dagkit.errors import BackendError, LeaseLost, RunBusy
from dagkit.model.states import RunStatus
from dagkit.stores.base import Lease, Store

__all__ = ["SERVICE_LEASE", "Service"]

log = logging.getLogger("dagkit.coordinator")

SERVICE_LEASE = "coordinator"
_ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLING)


class Service:
    """One coordinator's claim to the service lease. The coordinator's thread only."""

    def __init__(self, store: Store, leases: Leases) -> None:
        self._store, self._leases = store, leases
        self._lease: Lease | None = None

    @property
    def is_held(self) -> bool:
        return self._lease is not None

    def hold(self) -> bool:
        """Whether the lease is held here; tries to get it if not."""
        if self._lease is None:
            try:
                self._lease = self._leases.acquire(SERVICE_LEASE)
            except (RunBusy, BackendError) as error:
                log.debug("standing by: %s", error)
        return self._lease is not None

    def renew(self) -> None:
        """Does nothing without the lease. `LeaseLost` if another coordinator has taken over."""
        if self._lease is None:
            return
        try:
            self._lease = self._leases.renew(self._lease)
        except LeaseLost:
            log.warning("another coordinator has taken over; standing by")
            self._lease = None
            raise

    def leave(self) -> None:
        """Give the lease up."""
        if self._lease is not None:
            self._leases.release(self._lease)
            self._lease = None

    def runs_to_drive(self, driven: Container[str]) -> list[str]:
        """Ids of the runs that are not over and not among those that are driven."""
        try:
            rows = self._store.rows(status=_ACTIVE)
        except BackendError as error:
            log.warning("cannot list runs: %s", error)
            return []
        return [row.workflow_id for row in rows if row.workflow_id not in driven]
