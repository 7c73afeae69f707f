"""Azure accounts as the store and the queues use them: places, credentials, clients, the service's clock, faults."""

from __future__ import annotations
