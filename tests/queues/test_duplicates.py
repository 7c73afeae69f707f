"""Queues on this machine detect duplicates; services may not (dagkit.queues.base.OutMessage)."""

from __future__ import annotations

import pytest

from dagkit.queues.base import OutMessage
from queues.conftest import LOCAL

pytestmark = pytest.mark.parametrize("kind", LOCAL)


def test_an_id_that_is_still_there_is_not_sent_again_and_keeps_its_lock(queue):
    queue.send_batch([OutMessage("a", "first")])
    (delivery,) = queue.receive(1, 0, 30)

    queue.send_batch([OutMessage("a", "second")])

    assert queue.receive(1, 0, 30) == []
    queue.complete([delivery])
    assert queue.stats().waiting == queue.stats().locked == 0


def test_an_id_that_waits_keeps_its_text_and_its_place(queue):
    queue.send_batch([OutMessage("a", "first"), OutMessage("b", "b")])

    queue.send_batch([OutMessage("a", "second")])

    assert [delivery.text for delivery in queue.receive(10, 0, 30)] == ["first", "b"]
