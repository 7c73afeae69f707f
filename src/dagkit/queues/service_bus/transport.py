"""The queues of a Service Bus namespace."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

from dagkit.azure.bus import Bus, find_bus
from dagkit.errors import AccessDenied, ConfigError, DagkitError, MissingExtra
from dagkit.queues.base import Queue

if TYPE_CHECKING:
    from dagkit.queues.service_bus.administration import Administration
    from dagkit.queues.service_bus.queue import ServiceBusQueue

__all__ = ["ServiceBusTransport"]

#: "letters, numbers, periods, hyphens, underscores, slashes", 260 characters (Microsoft's resource naming rules).
_NAME: Final = re.compile(r"(?=.{1,260}\Z)[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")

#: Without `try_timeout` the SDK waits for ever for a link that is not answered (facts: servicebus 3).
_PATIENCE: Final[dict[str, Any]] = {
    "try_timeout": 10,
    "retry_total": 2,
    "retry_backoff_factor": 0.2,
    "retry_backoff_max": 2,
}


#: What a queue has if nobody has said more (Microsoft: "maximum delivery count"); supposed where we may not look.
DEFAULT_DELIVERIES: Final = 10


class ServiceBusTransport:
    """Queues of one namespace. Thread-safe; each queue in use has up to three connections and threads.

    The service detects duplicates for days, keeps the order, and has no place for workers.
    """

    def __init__(self, url: str) -> None:
        bus = find_bus(url)
        self.url = bus.url
        self.closing = threading.Event()
        credential = _credential(bus)
        self._bus, self._client = bus, _client(bus, credential)
        self._administration = _administration(bus, credential)
        self._lock = threading.Lock()
        self._queues: dict[str, ServiceBusQueue] = {}

    def __repr__(self) -> str:
        return f"ServiceBusTransport({self.url!r})"

    def open(self, name: str) -> Queue:
        """As in `Transport`; `ConfigError` for a name that the service does not take."""
        from dagkit.queues.service_bus.queue import ServiceBusQueue

        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"queue {name!r}: a Service Bus queue is called by up to 260 letters, digits, and . - _ / in between"
            )
        with self._lock:
            if name not in self._queues:
                most = self._administration.require(name) or DEFAULT_DELIVERIES
                self._queues[name] = ServiceBusQueue(
                    name, self._bus, self._client, self._administration, self.closing, most
                )
            return self._queues[name]

    def names(self) -> list[str]:
        """As in `Transport`; takes the right to manage the namespace."""
        return self._administration.names()

    def register_worker(self, queue: str, owner: str, ttl_s: float) -> None:
        """Nothing: the service has no place for it."""

    def workers(self, queue: str) -> list[str] | None:
        """None: the service does not know."""
        return None

    def check(self) -> list[tuple[str, str, str]]:
        """As in `Transport`: who we are, where there is no key, and whether the namespace shows us its queues."""
        said = []
        if not self._bus.connection_string:
            from dagkit.azure.identity import SERVICE_BUS_SCOPE, chain_findings

            found = chain_findings(SERVICE_BUS_SCOPE)
            given = any(gave for _, gave, _ in found)
            said = [("identity", "pass" if gave or given else "warn", f"{name}: {text}") for name, gave, text in found]
        return [*said, ("namespace", *self._check_namespace())]

    def _check_namespace(self) -> tuple[str, str]:
        try:
            number = len(self.names())
        except AccessDenied:
            return "pass", f"no right to manage {self.url}: queues that exist are used, missing ones cannot be created"
        except DagkitError as error:
            return "fail", str(error)
        return "pass", f"{self.url} has {number} queue{'' if number == 1 else 's'}"

    def close(self) -> None:
        """Wake whoever is waiting for a message, let calls in flight end, close the connections. Repeatable."""
        self.closing.set()
        with self._lock:
            lanes = [lane for queue in self._queues.values() for lane in queue.lanes]
        for lane in lanes:
            lane.shut()
        for lane in lanes:
            lane.join()
        self._administration.close()


def _administration(bus: Bus, credential: Any) -> Administration:
    from dagkit.queues.service_bus.administration import Administration

    return Administration(bus, credential)


def _credential(bus: Bus) -> Any:
    if bus.connection_string:
        return None
    from dagkit.azure.identity import default_credential

    return default_credential()


def _client(bus: Bus, credential: Any) -> Any:
    try:
        from azure.servicebus import ServiceBusClient
    except ImportError:
        raise MissingExtra("azure-servicebus", "azure", bus.url) from None
    if bus.connection_string:
        return ServiceBusClient.from_connection_string(bus.connection_string, **_PATIENCE)
    return ServiceBusClient(bus.host, credential, **_PATIENCE)
