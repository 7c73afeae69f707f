"""An emulator of Azure Service Bus queues, for tests: AMQP 1.0 for messages, Atom over HTTP for administration.

It was built from what the SDK expects (facts: servicebus.md), and has never been compared with the live service.
`python -m emulators.servicebus` serves one namespace until it is interrupted.
"""

from __future__ import annotations
