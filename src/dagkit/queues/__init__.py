"""Queues that carry task messages and completions: memory, SQLite, Azure. The port is in `dagkit.queues.base`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagkit.azure.place import Place, is_account_name, refuse_secrets
from dagkit.errors import ConfigError

if TYPE_CHECKING:
    from dagkit.queues.base import Transport

__all__ = ["open_transport", "service_url"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+]+):(.*)", re.DOTALL)  # two letters at least: C:\ is a path


def service_url(service: str | None, store_url: str) -> str:
    """Url of the queues of a store: of the service that the settings name, else the store's own.

    Beside an Azure store, a bare name is that of a storage account.
    """
    if not service:
        return store_url
    if store_url.startswith("azure:") and is_account_name(service):
        return f"azure://{service}"
    return service


def open_transport(url: str | os.PathLike[str]) -> Transport:
    """The queues at `url`: `memory:`, `sqlite:<directory>`, `azure://<account>`, `sb://<namespace>`, or a path.

    The url of a store names the queues that go with it.
    """
    refuse_secrets(os.fspath(url), "the queues")
    match = _SCHEME.fullmatch(os.fspath(url))
    scheme, rest = match.groups() if match else ("sqlite", os.fspath(url))
    if scheme.lower() == "memory":
        from dagkit.queues.memory import MemoryTransport

        return MemoryTransport()
    if scheme.lower() == "sqlite" and rest.strip():
        from dagkit.queues.sqlite import SqliteTransport

        return SqliteTransport(Path(rest).expanduser())
    if scheme.lower() == "azure":
        from dagkit.queues.storage_queue import StorageQueueTransport

        return StorageQueueTransport(Place.parse(os.fspath(url)))
    if scheme.lower() == "sb":
        from dagkit.queues.service_bus import ServiceBusTransport

        return ServiceBusTransport(os.fspath(url))
    raise ConfigError(
        f"queues {os.fspath(url)!r}: not known. "
        f"Queues are memory:, sqlite:<directory>, azure://<account>, sb://<namespace>, or a path."
    )
