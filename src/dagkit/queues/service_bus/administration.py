"""Queues of a namespace as things: looking at them and creating them, where our rights allow it."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient

from dagkit.azure.bus import Bus
from dagkit.azure.bus_faults import speaking
from dagkit.azure.clock import ServiceClock
from dagkit.errors import BackendError, ConfigError

__all__ = ["Administration"]

log = logging.getLogger(__name__)

_LIMITS: Final[dict[str, Any]] = {"connection_timeout": 5.0, "read_timeout": 20.0}
_TRIES: Final[dict[str, Any]] = {"retry_total": 2, "retry_backoff_factor": 0.2, "retry_backoff_max": 2.0}
#: As ai4s-jobq has them: duplicates are known for 7 days, the longest the service offers (facts: jobq 8.1).
_NEW: Final[dict[str, Any]] = {
    "lock_duration": timedelta(minutes=1),
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": timedelta(days=7),
    "max_delivery_count": 2000,
}
_FEW_DELIVERIES: Final = 50


class Administration:
    """Asks over HTTPS. Thread-safe. `clock` is the service's."""

    def __init__(self, bus: Bus, credential: Any) -> None:
        self._bus, self.clock = bus, ServiceClock()
        self._client = _client(bus, credential, self.clock)

    def require(self, name: str) -> int | None:
        """Create a queue that is missing, and return how many times it delivers a message. Without the right to look,
        None: it is taken to be there, and its use will tell.

        `ConfigError` for a queue that cannot carry tasks.
        """
        with speaking(self._bus, f"opening the queue {name}"):
            try:
                found = self._look_or_create(name)
                self._check(name, found)
                return int(found.max_delivery_count)
            except (ServiceRequestError, ServiceResponseError) as error:
                log.info("the administration of %s cannot be reached: %s", self._bus.name, type(error).__name__)
            except (ClientAuthenticationError, HttpResponseError) as error:
                if error.status_code not in (401, 403):
                    raise
        return None

    def _look_or_create(self, name: str) -> Any:
        try:
            return self._client.get_queue(name)
        except ResourceNotFoundError:
            try:
                return self._client.create_queue(name, **_NEW)
            except ResourceExistsError:  # somebody was quicker
                return self._client.get_queue(name)

    def _check(self, name: str, found: Any) -> None:
        if found.requires_session:
            raise ConfigError(f"queue {name} of {self._bus.url} requires sessions. Create one that does not.")
        if found.max_delivery_count < _FEW_DELIVERIES:
            log.warning(
                "queue %s of %s sets messages aside after %d deliveries: a task whose worker dies as often fails. "
                "Allow more: az servicebus queue update --max-delivery-count 2000 --name %s --namespace-name %s "
                "--resource-group <its group>",
                name,
                self._bus.url,
                found.max_delivery_count,
                name,
                self._bus.name,
            )
        if not found.requires_duplicate_detection:
            log.warning("queue %s of %s detects no duplicates: some tasks may run twice", name, self._bus.url)

    def names(self) -> list[str]:
        """Queues of the namespace."""
        with speaking(self._bus, "listing queues"):
            return sorted(queue.name for queue in self._client.list_queues())

    def waiting(self, name: str) -> int | None:
        """Messages to be delivered, now or later, those that are locked included; None if we may not know."""
        with speaking(self._bus, f"looking at {name}"):
            try:
                counts = self._client.get_queue_runtime_properties(name)
            except ResourceNotFoundError:
                raise BackendError(f"looking at {name}: {self._bus.url} has no such queue") from None
            except (ClientAuthenticationError, HttpResponseError) as error:
                if error.status_code not in (401, 403):
                    raise
                return None
        return (counts.active_message_count or 0) + (counts.scheduled_message_count or 0)

    def close(self) -> None:
        self._client.close()


def _client(bus: Bus, credential: Any, clock: ServiceClock) -> ServiceBusAdministrationClient:
    place = urlsplit(bus.admin)
    transport = _transport(clock, is_plain=place.scheme == "http")
    if not bus.connection_string:
        return ServiceBusAdministrationClient(place.netloc, credential, transport=transport, **_TRIES)
    parts = {name: value for name, value in bus.fields.items() if name.startswith("sharedaccess")}
    names = {"sharedaccesskeyname": "SharedAccessKeyName", "sharedaccesskey": "SharedAccessKey"}
    secrets = ";".join(f"{names.get(name, 'SharedAccessSignature')}={value}" for name, value in parts.items())
    text = f"Endpoint=sb://{place.netloc};{secrets}"
    return ServiceBusAdministrationClient.from_connection_string(text, transport=transport, **_TRIES)


def _transport(clock: ServiceClock, *, is_plain: bool) -> Any:
    class Observing(RequestsTransport):  # type: ignore[misc, unused-ignore]
        """Notes what time it was at the service. Speaks without TLS to an emulator, which the SDK cannot do."""

        def send(self, request: Any, **kwargs: Any) -> Any:
            if is_plain:
                request.url = request.url.replace("https://", "http://", 1)
            sent = time.monotonic()
            response = super().send(request, **kwargs)
            clock.observe(response.headers.get("Date"), sent, time.monotonic())
            return response

    return Observing(**_LIMITS)
