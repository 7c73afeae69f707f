"""Azure's notice that this machine is about to be taken away (scheduled events of the instance metadata service).

Source: Azure documentation, "Scheduled Events for Linux VMs": a GET with the header `Metadata: true` to the link-local
address lists events; `Preempt`, `Terminate`, `Redeploy` and `Reboot` end what runs on the machines they name.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections.abc import Callable
from typing import Any, Final

__all__ = ["Evictions"]

log = logging.getLogger(__name__)

_SERVICE: Final = "http://169.254.169.254"
_NAME: Final = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_EVENTS: Final = "/metadata/scheduledevents?api-version=2020-07-01"
_ENDING: Final = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})
_TIMEOUT_S: Final = 2.0
_FIRST_EVENTS_TIMEOUT_S: Final = 130.0
"""The first request of a machine switches the service on, which takes up to two minutes."""


class Evictions:
    """Looks every `interval_s` whether this machine will end, and calls `on_notice` once, with the reason.

    Owns one thread. A machine without the service is asked once and no more.
    """

    def __init__(self, on_notice: Callable[[str], None], *, service: str = _SERVICE, interval_s: float = 5.0) -> None:
        self._on_notice, self._service, self._interval_s = on_notice, service, interval_s
        self._closing = threading.Event()
        # Proxies never reach the link-local address.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._thread = threading.Thread(target=self._run, name="dagkit-evictions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more. A request in flight ends by itself."""
        self._closing.set()
        self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        try:
            machine = self._get(_NAME, _TIMEOUT_S).decode().strip()
        except OSError as error:
            log.debug("no instance metadata service here: %s", error)
            return
        patience = _FIRST_EVENTS_TIMEOUT_S
        while not self._closing.is_set():
            try:
                document = json.loads(self._get(_EVENTS, patience))
            except (OSError, ValueError) as error:
                log.debug("scheduled events: %s", error)
            else:
                patience = _TIMEOUT_S
                if (notice := _notice(document, machine)) is not None:
                    self._on_notice(notice)
                    return
            self._closing.wait(self._interval_s)

    def _get(self, path: str, timeout_s: float) -> bytes:
        request = urllib.request.Request(self._service + path, headers={"Metadata": "true"})
        with self._open(request, timeout=timeout_s) as answer:
            data: bytes = answer.read(1 << 20)
        return data


def _notice(document: Any, machine: str) -> str | None:
    """What ends this machine, if something does."""
    events = document.get("Events", []) if isinstance(document, dict) else []
    for event in events:
        if event.get("EventType") in _ENDING and machine in event.get("Resources", []):
            return (
                f"Azure will take this machine away: {event['EventType']}, not before {event.get('NotBefore') or 'now'}"
            )
    return None
