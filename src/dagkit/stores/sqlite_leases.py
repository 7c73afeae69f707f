"""The lease table of an SQLite store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagkit.stores.base import Lease
from dagkit.stores.leases import HeldLease, lease_lost

if TYPE_CHECKING:
    import sqlite3

    from dagkit.database import Database

__all__ = ["LeaseTable"]


class LeaseTable:
    """The lease half of a store with a database. A write lock covers each comparison: no two see one lease free."""

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    def now(self) -> float:
        raise NotImplementedError

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        with self._database.writing(f"taking the lease {name}") as connection:
            now = self.now()
            held = _held(connection, name)
            if held and held.at(now).is_held(now):
                _put(connection, held.at(now))
                return None
            new = HeldLease.new(name, owner, ttl_s, now)
            _put(connection, new)
        return new.public()

    def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        with self._database.writing(f"renewing the lease {lease.name}") as connection:
            held = _held(connection, lease.name)
            if held is None or held.token != lease.token:
                raise lease_lost(lease, held.owner if held else None)
            renewed = held.renewed(ttl_s, self.now())
            _put(connection, renewed)
        return renewed.public()

    def release_lease(self, lease: Lease) -> None:
        with self._database.writing(f"releasing the lease {lease.name}") as connection:
            connection.execute("DELETE FROM leases WHERE name = ? AND token = ?", (lease.name, lease.token))

    def break_lease(self, name: str) -> None:
        with self._database.writing(f"breaking the lease {name}") as connection:
            connection.execute("DELETE FROM leases WHERE name = ?", (name,))

    def lease(self, name: str) -> Lease | None:
        return next((one for one in self.leases(name) if one.name == name), None)

    def leases(self, prefix: str = "") -> list[Lease]:
        with self._database.connection("looking at leases") as connection:
            held = _all(connection, prefix)
        now = self.now()
        return [one.at(now).public() for one in held if one.is_held(now)]

    def _owners(self, connection: sqlite3.Connection) -> dict[str, str]:
        now = self.now()
        return {one.name: one.owner for one in _all(connection, "") if one.is_held(now)}


def _held(connection: sqlite3.Connection, name: str) -> HeldLease | None:
    found = connection.execute(
        "SELECT name, owner, token, expires_at, span_s FROM leases WHERE name = ?", (name,)
    ).fetchone()
    return HeldLease(*found) if found else None


def _all(connection: sqlite3.Connection, prefix: str) -> list[HeldLease]:
    found = connection.execute(
        "SELECT name, owner, token, expires_at, span_s FROM leases WHERE substr(name, 1, length(?)) = ? ORDER BY name",
        (prefix, prefix),
    )
    return [HeldLease(*one) for one in found]


def _put(connection: sqlite3.Connection, lease: HeldLease) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)",
        (lease.name, lease.owner, lease.token, lease.expires_at, lease.span_s),
    )
