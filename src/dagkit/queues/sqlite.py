"""Queues in an SQLite file, for the processes of one machine."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagkit.database import Database
from dagkit.queues.base import Delivery, OutMessage, Queue, QueueStats
from dagkit.queues.limits import check_sizes

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SqliteTransport"]

FORMAT: Final = 1

_SCHEMA: Final = """
CREATE TABLE queues (name TEXT PRIMARY KEY) WITHOUT ROWID

CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    sent_at REAL NOT NULL,
    visible_at REAL NOT NULL DEFAULT 0,
    hidden_s REAL NOT NULL DEFAULT 0,
    token TEXT,
    count INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, id))

CREATE INDEX messages_in_order ON messages (queue, number)

CREATE INDEX messages_by_token ON messages (token) WHERE token IS NOT NULL

CREATE TABLE workers (
    queue TEXT NOT NULL,
    owner TEXT NOT NULL,
    expires_at REAL NOT NULL,
    ttl_s REAL NOT NULL,
    PRIMARY KEY (queue, owner)) WITHOUT ROWID
"""

_SHORTEST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.05
_GROWTH: Final = 1.5


class SqliteTransport:
    """Queues in `root/queue.db`. Thread-safe, safe from many processes of one machine.

    What was sent survives a power failure. Locks, deletions and delays of the last moments before one may be undone;
    then those messages are delivered again.

    Args:
        clock: Seconds since the epoch; what locks and delays are judged by. Processes of one machine share it.
        busy_s: How long to wait for another process that is writing.
    """

    def __init__(self, root: Path | str, *, clock: Callable[[], float] = time.time, busy_s: float = 10.0) -> None:
        self.root = Path(root).absolute()
        self.url = f"sqlite:{self.root}"
        self.clock = clock
        path = self.root / "queue.db"
        self._durable = Database(path, _SCHEMA, FORMAT, busy_s=busy_s)
        self._relaxed = Database(path, _SCHEMA, FORMAT, busy_s=busy_s, synchronous="NORMAL")
        self._closing = threading.Event()

    def __repr__(self) -> str:
        return f"SqliteTransport({str(self.root)!r})"

    def open(self, name: str) -> Queue:
        with self._durable.connection(f"opening the queue {name}") as connection:
            if not connection.execute("SELECT 1 FROM queues WHERE name = ?", (name,)).fetchone():
                connection.execute("INSERT OR IGNORE INTO queues VALUES (?)", (name,))
        return SqliteQueue(name, self._durable, self._relaxed, self.clock, self._closing)

    def names(self) -> list[str]:
        with self._relaxed.connection("listing queues") as connection:
            return [name for (name,) in connection.execute("SELECT name FROM queues ORDER BY name")]

    def register_worker(self, queue: str, owner: str, ttl_s: float) -> None:
        now = self.clock()
        with self._relaxed.writing(f"registering a worker of {queue}") as connection:
            connection.execute("DELETE FROM workers WHERE expires_at <= ? OR expires_at > ? + ttl_s", (now, now))
            connection.execute("INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)", (queue, owner, now + ttl_s, ttl_s))

    def workers(self, queue: str) -> list[str] | None:
        now = self.clock()
        with self._relaxed.connection(f"looking for workers of {queue}") as connection:
            found = connection.execute(
                "SELECT owner FROM workers"
                " WHERE queue = ? AND expires_at > ? AND expires_at <= ? + ttl_s ORDER BY owner",
                (queue, now, now),
            )
            return [owner for (owner,) in found]

    def check(self) -> list[tuple[str, str, str]]:
        """Nothing: the check of the store says it."""
        return []

    def close(self) -> None:
        """Wake whoever is waiting for a message, and close the connections. Repeatable."""
        self._closing.set()
        self._durable.close()
        self._relaxed.close()


class SqliteQueue:
    """One queue of a `SqliteTransport`. A message whose id is still in the queue, locked or not, is not sent again."""

    max_text_bytes = 16 << 20

    def __init__(
        self, name: str, durable: Database, relaxed: Database, clock: Callable[[], float], closing: threading.Event
    ) -> None:
        self.name = name
        self._durable, self._relaxed, self._clock, self._closing = durable, relaxed, clock, closing

    def __repr__(self) -> str:
        return f"SqliteQueue({self.name!r})"

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        """As in `Queue`, all or none. A message whose id is still there is dropped."""
        check_sizes(messages, self.max_text_bytes)
        if not messages:
            return
        now = self._clock()
        with self._durable.writing(f"sending to {self.name}") as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO messages (queue, id, text, sent_at) VALUES (?, ?, ?, ?)",
                [(self.name, message.id, message.text, now) for message in messages],
            )

    def receive(self, max_messages: int, wait_s: float, lock_s: float) -> list[Delivery]:
        deadline = time.monotonic() + wait_s
        with self._relaxed.connection(f"receiving from {self.name}") as connection:
            while True:
                if taken := self._take(connection, max_messages, lock_s):
                    return taken
                if not self._wait_for_change(connection, deadline):
                    return []

    def _take(self, connection: sqlite3.Connection, max_messages: int, lock_s: float) -> list[Delivery]:
        """Lock the first visible messages; the first look is without the write lock, as most looks find nothing."""
        if not connection.execute(_FIRST_VISIBLE, (self.name, self._clock())).fetchone():
            return []
        locked_until, token = time.monotonic() + lock_s, secrets.token_hex(8)
        connection.execute("BEGIN IMMEDIATE")
        now = self._clock()
        connection.execute(
            "UPDATE messages SET token = ? || '.' || number, visible_at = ?, hidden_s = ?, count = count + 1"
            " WHERE number IN"
            " (SELECT number FROM messages WHERE queue = ? AND visible_at <= ? ORDER BY number LIMIT ?)",
            (token, now + lock_s, lock_s, self.name, now, max_messages),
        )
        found = connection.execute(
            "SELECT id, text, token, count FROM messages WHERE token > ? AND token < ? ORDER BY number",
            (f"{token}.", f"{token}/"),  # the slash comes right after the dot
        ).fetchall()
        connection.execute("COMMIT")
        return [Delivery(id_, text, receipt, locked_until, count) for id_, text, receipt, count in found]

    def _wait_for_change(self, connection: sqlite3.Connection, deadline: float) -> bool:
        """Wait until there may be something to receive; False if the time is up or the transport is closed.

        `data_version` changes when anybody commits (sqlite.org/pragma.html) and costs no query.
        """
        version, due = _data_version(connection), self._next_due(connection)
        pause = _SHORTEST_PAUSE_S
        while not self._closing.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._closing.wait(min(pause, left))
            pause = min(pause * _GROWTH, _LONGEST_PAUSE_S)
            if _data_version(connection) != version or (due is not None and self._clock() >= due):
                return True
        return False

    def _next_due(self, connection: sqlite3.Connection) -> float | None:
        """When the first hidden message becomes visible; if the clock was set back, its time starts anew."""
        now = self._clock()
        due, latest = connection.execute(
            "SELECT min(visible_at), max(visible_at - hidden_s) FROM messages WHERE queue = ?", (self.name,)
        ).fetchone()
        if latest is not None and latest > now + 1.0:
            connection.execute(
                "UPDATE messages SET visible_at = ? + hidden_s WHERE queue = ? AND visible_at > ? + hidden_s",
                (now, self.name, now),
            )
            return now
        return None if due is None else float(due)

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        with self._relaxed.writing(f"deleting from {self.name}") as connection:
            connection.execute(f"DELETE FROM messages WHERE {_STILL_LOCKED}", (_receipts(deliveries),))

    def abandon(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        if not deliveries:
            return
        with self._relaxed.writing(f"giving back to {self.name}") as connection:
            connection.execute(
                f"UPDATE messages SET token = NULL, visible_at = ?, hidden_s = ? WHERE {_STILL_LOCKED}",
                (self._clock() + delay_s if delay_s > 0 else 0.0, max(delay_s, 0.0), _receipts(deliveries)),
            )

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        locked_until = time.monotonic() + lock_s
        with self._relaxed.writing(f"keeping a message of {self.name}") as connection:
            changed = connection.execute(
                f"UPDATE messages SET visible_at = ?, hidden_s = ? WHERE {_STILL_LOCKED}",
                (self._clock() + lock_s, lock_s, _receipts([delivery])),
            ).rowcount
        return Delivery(delivery.id, delivery.text, delivery.receipt, locked_until, delivery.count) if changed else None

    def stats(self) -> QueueStats:
        now = self._clock()
        with self._relaxed.connection(f"looking at {self.name}") as connection:
            locked, waiting, oldest = connection.execute(
                "SELECT coalesce(sum(is_locked), 0), coalesce(sum(NOT is_locked), 0),"
                " min(CASE WHEN is_locked THEN NULL ELSE sent_at END)"
                " FROM (SELECT token IS NOT NULL AND visible_at > ? AS is_locked, sent_at"
                " FROM messages WHERE queue = ?)",
                (now, self.name),
            ).fetchone()
        return QueueStats(self.name, waiting, locked, None if oldest is None else max(0.0, now - oldest))

    def close(self) -> None:
        """Nothing of its own to close: connections belong to the transport."""


_FIRST_VISIBLE: Final = "SELECT 1 FROM messages WHERE queue = ? AND visible_at <= ? LIMIT 1"
_STILL_LOCKED: Final = "token IN (SELECT value FROM json_each(?))"


def _receipts(deliveries: Sequence[Delivery]) -> str:
    return json.dumps([delivery.receipt for delivery in deliveries])


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
