"""Queues of Azure Service Bus (facts: servicebus; jobq 8.1)."""

from __future__ import annotations

from dagkit.queues.service_bus.transport import ServiceBusTransport

__all__ = ["ServiceBusTransport"]
