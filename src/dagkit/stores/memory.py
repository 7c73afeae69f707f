"""The store that lives and dies with its process: for tests and for runs that nobody will ask about."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagkit.errors import BackendError, StateConflict, UnknownRun, WorkflowExists
from dagkit.model.records import Counts, RunRow, StateChanges
from dagkit.model.states import RunStatus
from dagkit.stores import documents
from dagkit.stores.base import Lease, StoredRun
from dagkit.stores.leases import HeldLease, driver_of, lease_lost
from dagkit.stores.payloads import digest_of, hex_of, is_blob, output_ref

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Run:
    """A run as text: what a caller does to its documents later does not reach what is stored."""

    number: int
    version: int
    definition: bytes
    head: str
    tasks: dict[str, str]
    name: str
    default_queue: str
    queues_used: tuple[str, ...]
    status: str
    error: str
    counts: Counts
    created_at: float
    updated_at: float
    cancel_requested: bool = False

    @property
    def etag(self) -> str:
        return f"{self.number}.{self.version}"

    @property
    def is_over(self) -> bool:
        status = documents.status_of(self.status)
        return isinstance(status, RunStatus) and status.is_over


class MemoryStore:
    """A `Store` in this process's memory. Other processes cannot open it."""

    url = "memory:"

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._runs: dict[str, _Run] = {}
        self._outputs: dict[str, bytes] = {}
        self._payloads: dict[str, bytes] = {}
        self._logs: dict[tuple[str, str, str], bytearray] = {}
        self._results: dict[str, str] = {}
        self._leases: dict[str, HeldLease] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._runs)} runs)"

    def now(self) -> float:
        return self.clock()

    def close(self) -> None:
        """Nothing to close; what was stored stays until the object goes."""

    def check(self) -> list[tuple[str, str, str]]:
        return [("store", "warn", "runs are kept in memory and are gone when this process ends (store=...)")]

    # --- runs

    def create(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        with self._lock:
            if taken := self._runs.get(workflow_id):
                raise WorkflowExists(workflow_id, f"a run of {taken.name!r}")
            run = self._runs[workflow_id] = self._new(definition, state, self.now())
            return run.etag

    def replace(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any], etag: str) -> str:
        with self._lock:
            old = self._current(workflow_id, etag)
            run = self._new(definition, state, old.created_at)
            run.number, run.version, run.cancel_requested = old.number, old.version + 1, old.cancel_requested
            self._runs[workflow_id] = run
            return run.etag

    def _new(self, definition: Mapping[str, Any], state: Mapping[str, Any], created_at: float) -> _Run:
        head, tasks = documents.split(state)
        return _Run(
            number=next(self._numbers),
            version=1,
            definition=documents.pack(definition),
            head=documents.encode(head),
            tasks={name: documents.encode(entry) for name, entry in tasks.items()},
            name=definition.get("name", ""),
            default_queue=definition.get("default_queue", "default"),
            queues_used=documents.queues_used(definition),
            status=head.get("workflow_state", "pending"),
            error=head.get("error") or "",
            counts=documents.count_tasks(definition, state),
            created_at=created_at,
            updated_at=self.now(),
        )

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        head = documents.head_to_text(changes)
        texts = {name: documents.encode(entry) for _, name, entry in changes.tasks}
        with self._lock:
            run = self._current(workflow_id, etag)
            run.head, run.status, run.error = head, changes.head["workflow_state"], changes.head.get("error") or ""
            run.tasks.update(texts)
            run.counts, run.updated_at, run.version = _copy(changes.counts), self.now(), run.version + 1
            return run.etag

    def _current(self, workflow_id: str, etag: str) -> _Run:
        run = self._find(workflow_id)
        if run.etag != etag:
            raise StateConflict(workflow_id)
        return run

    def _find(self, workflow_id: str) -> _Run:
        try:
            return self._runs[workflow_id]
        except KeyError:
            raise UnknownRun(workflow_id, "memory") from None

    def load(self, workflow_id: str) -> StoredRun:
        with self._lock:
            run = self._find(workflow_id)
            state = documents.unpack(run.head.encode(), f"state of run {workflow_id}")
            state["cancel_requested"] = bool(state.get("cancel_requested") or run.cancel_requested)
            state.pop("groups", None)
            state["tasks"] = self.task_entries(workflow_id)
            return StoredRun(self.load_definition(workflow_id), state, run.etag)

    def load_definition(self, workflow_id: str) -> dict[str, Any]:
        with self._lock:
            return documents.unpack(self._find(workflow_id).definition, f"definition of run {workflow_id}")

    def delete(self, workflow_id: str) -> bool:
        with self._lock:
            prefix = output_ref(workflow_id, "")
            self._outputs = {ref: data for ref, data in self._outputs.items() if not ref.startswith(prefix)}
            self._results = {key: ref for key, ref in self._results.items() if not ref.startswith(prefix)}
            self._logs = {key: text for key, text in self._logs.items() if key[0] != workflow_id}
            return self._runs.pop(workflow_id, None) is not None

    def leftovers(self, older_than_s: float) -> list[str]:
        """None: a submit is one step here."""
        return []

    def row(self, workflow_id: str) -> RunRow:
        with self._lock:
            run = self._find(workflow_id)
            row = self._row(workflow_id, run)
            row.extra.update(documents.extra_of(run.head))
            return row

    def rows(self, status: Collection[RunStatus] | None = None, limit: int | None = None) -> list[RunRow]:
        with self._lock:
            chosen = [(id_, run) for id_, run in self._runs.items() if status is None or run.status in status]
            chosen.sort(key=lambda one: (one[1].updated_at, one[1].number), reverse=True)
            return [self._row(id_, run) for id_, run in chosen[:limit]]

    def _row(self, workflow_id: str, run: _Run) -> RunRow:
        owners = {lease.name: lease.owner for lease in self.leases()}
        return RunRow(
            workflow_id=workflow_id,
            name=run.name,
            status=documents.status_of(run.status),
            counts=_copy(run.counts),
            created_at=run.created_at,
            updated_at=run.updated_at,
            default_queue=run.default_queue,
            queues_used=run.queues_used,
            cancel_requested=run.cancel_requested,
            error=run.error,
            driven_by=driver_of(workflow_id, run.is_over, owners),
        )

    def task_entries(self, workflow_id: str, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        with self._lock:
            tasks = self._find(workflow_id).tasks
            wanted = tasks if names is None else [name for name in dict.fromkeys(names) if name in tasks]
            texts = {name: tasks[name] for name in wanted}
        return {name: json.loads(text) for name, text in texts.items() if text != "{}"}

    # --- control

    def request_cancel(self, workflow_id: str) -> None:
        with self._lock:
            run = self._find(workflow_id)
            run.cancel_requested = run.cancel_requested or not run.is_over

    def cancel_requested(self, workflow_ids: Collection[str]) -> set[str]:
        with self._lock:
            return {id_ for id_ in workflow_ids if id_ in self._runs and self._runs[id_].cancel_requested}

    def clear_cancel(self, workflow_id: str) -> None:
        with self._lock:
            self._find(workflow_id).cancel_requested = False

    # --- outputs, payloads, logs

    def put_output(self, workflow_id: str, path: str, data: bytes) -> str:
        ref = output_ref(workflow_id, path)
        with self._lock:
            self._outputs[ref] = bytes(data)
        return ref

    def get_output(self, ref: str) -> bytes:
        try:
            return self._outputs[ref]
        except KeyError:
            raise BackendError(
                f"the output {ref} is not in this memory store. It was deleted, or never stored."
            ) from None

    def put_payload(self, data: bytes) -> str:
        digest = digest_of(data)
        with self._lock:
            self._payloads.setdefault(digest, bytes(data))
        return digest

    def get_payload(self, digest: str) -> bytes:
        hex_of(digest)
        try:
            return self._payloads[digest]
        except KeyError:
            raise BackendError(f"the payload {digest} is not in this memory store") from None

    def log_path(self, workflow_id: str, task: str, attempt: str) -> Path | None:
        return None

    def append_log(self, workflow_id: str, task: str, attempt: str, offset: int, data: bytes) -> None:
        with self._lock:
            text = self._logs.setdefault((workflow_id, task, attempt), bytearray())
            text.extend(bytes(max(0, offset - len(text))))
            text[offset : offset + len(data)] = data

    def read_log(self, workflow_id: str, task: str, attempt: str, offset: int = 0, limit: int | None = None) -> bytes:
        with self._lock:
            text = self._logs.get((workflow_id, task, attempt), b"")
            start = offset if offset >= 0 else max(0, len(text) + offset)
            return bytes(text[start : None if limit is None else start + limit])

    # --- cache of results

    def cached(self, fingerprints: Collection[str]) -> dict[str, str]:
        with self._lock:
            found = {key: self._results[key] for key in fingerprints if key in self._results}
            return {key: ref for key, ref in found.items() if not is_blob(ref) or ref in self._outputs}

    def remember(self, results: Sequence[tuple[str, str]]) -> None:
        with self._lock:
            self._results.update(results)

    # --- leases

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        with self._lock:
            now = self.now()
            held = self._leases.get(name)
            if held and held.is_held(now):
                self._leases[name] = held.at(now)
                return None
            new = self._leases[name] = HeldLease.new(name, owner, ttl_s, now)
            return new.public()

    def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        with self._lock:
            held = self._leases.get(lease.name)
            if held is None or held.token != lease.token:
                raise lease_lost(lease, held.owner if held else None)
            renewed = self._leases[lease.name] = held.renewed(ttl_s, self.now())
            return renewed.public()

    def release_lease(self, lease: Lease) -> None:
        with self._lock:
            held = self._leases.get(lease.name)
            if held and held.token == lease.token:
                del self._leases[lease.name]

    def lease(self, name: str) -> Lease | None:
        return next((one for one in self.leases(name) if one.name == name), None)

    def leases(self, prefix: str = "") -> list[Lease]:
        with self._lock:
            now = self.now()
            held = [one for one in self._leases.values() if one.name.startswith(prefix) and one.is_held(now)]
            return [one.at(now).public() for one in sorted(held, key=lambda one: one.name)]

    def break_lease(self, name: str) -> None:
        with self._lock:
            self._leases.pop(name, None)


def _copy(counts: Counts) -> Counts:
    return documents.counts_from_text(documents.counts_to_text(counts))
