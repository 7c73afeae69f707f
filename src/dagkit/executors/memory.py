"""Memory that attempts asked for, held to on this machine, so that a laptop shows what a cluster would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagkit.model.resources import parse_memory
from dagkit.runtime.shell import resident_bytes

__all__ = ["MEASURE_S", "held_bytes", "limit_of"]

MEASURE_S: Final = 0.2
"""Between two measurements of one attempt. Each looks at every process of the machine, in /proc."""


def limit_of(resources: Mapping[str, Any] | None) -> int | None:
    """Bytes that an attempt asked for; None if it asked for none, or in words that only a scheduler reads."""
    memory = (resources or {}).get("memory")
    try:
        return None if memory is None else parse_memory(memory)
    except ValueError:
        return None


def held_bytes(worker: int, command: int | None) -> int:
    """What the attempt of a worker process holds: all processes of its command's group, or of the worker's own.

    Resident memory, with pages that processes share counted for each; 0 without /proc.
    """
    return resident_bytes(worker if command is None else command)
