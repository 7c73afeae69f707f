"""The store port: everything dagkit keeps about runs, and the leases that say who may write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dagkit.model.records import RunRow, StateChanges
from dagkit.model.states import RunStatus

__all__ = ["Lease", "Store", "StoredRun"]


@dataclass(slots=True)
class StoredRun:
    """A run as it was read: the definition document, the whole state document (facts: jobq 7.2, 7.3) and its etag."""

    definition: dict[str, Any]
    state: dict[str, Any]
    etag: str


@dataclass(slots=True)
class Lease:
    """Who holds a lease and until when, by the store's clock."""

    name: str
    owner: str
    expires_at: float
    token: str = ""
    """Changes with every acquisition; what `renew` and `release` compare."""


class Store(Protocol):
    """State of runs, outputs, payloads, logs, and leases.

    Thread-safe: any method may be called from any thread. Every method raises `BackendError` when the service or the
    file system fails (message: what, where, what to do), `CorruptState` when stored data cannot be read and
    `NewerFormat` when a later version wrote them. `unknown run` is always `UnknownRun`.
    """

    url: str
    """How another process opens the same store; `memory:` stores cannot be opened elsewhere."""

    # --- runs
    def create(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Store a new run and return its etag. `WorkflowExists` if the id is taken by another definition; an
        interrupted submit of the same definition is completed."""
        ...

    def load(self, workflow_id: str) -> StoredRun:
        """The run with `cancel_requested` of the index row OR-ed into the state."""
        ...

    def load_definition(self, workflow_id: str) -> dict[str, Any]:
        """The definition alone; may be cached, it never changes except by `replace`."""
        ...

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        """Write what changed, durably, refresh the index row, return the new etag. `StateConflict` if `etag` is old."""
        ...

    def replace(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any], etag: str) -> str:
        """Exchange definition and state of an existing run (resume with changed code). `StateConflict` as in save."""
        ...

    def delete(self, workflow_id: str) -> bool:
        """Remove the run with its outputs, files and logs. True if there was one; repeatable."""
        ...

    def leftovers(self, older_than_s: float) -> list[str]:
        """Ids of submits that died half way so long ago; no row shows them, and `delete` removes them."""
        ...

    def row(self, workflow_id: str) -> RunRow:
        """The index row, cheap: for polling."""
        ...

    def rows(self, status: Collection[RunStatus] | None = None, limit: int | None = None) -> list[RunRow]:
        """Index rows, most recently updated first."""
        ...

    def task_entries(self, workflow_id: str, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Compact state entries by task name; tasks at their defaults are left out."""
        ...

    # --- control
    def request_cancel(self, workflow_id: str) -> None:
        """Set the cancel flag of a run that is not over; asking twice is no error."""
        ...

    def cancel_requested(self, workflow_ids: Collection[str]) -> set[str]:
        """Which of these runs have the flag set; one call for all."""
        ...

    def clear_cancel(self, workflow_id: str) -> None:
        """Withdraw the request (only a user retry does this)."""
        ...

    # --- outputs, payloads, logs
    def put_output(self, workflow_id: str, path: str, data: bytes) -> str:
        """Store an output under `W/<path>` (`train.json`), durably, replacing one; returns `blob:W/<path>`."""
        ...

    def get_output(self, ref: str) -> bytes:
        """Bytes behind a `blob:` ref. `BackendError` naming the ref if it is missing."""
        ...

    def put_payload(self, data: bytes) -> str:
        """Store content-addressed bytes; returns `sha256:<hex>`. Storing the same bytes again is cheap."""
        ...

    def get_payload(self, digest: str) -> bytes:
        """The bytes, verified against the digest."""
        ...

    def log_path(self, workflow_id: str, task: str, attempt: str) -> Path | None:
        """File to which a worker on this machine writes the log of an attempt (`<generation>.<attempt>`); None if the
        store has no shared file system: then the worker uploads with `append_log`."""
        ...

    def append_log(self, workflow_id: str, task: str, attempt: str, offset: int, data: bytes) -> None:
        """Add bytes at `offset`; repeating a call changes nothing."""
        ...

    def read_log(self, workflow_id: str, task: str, attempt: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Log bytes from `offset` (negative: from the end); empty if there is no log."""
        ...

    # --- cache of results by fingerprint
    def cached(self, fingerprints: Collection[str]) -> dict[str, str]:
        """Fingerprint -> output ref of a completed task that has it, for those that are known."""
        ...

    def remember(self, results: Sequence[tuple[str, str]]) -> None:
        """Record (fingerprint, output ref) pairs."""
        ...

    # --- who may write
    def now(self) -> float:
        """Seconds since the epoch by the store's clock; leases and ages are judged by it."""
        ...

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        """The lease, or None if somebody else holds it. An expired one is taken over."""
        ...

    def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        """`LeaseLost` if it was taken over or broken meanwhile."""
        ...

    def release_lease(self, lease: Lease) -> None: ...

    def lease(self, name: str) -> Lease | None:
        """Who holds it now; None if nobody does or it has expired."""
        ...

    def leases(self, prefix: str = "") -> list[Lease]:
        """All leases that are held, by name."""
        ...

    def break_lease(self, name: str) -> None: ...

    def check(self) -> list[tuple[str, str, str]]:
        """(check, `pass` | `warn` | `fail`, message with a hint) for `dagkit doctor`: writable, space, version."""
        ...

    def close(self) -> None: ...
