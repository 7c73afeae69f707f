"""What a test can have go wrong, one occasion after another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

__all__ = ["Fault", "Faults"]


@dataclass
class Fault:
    """What happens the next `times` times at a `point`.

    Points: `connect`, `put-token`, `attach`, `send` (a transfer from a client), `push` (one to a client), `settle`,
    and the management operations by their names (`renew-lock`).

    Kinds: `cut` (the connection is dropped before anything is done), `lose_reply` (it is done, nobody is told, the
    connection stays), `cut_after` (it is done, then the connection is dropped), `delay` (by `delay_s`, then all is
    well), `refuse` (with `condition`), `duplicate` (done twice), `silence` (nothing is done, nothing is said).
    """

    point: str
    kind: str
    times: int = 1
    queue: str = ""
    condition: str = "com.microsoft:server-busy"
    delay_s: float = 0.0
    skip: int = 0


class Faults:
    """The faults of a namespace, and how often each point was passed."""

    def __init__(self) -> None:
        self.waiting: list[Fault] = []
        self.passed: Counter[str] = Counter()

    def at(self, point: str, queue: str = "") -> Fault | None:
        """The fault for this occasion, if there is one."""
        self.passed[point] += 1
        for fault in self.waiting:
            if fault.point == point and fault.times > 0 and fault.queue.lower() in queue.lower():
                if fault.skip > 0:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                return fault
        return None
