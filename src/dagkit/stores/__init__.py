"""Where the state of runs lives: memory, SQLite, Azure. The port is in `dagkit.stores.base`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagkit.azure.place import Place, refuse_secrets
from dagkit.errors import ConfigError

if TYPE_CHECKING:
    from dagkit.stores.base import Store

__all__ = ["DEFAULT_STORE", "open_store"]

DEFAULT_STORE: Final = ".dagkit"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)  # two letters at least: C:\ is a path


def open_store(url: str | os.PathLike[str] = DEFAULT_STORE, *, blobs: str | None = None) -> Store:
    """The store at `url`: `memory:`, `sqlite:<directory>`, `azure://<account>/<prefix>`, or the path of a directory.

    Cheap: nothing is created or read before the first use.

    Args:
        blobs: `<account>/<container>` for file outputs of an Azure store.
    """
    refuse_secrets(os.fspath(url), "the store")
    scheme, rest = _split(os.fspath(url))
    if scheme == "memory":
        from dagkit.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from dagkit.stores.sqlite import SQLiteStore

        return SQLiteStore(Path(rest).expanduser())
    if scheme == "azure":
        from dagkit.stores.azure import AzureStore

        return AzureStore(Place.parse(os.fspath(url), blobs))
    raise ConfigError(
        f"store {os.fspath(url)!r}: {scheme}: is not known. "
        f"Stores are memory:, sqlite:<directory>, azure://<account>/<prefix>, or a path."
    )


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(url)
    scheme, rest = match.groups() if match else ("sqlite", url)
    if scheme == "sqlite" and not rest.strip():
        raise ConfigError(f"store {url!r}: the directory is missing, as in sqlite:{DEFAULT_STORE}")
    return scheme.lower(), rest
