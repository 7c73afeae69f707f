"""What became of one attempt, as the process that ran it knows it."""

from __future__ import annotations

from dataclasses import dataclass
from resource import struct_rusage
from typing import Any

__all__ = ["Failure", "Outcome"]


@dataclass(slots=True)
class Outcome:
    """Result of one attempt on its way to the executor.

    Attributes:
        ref: Output ref; None for no output.
        error: First line what went wrong, then the traceback; None for a success.
        kind: A `FailureKind` value; set with `error`.
        exit_code, signal: How a command ended (`signal` by name).
        stopped: The attempt was sent a signal because the executor asked for it.
        used: What a command that has ended used, with its children that it waited for.
    """

    ref: str | None = None
    error: str | None = None
    kind: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stopped: bool = False
    used: struct_rusage | None = None

    def report(self, usage: dict[str, Any]) -> dict[str, Any]:
        """What the executor is told; what says nothing is left out."""
        for name in ("exit_code", "signal"):
            if getattr(self, name) is not None:
                usage[name] = getattr(self, name)
        said = {name: getattr(self, name) for name in ("ref", "error", "kind", "stopped")}
        return {"usage": usage, **{name: value for name, value in said.items() if value}}


class Failure(Exception):
    """An attempt fails for a reason that needs no traceback."""

    def __init__(self, error: str, kind: str = "user") -> None:
        self.error, self.kind = error, kind
        super().__init__(error)
