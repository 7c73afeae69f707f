"""Leases as small blobs, each written under the etag of the last one: no two processes see one free.

The services' own blob leases last 15 to 60 s, say neither who holds them nor until when, and cannot be renewed in
words; a blob with the owner in its metadata says all of that, and a deposed holder is refused by its etag just as well.
Ages are judged by the service's clock.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from dagkit.stores.azure.container import ABSENT, Blob, Container, WriteRefused
from dagkit.stores.base import Lease
from dagkit.stores.leases import HeldLease, lease_lost

__all__ = ["LeaseBlobs"]

FOLDER: Final = "leases/"

_REMEMBERED: Final = 2_000


class LeaseBlobs:
    """The lease half of a store in a blob container."""

    _state: Container
    _mine: dict[str, tuple[str, HeldLease]]
    """What was written last for a lease, by its token."""

    def now(self) -> float:
        raise NotImplementedError

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        doing, now = f"taking the lease {name}", self.now()
        new = HeldLease.new(name, owner, ttl_s, now)
        found = self._found(name, doing)
        if found is None:
            return self._written(new, ABSENT, doing)
        held = _held(found)
        if held.at(now).is_held(now):
            if held.at(now) != held:
                self._written(held.at(now), found.etag, doing)
            return None
        return self._written(new, found.etag, doing)

    def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        """As in `Store`; one request where nobody has touched the lease since we did."""
        doing = f"renewing the lease {lease.name}"
        etag, held = self._mine.pop(lease.token, (None, None))
        while True:
            if etag is None or held is None:
                found = self._found(lease.name, doing)
                held = None if found is None else _held(found)
                if found is None or held is None or held.token != lease.token:
                    raise lease_lost(lease, held.owner if held else None)
                etag = found.etag
            renewed = self._written(held.renewed(ttl_s, self.now()), etag, doing)
            if renewed is not None:
                return renewed
            etag = None

    def release_lease(self, lease: Lease) -> None:
        doing = f"releasing the lease {lease.name}"
        found = self._found(lease.name, doing)
        if found is not None and _held(found).token == lease.token:
            self._state.delete(_blob_name(lease.name), doing, only_if=found.etag)

    def break_lease(self, name: str) -> None:
        self._state.delete(_blob_name(name), f"breaking the lease {name}")

    def lease(self, name: str) -> Lease | None:
        found = self._found(name, f"looking at the lease {name}")
        now = self.now()
        held = _held(found) if found else None
        return held.at(now).public() if held and held.is_held(now) else None

    def leases(self, prefix: str = "") -> list[Lease]:
        found = list(self._state.list(_blob_name(prefix), "looking at leases"))
        now = self.now()
        held = [one for one in map(_held, found) if one.is_held(now)]
        return sorted((one.at(now).public() for one in held), key=lambda lease: lease.name)

    def _found(self, name: str, doing: str) -> Blob | None:
        return self._state.head(_blob_name(name), doing)

    def _written(self, held: HeldLease, only_if: str, doing: str) -> Lease | None:
        """The lease, or None if somebody was faster."""
        metadata = {
            "owner": quote(held.owner, safe="()#."),
            "token": held.token,
            "expires": repr(held.expires_at),
            "span": repr(held.span_s),
        }
        try:
            etag = self._state.put(_blob_name(held.name), b"", doing, only_if=only_if, metadata=metadata)
        except WriteRefused:
            return None
        self._mine[held.token] = (etag, held)
        while len(self._mine) > _REMEMBERED:
            self._mine.pop(next(iter(self._mine)), None)
        return held.public()


def _blob_name(lease_name: str) -> str:
    return FOLDER + quote(lease_name, safe="/")


def _held(blob: Blob) -> HeldLease:
    """The lease in a blob; one that cannot be read has run out."""
    known = blob.metadata
    name = unquote(blob.name.removeprefix(FOLDER))
    try:
        return HeldLease(name, unquote(known["owner"]), known["token"], float(known["expires"]), float(known["span"]))
    except (KeyError, ValueError):
        return HeldLease(name, "unknown", "", 0.0, 0.0)
