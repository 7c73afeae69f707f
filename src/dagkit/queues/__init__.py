"""Queues that carry task messages and completions: memory, SQLite, Azure. The port is in `dagkit.queues.base`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagkit.errors import ConfigError

if TYPE_CHECKING:
    from dagkit.queues.base import Transport

__all__ = ["open_transport"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)  # two letters at least: C:\ is a path


def open_transport(url: str | os.PathLike[str]) -> Transport:
    """The queues at `url`: `memory:`, `sqlite:<directory>`, or the path of a directory (as for stores)."""
    match = _SCHEME.fullmatch(os.fspath(url))
    scheme, rest = match.groups() if match else ("sqlite", os.fspath(url))
    if scheme.lower() == "memory":
        from dagkit.queues.memory import MemoryTransport

        return MemoryTransport()
    if scheme.lower() == "sqlite" and rest.strip():
        from dagkit.queues.sqlite import SqliteTransport

        return SqliteTransport(Path(rest).expanduser())
    raise ConfigError(f"queues {os.fspath(url)!r}: not known. Queues are memory:, sqlite:<directory>, or a path.")
