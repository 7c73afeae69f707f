"""Clients of one account: one pool of connections, every call with a time limit and a bounded number of tries."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagkit.azure.account import Account
from dagkit.azure.clock import ServiceClock
from dagkit.azure.faults import redact
from dagkit.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from azure.data.tables import TableServiceClient
    from azure.storage.blob import BlobServiceClient
    from azure.storage.queue import QueueServiceClient

__all__ = ["Connection"]

#: The SDKs wait 20 s for a connection, 60 s for an answer and about 50 s between tries, several times over
#: (azure-storage-blob `_shared/constants.py`, `_shared/policies.py`).
_LIMITS: Final[dict[str, Any]] = {"connection_timeout": 5.0, "read_timeout": 30.0}
_STORAGE_TRIES: Final[dict[str, Any]] = {
    "retry_total": 3,
    "retry_connect": 1,
    "retry_read": 2,
    "retry_status": 3,
    # The pause before try n is initial + base ** n (`_shared/policies.py`): 0.2, 0.8 and 1.5 s, give or take 0.1.
    "initial_backoff": -1.2,
    "increment_base": 1.4,
    "random_jitter_range": 0.1,
}
_TABLE_TRIES: Final[dict[str, Any]] = {
    "retry_total": 3,
    "retry_connect": 1,
    "retry_read": 2,
    "retry_status": 3,
    "retry_backoff_factor": 0.3,
    "retry_backoff_max": 5.0,
}


class Connection:
    """Clients of one account, made at first use. Thread-safe."""

    def __init__(self, account: Account) -> None:
        self.account, self.clock = account, ServiceClock()
        self._lock = threading.Lock()
        self._transport: Any = None
        self._credential: Any = None
        self._clients: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Connection({self.account.name!r})"

    @property
    def blobs(self) -> BlobServiceClient:
        client: BlobServiceClient = self._client("blob", _blob_client)
        return client

    @property
    def queues(self) -> QueueServiceClient:
        client: QueueServiceClient = self._client("queue", _queue_client)
        return client

    @property
    def tables(self) -> TableServiceClient:
        client: TableServiceClient = self._client("table", _table_client)
        return client

    def close(self) -> None:
        """Close the connections. Repeatable; whoever calls a client afterwards opens new ones."""
        with self._lock:
            transport, self._transport, self._clients = self._transport, None, {}
        if transport is not None:
            transport.close()

    def _client(self, service: str, make: _Make) -> Any:
        client = self._clients.get(service)
        if client is None:
            with self._lock:
                if self._transport is None:
                    self._transport = _transport(self.account, self.clock)
                if self._credential is None:
                    self._credential = _credential(self.account)
                client = self._clients[service] = make(self.account, self._credential, self._transport)
        return client


class _Make(Protocol):
    def __call__(self, account: Account, credential: Any, transport: Any) -> Any: ...


def _blob_client(account: Account, credential: Any, transport: Any) -> Any:
    try:
        from azure.storage.blob import BlobServiceClient
    except ImportError:
        raise MissingExtra("azure-storage-blob", "azure", f"azure://{account.name}") from None
    return BlobServiceClient(account.blob, credential, transport=transport, **_LIMITS, **_STORAGE_TRIES)


def _queue_client(account: Account, credential: Any, transport: Any) -> Any:
    try:
        from azure.storage.queue import QueueServiceClient
    except ImportError:
        raise MissingExtra("azure-storage-queue", "azure", f"azure://{account.name}") from None
    return QueueServiceClient(account.queue, credential, transport=transport, **_LIMITS, **_STORAGE_TRIES)


def _table_client(account: Account, credential: Any, transport: Any) -> Any:
    try:
        from azure.data.tables import TableServiceClient
    except ImportError:
        raise MissingExtra("azure-data-tables", "azure", f"azure://{account.name}") from None
    return TableServiceClient(account.table, credential=credential, transport=transport, **_LIMITS, **_TABLE_TRIES)


def _credential(account: Account) -> Any:
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

    if account.secrets:
        _keep_out_of_logs(account)
    if account.key:
        return AzureNamedKeyCredential(account.name, account.key)
    if account.sas:
        return AzureSasCredential(account.sas)
    if not account.blob.startswith("https:"):
        raise ConfigError(f"storage account {account.name}: {account.blob} needs a key: tokens travel over https only")
    from dagkit.azure.identity import default_credential

    return default_credential()


def _transport(account: Account, clock: ServiceClock) -> Any:
    """Connections for all clients of the account, as many as the pool may keep; answers set the clock."""
    import requests
    from azure.core.pipeline.transport import RequestsTransport
    from requests.adapters import HTTPAdapter

    class Observing(RequestsTransport):  # type: ignore[misc, unused-ignore]
        """Sends, and notes what time it was at the service."""

        def send(self, request: Any, **kwargs: Any) -> Any:
            sent = time.monotonic()
            response = super().send(request, **kwargs)
            clock.observe(response.headers.get("Date"), sent, time.monotonic())
            return response

    session = requests.Session()
    session.trust_env = not account.is_local  # no proxy for the loopback
    adapter = HTTPAdapter(pool_maxsize=_pool_size(), max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return Observing(session=session, **_LIMITS)


def _pool_size() -> int:
    text = os.environ.get("JOBQ_HTTP_POOL_SIZE") or "100"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"JOBQ_HTTP_POOL_SIZE: {text!r} is not a number of connections")
    return int(text)


def _keep_out_of_logs(account: Account) -> None:
    """urllib3 logs urls at DEBUG, and a url with a SAS is a secret."""
    logging.getLogger("urllib3.connectionpool").addFilter(_Redacting(account.secrets))


class _Redacting(logging.Filter):
    """Cleans records of secrets."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = redact(text, self._secrets)
        if clean != text:
            record.msg, record.args = clean, ()
        return True
