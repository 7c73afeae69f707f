"""The store on this machine's disk: one directory with an SQLite database for state and files for everything big."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import CorruptState, StateConflict, UnknownRun, WorkflowExists
from dagkit.model.records import RunRow, StateChanges
from dagkit.model.states import RunStatus
from dagkit.stores import documents, sqlite_check
from dagkit.stores.base import StoredRun
from dagkit.stores.files import StoredFiles
from dagkit.stores.leases import driver_of
from dagkit.stores.payloads import is_blob
from dagkit.stores.sqlite_leases import LeaseTable
from dagkit.stores.sqlite_schema import FORMAT, SCHEMA

if TYPE_CHECKING:
    import sqlite3

    from dagkit.database import Database

__all__ = ["SQLiteStore"]

_ROW: Final = (
    "workflow_id, name, status, counts, created_at, updated_at, default_queue, queues_used, cancel_requested, error"
)
_IS_OVER: Final = "status IN ('completed', 'failed', 'cancelled')"
_CACHED_DEFINITIONS: Final = 4


class SQLiteStore(StoredFiles, LeaseTable):
    """A `Store` in the directory `root`: `state.db`, `outputs/`, `payloads/`, `logs/`.

    Every save is one transaction, synced to the disk. Several processes of one machine may use it at once. The database
    is opened at first use: whoever only reads and writes outputs, payloads and logs never touches it.

    Args:
        clock: Seconds since the epoch; what leases and ages are judged by.
        busy_s: How long to wait for another process that is writing.
    """

    def __init__(self, root: Path | str, *, clock: Callable[[], float] = time.time, busy_s: float = 10.0) -> None:
        super().__init__(Path(root).absolute())
        self.url = f"sqlite:{self.root}"
        self.clock, self.busy_s = clock, busy_s
        self._opened: Database | None = None
        self._opening = threading.Lock()
        self._definitions: dict[tuple[int, int], dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.root)!r})"

    @property
    def _database(self) -> Database:
        with self._opening:
            if self._opened is None:
                from dagkit.database import Database  # here, as sqlite3 would cost every child process 5 ms

                self.prepare_root()
                self._opened = Database(self.root / "state.db", SCHEMA, FORMAT, busy_s=self.busy_s)
            return self._opened

    def now(self) -> float:
        return self.clock()

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()

    def check(self) -> list[tuple[str, str, str]]:
        return sqlite_check.check(self.root, lambda: self._database)

    # --- runs

    def create(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        packed, now = documents.pack(definition), self.now()
        with self._database.writing(f"creating run {workflow_id}") as connection:
            taken = connection.execute("SELECT name FROM runs WHERE workflow_id = ?", (workflow_id,)).fetchone()
            if taken:
                raise WorkflowExists(workflow_id, f"a run of {taken[0]!r}")
            run = connection.execute(
                "INSERT INTO runs (workflow_id, version, revision, head, name, status, counts, default_queue,"
                " queues_used, error, created_at, updated_at) VALUES (?, 1, 1, '', '', '', '', '', '', '', ?, ?)",
                (workflow_id, now, now),
            ).lastrowid
            assert run is not None
            self._write_whole(connection, run, packed, definition, state)
        return f"{run}.1"

    def replace(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any], etag: str) -> str:
        packed, (run, version) = documents.pack(definition), _parse(etag, workflow_id)
        with self._database.writing(f"replacing run {workflow_id}") as connection:
            changed = connection.execute(
                "UPDATE runs SET version = version + 1, revision = revision + 1, updated_at = ?"
                " WHERE workflow_id = ? AND run = ? AND version = ?",
                (self.now(), workflow_id, run, version),
            )
            self._require(connection, changed, workflow_id)
            connection.execute("DELETE FROM tasks WHERE run = ?", (run,))
            self._write_whole(connection, run, packed, definition, state)
        return f"{run}.{version + 1}"

    def _write_whole(
        self,
        connection: sqlite3.Connection,
        run: int,
        packed: bytes,
        definition: Mapping[str, Any],
        state: Mapping[str, Any],
    ) -> None:
        head, tasks = documents.split(state)
        counts = documents.counts_to_text(documents.count_tasks(definition, state))
        queues = documents.queues_to_text(documents.queues_used(definition))
        connection.execute(
            "UPDATE runs SET head = ?, name = ?, status = ?, counts = ?, default_queue = ?, queues_used = ?, error = ?"
            " WHERE run = ?",
            (
                documents.encode(head),
                definition.get("name", ""),
                head.get("workflow_state", "pending"),
                counts,
                definition.get("default_queue", "default"),
                queues,
                head.get("error") or "",
                run,
            ),
        )
        connection.execute("INSERT OR REPLACE INTO definitions VALUES (?, ?)", (run, packed))
        _write_tasks(connection, run, documents.encode(tasks))

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        run, version = _parse(etag, workflow_id)
        row = (
            run,
            workflow_id,
            version,
            documents.head_to_text(changes),
            changes.head["workflow_state"],
            documents.counts_to_text(changes.counts),
            changes.head.get("error") or "",
            self.now(),
            documents.encode({name: entry for _, name, entry in changes.tasks}),
        )
        with self._database.connection(f"saving run {workflow_id}") as connection:
            if not _is_saved(connection, row):
                self._find(connection, workflow_id, "run")
                raise StateConflict(workflow_id)
        return f"{run}.{version + 1}"

    def _require(self, connection: sqlite3.Connection, changed: sqlite3.Cursor, workflow_id: str) -> None:
        if changed.rowcount != 1:
            self._find(connection, workflow_id, "run")
            raise StateConflict(workflow_id)

    def load(self, workflow_id: str) -> StoredRun:
        with self._database.reading(f"loading run {workflow_id}") as connection:
            run, version, revision, head_text, cancel = self._find(
                connection, workflow_id, "run, version, revision, head, cancel_requested"
            )
            definition = self._definition(connection, workflow_id, run, revision)
            tasks = _entries(connection, run)
        head = _parse_json(head_text, f"state of run {workflow_id}")
        documents.check_version(head, f"state of run {workflow_id}")
        head.pop("groups", None)
        head["cancel_requested"] = bool(head.get("cancel_requested") or cancel)
        return StoredRun(definition, {**head, "tasks": _parse_entries(tasks, workflow_id)}, f"{run}.{version}")

    def load_definition(self, workflow_id: str) -> dict[str, Any]:
        """As in `Store`; the last few are kept, so do not modify what is returned."""
        with self._database.reading(f"loading run {workflow_id}") as connection:
            run, revision = self._find(connection, workflow_id, "run, revision")
            return self._definition(connection, workflow_id, run, revision)

    def _definition(self, connection: sqlite3.Connection, workflow_id: str, run: int, revision: int) -> dict[str, Any]:
        cached = self._definitions.get((run, revision))
        if cached is not None:
            return cached
        found = connection.execute("SELECT document FROM definitions WHERE run = ?", (run,)).fetchone()
        if found is None:
            raise CorruptState(f"{self.root}: the definition of run {workflow_id} is missing")
        document = documents.unpack(found[0], f"definition of run {workflow_id}")
        with self._opening:
            self._definitions[run, revision] = document
            while len(self._definitions) > _CACHED_DEFINITIONS:
                del self._definitions[next(iter(self._definitions))]
        return document

    def delete(self, workflow_id: str) -> bool:
        with self._database.writing(f"deleting run {workflow_id}") as connection:
            found = connection.execute("SELECT run FROM runs WHERE workflow_id = ?", (workflow_id,)).fetchone()
            if found:
                for table in ("tasks", "definitions", "runs"):
                    connection.execute(f"DELETE FROM {table} WHERE run = ?", found)
            prefix = f"blob:{workflow_id}/"
            connection.execute("DELETE FROM results WHERE substr(ref, 1, length(?)) = ?", (prefix, prefix))
            aside = self._set_aside(workflow_id)
        self._remove(aside)
        return found is not None

    def leftovers(self, older_than_s: float) -> list[str]:
        """None: a submit is one step here."""
        return []

    def row(self, workflow_id: str) -> RunRow:
        with self._database.reading(f"looking at run {workflow_id}") as connection:
            *found, head = self._find(connection, workflow_id, f"{_ROW}, head")
            row = _run_row(tuple(found), self._owners(connection))
        row.extra.update(documents.extra_of(head))
        return row

    def rows(self, status: Collection[RunStatus] | None = None, limit: int | None = None) -> list[RunRow]:
        chosen = "" if status is None else "WHERE status IN (SELECT value FROM json_each(?))"
        parameters: list[Any] = [] if status is None else [json.dumps([str(one) for one in status])]
        with self._database.reading("listing runs") as connection:
            found = connection.execute(
                f"SELECT {_ROW} FROM runs {chosen} ORDER BY updated_at DESC, run DESC LIMIT ?",
                [*parameters, -1 if limit is None else limit],
            ).fetchall()
            owners = self._owners(connection)
        return [_run_row(one, owners) for one in found]

    def task_entries(self, workflow_id: str, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        with self._database.reading(f"looking at tasks of run {workflow_id}") as connection:
            (run,) = self._find(connection, workflow_id, "run")
            rows = _entries(connection, run, None if names is None else json.dumps(list(names)))
        return _parse_entries(rows, workflow_id)

    def _find(self, connection: sqlite3.Connection, workflow_id: str, columns: str) -> tuple[Any, ...]:
        found = connection.execute(f"SELECT {columns} FROM runs WHERE workflow_id = ?", (workflow_id,)).fetchone()
        if found is None:
            raise UnknownRun(workflow_id, str(self.root))
        return tuple(found)

    # --- control

    def request_cancel(self, workflow_id: str) -> None:
        with self._database.writing(f"cancelling run {workflow_id}") as connection:
            self._find(connection, workflow_id, "run")
            connection.execute(
                f"UPDATE runs SET cancel_requested = 1 WHERE workflow_id = ? AND NOT {_IS_OVER}", (workflow_id,)
            )

    def clear_cancel(self, workflow_id: str) -> None:
        with self._database.writing(f"withdrawing the cancel request of run {workflow_id}") as connection:
            self._find(connection, workflow_id, "run")
            connection.execute("UPDATE runs SET cancel_requested = 0 WHERE workflow_id = ?", (workflow_id,))

    def cancel_requested(self, workflow_ids: Collection[str]) -> set[str]:
        with self._database.connection("looking for cancel requests") as connection:
            found = connection.execute(
                "SELECT workflow_id FROM runs"
                " WHERE workflow_id IN (SELECT value FROM json_each(?)) AND cancel_requested",
                (json.dumps(list(workflow_ids)),),
            )
            return {workflow_id for (workflow_id,) in found}

    # --- cache of results

    def cached(self, fingerprints: Collection[str]) -> dict[str, str]:
        """As in `Store`; a result whose output was deleted is not offered."""
        with self._database.connection("looking for cached results") as connection:
            found = connection.execute(
                "SELECT fingerprint, ref FROM results WHERE fingerprint IN (SELECT value FROM json_each(?))",
                (json.dumps(list(fingerprints)),),
            ).fetchall()
        return {key: ref for key, ref in found if not is_blob(ref) or self._has_output(ref)}

    def remember(self, results: Sequence[tuple[str, str]]) -> None:
        with self._database.writing("recording results for the cache") as connection:
            connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", results)


def _is_saved(connection: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """Write a save, or nothing if the version is old.

    One statement is the whole transaction: each one may wait 5 ms to get the interpreter lock back from a busy thread.
    """
    try:
        connection.execute("INSERT INTO saves VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    except connection.IntegrityError:
        return False
    return True


def _write_tasks(connection: sqlite3.Connection, run: int, entries: str) -> None:
    connection.execute("INSERT OR REPLACE INTO tasks SELECT ?, key, value FROM json_each(?)", (run, entries))


def _entries(connection: sqlite3.Connection, run: int, names: str | None = None) -> list[tuple[str, str]]:
    if names is None:
        return connection.execute("SELECT name, entry FROM tasks WHERE run = ?", (run,)).fetchall()
    return connection.execute(
        "SELECT name, entry FROM tasks WHERE run = ? AND name IN (SELECT value FROM json_each(?))", (run, names)
    ).fetchall()


def _parse_entries(rows: list[tuple[str, str]], workflow_id: str) -> dict[str, dict[str, Any]]:
    """Entries by name; one that went back to its defaults is stored as `{}` and left out."""
    kept = [(name, text) for name, text in rows if text != "{}"]
    try:
        values = json.loads(f"[{','.join(text for _, text in kept)}]")
    except ValueError as error:
        raise CorruptState(f"the tasks of run {workflow_id} cannot be read ({error})") from error
    return dict(zip((name for name, _ in kept), values, strict=True))


def _parse_json(text: str, what: str) -> dict[str, Any]:
    return documents.unpack(text.encode(), what)


def _parse(etag: str, workflow_id: str) -> tuple[int, int]:
    """Row and version of an etag; the row number is never used again, so a deleted run's etag fits no later one."""
    run, _, version = etag.partition(".")
    if not (run.isdecimal() and version.isdecimal()):
        raise StateConflict(workflow_id)
    return int(run), int(version)


def _run_row(found: tuple[Any, ...], owners: dict[str, str]) -> RunRow:
    workflow_id, name, status_text, counts, created_at, updated_at, queue, queues, cancel, error = found
    status = documents.status_of(status_text)
    return RunRow(
        workflow_id=workflow_id,
        name=name,
        status=status,
        counts=documents.counts_from_text(counts),
        created_at=created_at,
        updated_at=updated_at,
        default_queue=queue,
        queues_used=documents.queues_from_text(queues),
        cancel_requested=bool(cancel),
        error=error,
        driven_by=driver_of(workflow_id, isinstance(status, RunStatus) and status.is_over, owners),
    )
