"""SQLite files that many threads and processes use at once: connections, transactions, errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from dagkit.disk import make_directory
from dagkit.errors import BackendError, CorruptState, DagkitError, NewerFormat

__all__ = ["Database", "explain_sqlite_error"]

APPLICATION_ID = 0x6461676B  # "dagk": marks the file as ours (sqlite.org/fileformat.html, 1.3.9)


class Database:
    """One SQLite file in WAL mode. Thread-safe, safe from many processes, opened at first use.

    A call takes an idle connection or opens one, so there are as many as threads that are inside at the same time.

    Args:
        schema: Statements that create an empty database of format `version`, with an empty line between them.
        busy_s: How long to wait for a lock that another process holds.
        synchronous: FULL makes every commit durable; with NORMAL a power failure may undo the last ones.
    """

    def __init__(
        self, path: Path, schema: str, version: int, *, busy_s: float = 10.0, synchronous: str = "FULL"
    ) -> None:
        self.path, self.busy_s = path, busy_s
        self._schema, self._version, self._synchronous = schema, version, synchronous
        self._idle: list[sqlite3.Connection] = []
        self._inherited: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._pid = [os.getpid()]
        self._is_closed = False
        weakref.finalize(self, _close_idle, self._idle, self._pid)  # not every store is closed by whoever opened it

    @contextlib.contextmanager
    def connection(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A connection in autocommit mode for this thread alone. Errors leave as ours, naming what was `doing`."""
        try:
            connection = self._take()
        except sqlite3.Error as error:
            raise explain_sqlite_error(error, self.path, doing, self.busy_s) from error
        try:
            yield connection
        except sqlite3.Error as error:
            connection.close()
            raise explain_sqlite_error(error, self.path, doing, self.busy_s) from error
        except BaseException:
            self._undo(connection)
            raise
        self._give_back(connection)

    @contextlib.contextmanager
    def writing(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end, undone by an exception."""
        with self.connection(doing) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A read transaction: all queries see the same moment."""
        with self.connection(doing) as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connections; those in use close when their call ends. Repeatable."""
        with self._lock:
            self._is_closed = True
        _close_idle(self._idle, self._pid)

    def _take(self) -> sqlite3.Connection:
        if self._pid != [os.getpid()]:
            self._start_over_after_fork()
        with self._lock:
            if self._is_closed:
                raise BackendError(f"{self.path}: the store was closed")
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _undo(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.rollback()
        except sqlite3.Error:  # what made us undo is what the caller has to hear
            connection.close()
        else:
            self._give_back(connection)

    def _start_over_after_fork(self) -> None:
        """Keep away from connections of the parent: not to be used or closed (sqlite.org/howtocorrupt.html)."""
        self._lock = threading.Lock()
        self._inherited += self._idle
        self._idle.clear()
        self._pid[:] = [os.getpid()]

    def _open(self) -> sqlite3.Connection:
        make_directory(self.path.parent, "creating the store")
        connection = sqlite3.connect(self.path, timeout=self.busy_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("BEGIN")  # its three reads see one moment, whatever other openers do
            is_empty = self._is_empty(connection)
            connection.execute("COMMIT")
            if is_empty:
                self._switch_to_wal(connection)
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_empty(self, connection: sqlite3.Connection) -> bool:
        """Whether tables have to be made; refuses what is not ours or too new, without changing it."""
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if (owner, found) == (APPLICATION_ID, self._version):
            return False
        if owner == APPLICATION_ID:
            raise NewerFormat(
                f"{self.path} is of a later version of dagkit (format {found}, this one reads {self._version}). "
                f"Update dagkit, or choose another store (store=...)."
            )
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise CorruptState(f"{self.path} is a database of something else. Choose another store (store=...).")
        return True

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if self._is_empty(connection):  # and no other process was faster
            for statement in self._schema.split("\n\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {self._version}")
        connection.execute("COMMIT")

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        """SQLite does not wait here when another process does the same at the same time, so we do."""
        deadline = time.monotonic() + self.busy_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.005)


def _close_idle(idle: list[sqlite3.Connection], pid: list[int]) -> None:
    """Close what waits in the list, unless it is a copy that a fork has made."""
    while idle and pid == [os.getpid()]:
        with contextlib.suppress(IndexError):
            idle.pop().close()


def explain_sqlite_error(error: sqlite3.Error, path: Path, doing: str, busy_s: float = 0.0) -> DagkitError:
    """Our error for one of SQLite's, told by its text (codes are not there before Python 3.11)."""
    text = str(error)
    for sign, kind, cause in _CAUSES:
        if sign in text:
            return kind(f"{path}: {doing} failed: {cause.format(busy_s=busy_s, holder=_holder(path, sign))}")
    return BackendError(
        f"{path}: {doing} failed: {text or type(error).__name__}. Try again; `dagkit doctor` looks closer."
    )


_FULL = "the disk or the quota is full. Nothing of this was saved; free some space and go on."
_LOCKED = "another process holds its lock for more than {busy_s:g} s{holder}. Wait for it, or end it."
_READ_ONLY = "it is read-only. Choose a directory you may write to (store=...), or change its mode."
_NOT_OPEN = "it cannot be opened. Is the directory there, yours, and on a disk that is mounted for writing?"
_IO = "the disk reports an error. Look at dmesg and at the space left, and try again."
_NO_LOCKS = "its file system does not lock files properly. Use a local disk for the store."
_NO_JSON = f"SQLite {sqlite3.sqlite_version} of this Python was built without JSON functions. Use another Python."
_CORRUPT = (
    "the database is damaged. Keep a copy of the directory; `sqlite3 <file> .recover` saves what can be read. "
    "Outputs, payloads and logs are files beside it and are not affected."
)

_CAUSES: tuple[tuple[str, type[DagkitError], str], ...] = (
    ("json_each", BackendError, _NO_JSON),
    ("disk is full", BackendError, _FULL),
    ("locked", BackendError, _LOCKED),
    ("readonly", BackendError, _READ_ONLY),
    ("unable to open", BackendError, _NOT_OPEN),
    ("disk I/O error", BackendError, _IO),
    ("locking protocol", BackendError, _NO_LOCKS),
    ("malformed", CorruptState, _CORRUPT),
    ("not a database", CorruptState, _CORRUPT),
    ("no such table", CorruptState, _CORRUPT),
    ("decode to UTF-8", CorruptState, _CORRUPT),
    ("no such column", CorruptState, _CORRUPT),
)


def _holder(path: Path, sign: str) -> str:
    """` (process 123)` for whoever holds a write lock on the database, where /proc/locks says so (Linux)."""
    if sign != "locked":
        return ""
    try:
        files = [path, path.with_name(f"{path.name}-shm")]
        inodes = {str(file.stat().st_ino) for file in files if file.exists()}
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    # 1: POSIX ADVISORY WRITE 1234 fe:00:5678 120 120   (man 5 proc_locks)
    fields = [line.split() for line in lines if " WRITE " in line]
    pids = {f[4] for f in fields if len(f) > 5 and f[5].rpartition(":")[2] in inodes}
    pids -= {str(os.getpid()), "-1"}
    return f" (process {', '.join(sorted(pids))})" if pids else ""
