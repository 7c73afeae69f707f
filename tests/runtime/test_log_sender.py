"""Logs that are sent while they grow."""

from __future__ import annotations

import threading
import time

import pytest

from dagkit.errors import BackendError
from dagkit.runtime.log_sender import LogSender
from dagkit.runtime.storage import Storage
from dagkit.testing import MemoryStore


class CountingStore(MemoryStore):
    """A store without files that says how often it was called, and can be out of order."""

    def __init__(self):
        super().__init__()
        self.appends, self.is_ill = [], False
        self.appended = threading.Event()

    def append_log(self, workflow_id, task, attempt, offset, data):
        if self.is_ill:
            raise BackendError("ill")
        super().append_log(workflow_id, task, attempt, offset, data)
        self.appends.append((task, offset, len(data)))
        self.appended.set()


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    return path


@pytest.fixture
def sender(store, log):
    storage = Storage("memory:", lambda what, about: None)
    storage._opened = store
    return LogSender(storage, log)


def test_what_a_task_wrote_is_seen_before_it_ends_and_sent_once(store, log, sender):
    log.write_bytes(b"first\n")
    sender.follow("w", "t", "0.1")
    assert store.appended.wait(5)
    assert store.read_log("w", "t", "0.1") == b"first\n"

    log.write_bytes(b"first\nsecond\n")
    sender.finish("w", "t", "0.1")

    assert store.read_log("w", "t", "0.1") == b"first\nsecond\n"
    assert store.appends == [("t", 0, 6), ("t", 6, 7)]


def test_a_short_task_is_sent_at_its_end_without_a_thread(store, log, sender):
    log.write_bytes(b"all\n")

    sender.finish("w", "t", "0.1")

    assert store.read_log("w", "t", "0.1") == b"all\n"
    assert sender._thread is None


def test_what_comes_after_a_silent_task_is_not_taken_for_its_log(store, log, sender):
    sender.follow("w", "silent", "0.1")
    sender.forget()
    log.write_bytes(b"of the next\n")

    sender.finish("w", "next", "0.1")

    assert store.read_log("w", "silent", "0.1") == b""
    assert store.read_log("w", "next", "0.1") == b"of the next\n"


def test_an_attempt_that_is_followed_too_late_is_not_followed(store, log, sender):
    log.write_bytes(b"of the first\n")
    sender.finish("w", "first", "0.1")
    log.write_bytes(b"of the second\n")

    sender.follow("w", "first", "0.1", lambda: False)

    assert sender._thread is None
    sender.finish("w", "second", "0.1")
    assert store.read_log("w", "first", "0.1") == b"of the first\n"
    assert store.read_log("w", "second", "0.1") == b"of the second\n"


def test_a_store_that_was_ill_gets_everything_at_the_end(store, log, sender):
    store.is_ill = True
    log.write_bytes(b"x" * 100)
    sender.follow("w", "t", "0.1")
    deadline = time.monotonic() + 5
    while sender._sending.locked() and time.monotonic() < deadline:
        pass
    store.is_ill = False

    sender.finish("w", "t", "0.1")

    assert store.read_log("w", "t", "0.1") == b"x" * 100


def test_a_large_log_is_sent_in_parts(store, log, sender):
    log.write_bytes(b"y" * (9 << 20))

    sender.finish("w", "t", "0.1")

    assert len(store.appends) == 3
    assert len(store.read_log("w", "t", "0.1")) == 9 << 20
