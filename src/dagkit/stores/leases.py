"""When a lease ends: the arithmetic that every store of ours shares, proof against clocks that jump.

A lease promises its holder a span of time. Stores keep the end and the span. If the clock is set back, the end moves
into the far future; whoever then asks starts the whole span anew from now, which is never less than what the holder was
promised. If it is set forward, the lease may end early: then the token changes, and the old holder is told so.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from dagkit.errors import LeaseLost
from dagkit.stores.base import Lease

__all__ = ["HeldLease", "driver_of", "lease_lost", "run_lease"]


@dataclass(slots=True)
class HeldLease:
    """A lease as it is stored."""

    name: str
    owner: str
    token: str
    expires_at: float
    span_s: float

    @classmethod
    def new(cls, name: str, owner: str, ttl_s: float, now: float) -> HeldLease:
        return cls(name, owner, secrets.token_hex(8), now + ttl_s, ttl_s)

    def at(self, now: float) -> HeldLease:
        """The lease as seen now: the same, or, after the clock went back, with the whole span to come."""
        end = min(self.expires_at, now + self.span_s)
        return HeldLease(self.name, self.owner, self.token, end, self.span_s)

    def is_held(self, now: float) -> bool:
        return self.expires_at > now

    def renewed(self, ttl_s: float, now: float) -> HeldLease:
        """Longer by `ttl_s` from now, never shorter than promised before."""
        end = max(self.at(now).expires_at, now + ttl_s)
        return HeldLease(self.name, self.owner, self.token, end, end - now)

    def public(self) -> Lease:
        return Lease(self.name, self.owner, self.expires_at, self.token)


def lease_lost(lease: Lease, holder: str | None) -> LeaseLost:
    """The error for a lease that its holder no longer has."""
    taken = f"{holder} has taken it over" if holder else "it was released or broken"
    return LeaseLost(
        f"the lease {lease.name!r} of {lease.owner} is lost: {taken}. What this process had in hand is not saved."
    )


def run_lease(workflow_id: str) -> str:
    """Name of the lease of whoever drives one run."""
    return f"run/{workflow_id}"


def driver_of(workflow_id: str, is_over: bool, owners: dict[str, str]) -> str | None:
    """Who drives a run, given the owners of all leases that are held: its own coordinator, else the service."""
    own = owners.get(run_lease(workflow_id))
    return own or (None if is_over else owners.get("coordinator"))
