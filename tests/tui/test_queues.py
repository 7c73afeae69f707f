"""The queues of a real store, and what is said where a service cannot tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagkit.queues import open_transport
from dagkit.queues.base import OutMessage
from dagkit.queues.memory import MemoryTransport
from dagkit.stores import open_store
from dagkit_tui.looks import look_at_queues
from tui.conftest import terminal

pytestmark = pytest.mark.asyncio


async def test_depth_age_and_workers_of_every_queue(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store'}"
    store, transport = open_store(url), open_transport(url)
    cpu, done = transport.open("cpu"), transport.open("workflow-completions")
    cpu.send_batch([OutMessage(str(n), "{}") for n in range(3)])
    done.send_batch([OutMessage("c", "{}")])
    cpu.receive(1, 0, 30)
    transport.register_worker("cpu", "worker (node-7) #1234", 60)
    async with terminal(store, url=url) as screen:
        await screen.shows("no runs yet")
        await screen.press("q")
        text = await screen.shows("cpu", "workflow-completions", "worker (node-7)")

        line = next(line for line in text.split("\n") if "cpu" in line)
        assert line.split()[1:4] == ["cpu", "2", "1"]
        assert "#1234" not in text
        await screen.press("escape")
        await screen.shows("no runs yet")
    transport.close()
    store.close()


class Untold(MemoryTransport):
    """A service that does not know its workers, as Service Bus."""

    def workers(self, queue: str) -> list[str] | None:
        return None


async def test_workers_that_a_service_does_not_know_are_not_none_at_all() -> None:
    transport = Untold()
    transport.open("cpu").send_batch([OutMessage("a", "{}")])

    (found,) = look_at_queues(transport).queues

    assert (found.workers, found.stats.waiting) == (None, 1)
