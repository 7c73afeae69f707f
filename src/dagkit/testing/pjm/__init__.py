"""A simulated PJM (Fugaku's job manager): commands on PATH, jobs that run, a clock, faults, a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagkit.testing.pjm.simulator import PjmSimulator, SimulatedJob
    from dagkit.testing.pjm.site import Site

__all__ = ["PjmSimulator", "SimulatedJob", "Site"]


def __getattr__(name: str) -> Any:
    # Lazily: the programs on PATH import this package, and must start quickly.
    if name in ("PjmSimulator", "SimulatedJob"):
        from dagkit.testing.pjm import simulator

        return getattr(simulator, name)
    if name == "Site":
        from dagkit.testing.pjm.site import Site

        return Site
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
