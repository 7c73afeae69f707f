"""Every transport behind one fixture; what a new implementation has to add is one line in `TRANSPORTS`.

A service judges by its own clock, which a test cannot set: tests that move the clock are `not_for` services, and what
they show is shown with short locks in a file of its own (test_storage_queue.py, test_service_bus.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagkit.queues import open_transport
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
    "storage_queue": lambda root, clock: open_transport(f"azure://{os.environ['TEST_ACCOUNT']}"),
    "service_bus": lambda root, clock: open_transport(os.environ["TEST_BUS"]),
}
LOCAL = ("memory", "sqlite")
#: The real ones, and the server that they need.
SERVICES = {"storage_queue": "azurite", "service_bus": "servicebus"}


def _marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.xdist_group(SERVICES[name])) if name in SERVICES else name


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[_marked(name) for name in TRANSPORTS])
def kind(request: pytest.FixtureRequest) -> str:
    """Which transport the test is about."""
    return str(request.param)


@pytest.fixture
def transport(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Transport]:
    if kind == "storage_queue":
        monkeypatch.setenv("TEST_ACCOUNT", request.getfixturevalue("azurite_account").name)
    if kind == "service_bus":
        monkeypatch.setenv("TEST_BUS", request.getfixturevalue("servicebus_namespace").url)
    opened = TRANSPORTS[kind](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def queue(transport: Transport) -> Queue:
    return transport.open("cpu")


@pytest.fixture
def keeps_order(kind: str) -> bool:
    """Whether messages are received in the order in which they were sent."""
    return kind in LOCAL


@pytest.fixture
def forgets_ids(kind: str) -> bool:
    """Whether an id can be sent again once its message is completed; Service Bus remembers ids for days."""
    return kind != "service_bus"
