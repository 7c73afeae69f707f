"""The store in an Azure storage account: the port over the parts that keep documents, the index, bytes and leases."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dagkit.azure.account import find_account
from dagkit.azure.connection import Connection
from dagkit.azure.place import Place
from dagkit.errors import BackendError, UnknownRun, WorkflowExists
from dagkit.model.names import check_workflow_id
from dagkit.model.records import RunRow, StateChanges
from dagkit.model.states import RunStatus
from dagkit.stores import documents
from dagkit.stores.azure import check
from dagkit.stores.azure.container import Container
from dagkit.stores.azure.files import StoredBlobs
from dagkit.stores.azure.index import Entry, IndexTable, is_over, run_row, states_condition
from dagkit.stores.azure.leases import LeaseBlobs
from dagkit.stores.azure.runs import RunBlobs
from dagkit.stores.base import StoredRun
from dagkit.stores.leases import driver_of, run_lease

__all__ = ["AzureStore"]

log = logging.getLogger(__name__)

_AT_A_TIME: Final = 16
_FEW: Final = 8
_LAST_PAUSES_S: Final = (0.5, 2.0, 5.0)
_ACTIVE: Final = tuple(status for status in RunStatus if not status.is_over)


class AzureStore(StoredBlobs, LeaseBlobs):
    """A `Store` under a prefix of a storage account, in the layout of ai4s-jobq. Containers and table are made when
    something is first written.

    Args:
        place: Where; its url names the store for other processes, which find the same credentials in the environment.
        clock: What leases and ages are judged by; the service's own clock if None.
    """

    def __init__(self, place: Place, *, clock: Callable[[], float] | None = None) -> None:
        names = place.names
        self.place, self.url = place, place.url
        self._clock = clock
        self._connection = Connection(find_account(place.account))
        elsewhere = place.blobs_account not in ("", place.account)
        self._blobs = Connection(find_account(place.blobs_account)) if elsewhere else self._connection
        self._state = Container(self._connection, names.state_container)
        self._outputs = Container(self._connection, names.output_container)
        self._files = Container(self._blobs, place.blobs_container)
        self._runs = RunBlobs(self._state, self.url)
        self._index = IndexTable(self._connection, names.index_table)
        self._mine = {}
        self._opening = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"AzureStore({self.url!r})"

    def now(self) -> float:
        if self._clock is not None:
            return self._clock()
        clock = self._connection.clock
        if not clock.is_known:
            self._state.head("leases/coordinator", "asking for the time")
        return clock.now()

    def close(self) -> None:
        with self._opening:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(cancel_futures=True)
        self._connection.close()
        self._blobs.close()

    def check(self) -> list[tuple[str, str, str]]:
        return check.check(self._connection.account, self._state, self._outputs, self._index)

    def _pool(self) -> ThreadPoolExecutor:
        with self._opening:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="dagkit-azure")
            return self._threads

    # --- runs

    def create(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        check_workflow_id(workflow_id)
        etag, is_new = self._runs.create(workflow_id, definition, state)
        if not is_new and self._index.get(workflow_id, f"creating run {workflow_id}") is not None:
            raise WorkflowExists(workflow_id, f"a run of {definition.get('name')!r}")
        self._index.put_new(workflow_id, _entry(definition, state), self.now())
        return etag

    def load(self, workflow_id: str) -> StoredRun:
        run = self._runs.load(workflow_id)
        row = self._index.get(workflow_id, f"loading run {workflow_id}")
        run.state["cancel_requested"] = bool(run.state.get("cancel_requested") or (row or {}).get("cancel_requested"))
        return run

    def load_definition(self, workflow_id: str) -> dict[str, Any]:
        return self._runs.load_definition(workflow_id)

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        """As in `Store`; costs one write of the state and one of the index row."""
        saved = self._runs.save(workflow_id, changes, etag)
        head = changes.head
        entry = Entry(head["workflow_state"], changes.counts, head.get("error"), None, changes.groups)
        self._refresh(workflow_id, entry)
        return saved

    def replace(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any], etag: str) -> str:
        replaced = self._runs.replace(workflow_id, definition, state, etag)
        self._refresh(workflow_id, _entry(definition, state))
        return replaced

    def _refresh(self, workflow_id: str, entry: Entry) -> None:
        """Best effort: the row is derived, and the state is written. Patient with the last word on a run."""
        status = documents.status_of(entry.status)
        last = isinstance(status, RunStatus) and status.is_over
        for pause in (*(_LAST_PAUSES_S if last else ()), None):
            try:
                self._index.refresh(workflow_id, entry, self.now())
            except BackendError as error:
                if pause is None:
                    log.warning("the index row is behind until the next save: %s", error)
                else:
                    time.sleep(pause)
            else:
                return

    def delete(self, workflow_id: str) -> bool:
        doing = f"deleting run {workflow_id}"
        found = self._runs.delete(workflow_id)
        for container, folder in ((self._outputs, f"{workflow_id}/"), (self._files, f"workflow-files/{workflow_id}/")):
            names = [blob.name for blob in container.list(folder, doing)]
            self._each(lambda name, container=container: container.delete(name, doing), names)  # type: ignore[misc]
        self._index.delete(workflow_id)
        if self.lease(run_lease(workflow_id)) is None:
            self.break_lease(run_lease(workflow_id))  # of somebody who is gone
        return found

    def leftovers(self, older_than_s: float) -> list[str]:
        """As in `Store`: definitions without a row. Lists every run of the prefix."""
        before = self.now() - older_than_s
        stored = [workflow_id for workflow_id, at in self._runs.stored().items() if at <= before]
        shown = {row["RowKey"] for row in self._index.query("", "looking for interrupted submits")} if stored else set()
        return sorted(set(stored) - shown)

    def row(self, workflow_id: str) -> RunRow:
        row = self._row(workflow_id, f"looking at run {workflow_id}")
        own = self.lease(run_lease(workflow_id))
        service = None if own or is_over(row) else self.lease("coordinator")
        owners = {lease.name: lease.owner for lease in (own, service) if lease}
        return run_row(row, driver_of(workflow_id, is_over(row), owners), with_groups=True)

    def rows(self, status: Collection[RunStatus] | None = None, limit: int | None = None) -> list[RunRow]:
        if (status is not None and not status) or limit == 0:
            return []
        found = list(self._index.query("" if status is None else states_condition(status), "listing runs"))
        owners = {lease.name: lease.owner for lease in self.leases()}
        rows = [run_row(row, driver_of(row["RowKey"], is_over(row), owners)) for row in found]
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        return rows[:limit]

    def task_entries(self, workflow_id: str, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        tasks = self._runs.tasks(workflow_id)
        wanted = tasks if names is None else [name for name in dict.fromkeys(names) if name in tasks]
        return {name: dict(tasks[name]) for name in wanted}

    def _row(self, workflow_id: str, doing: str) -> dict[str, Any]:
        row = self._index.get(workflow_id, doing)
        if row is None:
            raise UnknownRun(workflow_id, self.url)
        return row

    # --- control

    def request_cancel(self, workflow_id: str) -> None:
        doing = f"cancelling run {workflow_id}"
        if not is_over(self._row(workflow_id, doing)) and not self._index.set_cancel(workflow_id, True, doing):
            raise UnknownRun(workflow_id, self.url)

    def clear_cancel(self, workflow_id: str) -> None:
        doing = f"withdrawing the cancel request of run {workflow_id}"
        if not self._index.set_cancel(workflow_id, False, doing):
            raise UnknownRun(workflow_id, self.url)

    def cancel_requested(self, workflow_ids: Collection[str]) -> set[str]:
        """As in `Store`: a look at each row where there are few, else one look for every flag that is set."""
        doing = "looking for cancel requests"
        wanted = set(workflow_ids)
        if len(wanted) <= _FEW:
            rows = self._each(lambda workflow_id: self._index.get(workflow_id, doing), wanted)
            return {row["RowKey"] for row in rows if row and row.get("cancel_requested")}
        flagged = self._index.query(f"cancel_requested eq true and ({states_condition(_ACTIVE)})", doing)
        return wanted.intersection(row["RowKey"] for row in flagged)


def _entry(definition: Mapping[str, Any], state: Mapping[str, Any]) -> Entry:
    status = state.get("workflow_state", "pending")
    return Entry(status, documents.count_tasks(definition, state), state.get("error"), definition)
