"""The state of a simulated PJM on disk, and its record of everything that ever happened: one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.testing.pjm.site import Site

__all__ = ["ACTIVE", "ENDED", "ON_NODES", "Part", "State", "create", "label", "opened"]

ENDED: Final = ("EXT", "CCL", "RJT")
#: Parts that hold nodes.
ON_NODES: Final = ("RNA", "RNP", "RUN", "RNE")
ACTIVE: Final = "is_over = 0"

_TABLES: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE jobs (
    job INTEGER PRIMARY KEY, name TEXT, kind TEXT, script TEXT, directory TEXT, options TEXT, environ TEXT,
    rscunit TEXT, rscgrp TEXT, grp TEXT, node INTEGER, elapse_s INTEGER, priority INTEGER, accepted_at REAL
);
CREATE TABLE parts (
    job INTEGER, sub INTEGER, st TEXT, lst TEXT, next_at REAL, due_at REAL, delete_at REAL, queued_at REAL,
    start_at REAL, stopped_at REAL, predicted_at REAL, is_backfilled INTEGER DEFAULT 0, ended_at REAL,
    ec INTEGER, pc INTEGER DEFAULT 0, sn INTEGER DEFAULT 0, reason TEXT DEFAULT '-', pid INTEGER, plan TEXT,
    restarts INTEGER DEFAULT 0, is_over INTEGER DEFAULT 0, node INTEGER, elapse_s INTEGER, priority INTEGER,
    depends TEXT, PRIMARY KEY (job, sub)
) WITHOUT ROWID;
CREATE INDEX parts_next ON parts (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX parts_state ON parts (st, priority DESC, job, sub);
CREATE INDEX parts_active ON parts (job, sub) WHERE is_over = 0;
CREATE TABLE limits (rscunit TEXT, section TEXT, value TEXT, name TEXT, most INTEGER,
    PRIMARY KEY (rscunit, section, value, name));
CREATE TABLE load (section TEXT, value TEXT, name TEXT, alloc INTEGER, PRIMARY KEY (section, value, name));
CREATE TABLE rules (id INTEGER PRIMARY KEY, rule TEXT);
CREATE TABLE faults (id INTEGER PRIMARY KEY, kind TEXT, pattern TEXT, left INTEGER, prob REAL, value TEXT, until REAL,
    since REAL);
CREATE TABLE submits (id INTEGER PRIMARY KEY, at REAL, name TEXT, arguments TEXT, job INTEGER, parts INTEGER,
    result TEXT);
CREATE TABLE changes (id INTEGER PRIMARY KEY, at REAL, job INTEGER, sub INTEGER, st TEXT, pc INTEGER);
CREATE TABLE calls (command TEXT PRIMARY KEY, count INTEGER, longest INTEGER);
CREATE TABLE peaks (rscunit TEXT, section TEXT, value TEXT, name TEXT, alloc INTEGER,
    PRIMARY KEY (rscunit, section, value, name));
"""
_FILE: Final = "state.sqlite"


@dataclass(slots=True)
class Part:
    """What runs: a single job (`sub` is -1), a sub-job of a bulk job, a step of a step job.

    Attributes:
        st, lst: State, and the one before.
        next_at: When something happens to it by itself: the earlier of `due_at`, the end of its state, and `delete_at`.
        queued_at: Since when it waits; `predicted_at` until when, as far as is known.
        plan: JSON of how it goes, where nothing really runs, or of what will befall it.
        depends: JSON of what a step waits for.
    """

    job: int
    sub: int
    st: str
    lst: str
    next_at: float | None
    due_at: float | None
    delete_at: float | None
    queued_at: float | None
    start_at: float | None
    stopped_at: float | None
    predicted_at: float | None
    is_backfilled: int
    ended_at: float | None
    ec: int | None
    pc: int
    sn: int
    reason: str
    pid: int | None
    plan: str | None
    restarts: int
    is_over: int
    node: int
    elapse_s: int
    priority: int
    depends: str | None

    def wake(self, due_at: float | None) -> None:
        """Its state ends by itself at this time, or not at all."""
        self.due_at = due_at
        self.next_at = min((at for at in (due_at, self.delete_at) if at is not None), default=None)

    def values(self) -> tuple[Any, ...]:
        """In the order of the columns."""
        return tuple(getattr(self, name) for name in COLUMNS)


COLUMNS: Final = tuple(Part.__dataclass_fields__)
_SAVE: Final = f"INSERT OR REPLACE INTO parts ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


def label(job: int, sub: int, kind: str) -> str:
    """The id as PJM writes it."""
    if sub < 0:
        return str(job)
    return f"{job}_{sub}" if kind == "ST" else f"{job}[{sub}]"


class State:
    """The state, in one transaction."""

    def __init__(self, home: Path, connection: sqlite3.Connection) -> None:
        self.home, self._connection = home, connection
        self.site = Site.of(self.setting("site", {}))
        self._now: float | None = None

    def do(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def do_many(self, statement: str, values: Any) -> None:
        self._connection.executemany(statement, values)

    def setting(self, name: str, default: Any = None) -> Any:
        found = self.do("SELECT value FROM settings WHERE name = ?", name)
        return json.loads(found[0][0]) if found else default

    def set(self, name: str, value: Any) -> None:
        self.do("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, json.dumps(value))

    def parts(self, where: str, *values: object) -> list[Part]:
        return [Part(*row) for row in self.do(f"SELECT {', '.join(COLUMNS)} FROM parts WHERE {where}", *values)]

    def save(self, parts: Any) -> None:
        self.do_many(_SAVE, [part.values() for part in parts])

    # --- the clock

    def now(self) -> float:
        """The time of the machine, the same for the whole transaction."""
        if self._now is None:
            self._now = self.at_wall(time.time())
        return self._now

    def at_wall(self, wall: float) -> float:
        """The machine's time at a wall clock time; now, under a virtual clock."""
        clock = self.setting("clock")
        if clock["speed"] is None:
            return float(clock["at"])
        return float(clock["at"] + (wall - clock["wall"]) * clock["speed"])

    def set_clock(self, at: float, speed: float | None) -> None:
        """It is this late; and time goes by so fast, or not by itself (None)."""
        self.set("clock", {"at": at, "wall": time.time(), "speed": speed})
        self._now = None


def create(home: Path, site: Site, at: float, speed: float | None) -> None:
    """A new machine in an empty folder, or over the state of a former one."""
    home.mkdir(parents=True, exist_ok=True)
    for ending in ("", "-wal", "-shm"):
        (home / f"{_FILE}{ending}").unlink(missing_ok=True)
    connection = sqlite3.connect(home / _FILE, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_TABLES)
        state = State(home, connection)
        state.set("site", site.plain())
        state.set_clock(at, speed)
    finally:
        connection.close()


@contextmanager
def opened(home: Path) -> Iterator[State]:
    """The state, for one transaction; what fails in it has not happened."""
    connection = sqlite3.connect(home / _FILE, timeout=60, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        yield State(home, connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


def exists(home: Path) -> bool:
    """Whether there is a machine in this folder."""
    return (home / _FILE).is_file()
