"""How a coordinator paces itself, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "Pace"]


@dataclass(frozen=True)
class Pace:
    """How a coordinator paces itself; times in seconds, defaults where they exist from ai4s-jobq (facts: jobq 9).

    Attributes:
        running_timeout_s: Limit for tasks that have none of their own.
        save_interval_s: Between two saves of a run that goes on. What a crash may repeat grows with it; what is saved
            twice (as running, then as completed) shrinks. The last save of a run does not wait.
        log_counters_s: Between two lines of the log with the counters, if they have changed; 0 for none.
    """

    idle_sleep_s: float = 0.5
    cancel_poll_interval_s: float = 1.0
    flush_retry_limit: int = 2
    lease_ttl_s: float = 60.0
    discovery_interval_s: float = 0.5
    close_grace_s: float = 5.0
    running_timeout_s: float | None = None
    save_interval_s: float = 0.02
    log_counters_s: float = 0.0


@dataclass
class Counters:
    """What a coordinator has done since it started."""

    steps: int = 0
    completions: int = 0
    ignored: int = 0
    orphans: int = 0
    conflicts: int = 0
    dispatched: int = 0
    timed_out: int = 0
    saves: int = 0
