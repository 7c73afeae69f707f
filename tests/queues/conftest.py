"""Every transport behind one fixture; what a new implementation has to add is one line in `TRANSPORTS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagkit.queues.base import Queue, Transport
from dagkit.queues.memory import MemoryTransport
from dagkit.queues.sqlite import SqliteTransport


@dataclass
class Clock:
    """The clock by which locks run out, in the hands of the test."""

    time: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


TRANSPORTS: dict[str, Callable[[Path, Clock], Transport]] = {
    "memory": lambda root, clock: MemoryTransport(clock=clock),
    "sqlite": lambda root, clock: SqliteTransport(root / "store", clock=clock),
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=list(TRANSPORTS))
def transport(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Transport]:
    opened = TRANSPORTS[request.param](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def queue(transport: Transport) -> Queue:
    return transport.open("cpu")
