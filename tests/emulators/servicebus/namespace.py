"""A Service Bus namespace: its queues, its policies, and the port on which clients speak AMQP to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from emulators.servicebus.access import Policy
from emulators.servicebus.broker import Broker, Queue, Rules
from emulators.servicebus.connection import Connection
from emulators.servicebus.faults import Faults

__all__ = ["Namespace"]

_TICK_S = 0.015


class Namespace:
    """Lives in one event loop; nothing of it may be touched from elsewhere."""

    def __init__(self, policies: dict[str, Policy]) -> None:
        self.broker, self.faults, self.policies = Broker(), Faults(), policies
        self.port = 0
        self._connections: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_pumping = False
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def open(self) -> None:
        """Listen on the loopback; on the same port as before, if it was open before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.start(self._tick())

    async def close(self) -> None:
        """Stop listening and drop everybody; queues and messages stay."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        self.drop_all()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)

    def create(self, name: str, rules: Rules) -> Queue:
        queue = self.broker.create(name, rules)
        for one in (queue, queue.dead_letters):
            if one is not None:
                one.arrived = self.pump_soon
        return queue

    def drop_all(self) -> None:
        """Cut every connection."""
        for connection in list(self._connections):
            connection.drop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self._connections.append(connection)
        try:
            await connection.serve()
        except (ValueError, asyncio.CancelledError):  # what it sent was not AMQP, or the server ends
            connection.drop()
        finally:
            self._connections.remove(connection)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.broker.tick(time.time())

    def pump_soon(self) -> None:
        """Hand out what is ready, once the event loop is done with what it does now."""
        if not self._is_pumping:
            self._is_pumping = True
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        for queue in {outlet.queue for connection in self._connections for outlet in connection.outlets}:
            if queue is not None:
                self.pump(queue)

    def pump(self, queue: Queue) -> None:
        """One message to each receiver that waits, in turn, until there are no more of either."""
        handed = True
        while handed:
            handed = False
            for connection in list(self._connections):
                for outlet in connection.outlets:
                    if outlet.queue is queue and outlet.is_ready and connection.push(outlet, queue):
                        handed = True
                        self._to_the_end(connection)

    def _to_the_end(self, connection: Connection) -> None:
        """Whoever got a message is the last to get the next one."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._connections.append(connection)
