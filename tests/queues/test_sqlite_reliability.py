"""SQLite queues among several processes, killed ones included, and when the file does not behave."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from dagkit.errors import BackendError, CorruptState, NewerFormat
from dagkit.queues.base import OutMessage
from dagkit.queues.sqlite import SqliteTransport

CONSUME = """
import sys
from dagkit.queues.sqlite import SqliteTransport

queue = SqliteTransport(sys.argv[1]).open("cpu")
while taken := queue.receive(int(sys.argv[2]), 0.5, 600):
    queue.complete(taken)
    print(*(delivery.id for delivery in taken), sep="\\n", flush=True)
"""

SEND = """
import sys
from dagkit.queues.base import OutMessage
from dagkit.queues.sqlite import SqliteTransport

queue = SqliteTransport(sys.argv[1]).open("cpu")
number = 0
while True:
    queue.send_batch([OutMessage(f"{number}.{part}", "x" * 500) for part in range(10)])
    print(number, flush=True)
    number += 1
"""


def run(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def fill(root, count):
    transport = SqliteTransport(root)
    transport.open("cpu").send_batch([OutMessage(f"m{number}", "text") for number in range(count)])
    transport.close()


def test_each_message_goes_to_exactly_one_of_several_processes(tmp_path):
    fill(tmp_path, 300)

    consumers = [run(CONSUME, tmp_path, 2) for _ in range(3)]
    received = [line for consumer in consumers for line in consumer.communicate(timeout=60)[0].split()]

    assert sorted(received) == sorted(f"m{number}" for number in range(300))
    assert [consumer.returncode for consumer in consumers] == [0, 0, 0]


def test_a_killed_consumer_loses_nothing(tmp_path):
    fill(tmp_path, 400)
    with run(CONSUME, tmp_path, 5) as consumer:
        first = [consumer.stdout.readline() for _ in range(random.Random(3).randrange(20, 200))]
        consumer.kill()
        completed = {line.strip() for line in [*first, *consumer.stdout.read().splitlines()]}

    later = time.time() + 700  # when the locks of the killed one have run out
    transport = SqliteTransport(tmp_path, clock=lambda: later)
    left = {delivery.id for delivery in transport.open("cpu").receive(500, 0, 30)}
    transport.close()

    everything = {f"m{number}" for number in range(400)}
    assert completed < everything
    assert not completed & left  # what was reported as done does not come back
    assert len(everything - completed - left) <= 5  # one batch may have been deleted and its report cut


def test_a_killed_sender_leaves_whole_batches_and_every_one_it_confirmed(tmp_path):
    with run(SEND, tmp_path) as sender:
        lines = [sender.stdout.readline() for _ in range(30)]
        sender.kill()
        lines += sender.stdout.read().splitlines()
    confirmed = max(map(int, lines)) + 1

    transport = SqliteTransport(tmp_path)
    found = [delivery.id for delivery in transport.open("cpu").receive(100_000, 0, 30)]
    transport.close()

    assert len(found) in (confirmed * 10, confirmed * 10 + 10)
    assert found == [f"{number}.{part}" for number in range(len(found) // 10) for part in range(10)]


def test_a_receiver_in_another_process_is_seen_to_wait_and_gets_what_is_sent(tmp_path):
    transport = SqliteTransport(tmp_path)
    queue = transport.open("cpu")
    with run(CONSUME.replace("0.5", "20"), tmp_path, 1) as consumer:
        queue.send_batch([OutMessage("a", "1")])
        assert consumer.stdout.readline() == "a\n"
        queue.send_batch([OutMessage("b", "1")])
        assert consumer.stdout.readline() == "b\n"
        consumer.kill()
    transport.close()


def test_messages_workers_and_locks_survive_a_restart(tmp_path):
    first = SqliteTransport(tmp_path)
    first.open("cpu").send_batch([OutMessage("a", "1"), OutMessage("b", "2")])
    (delivery,) = first.open("cpu").receive(1, 0, 600)
    first.register_worker("cpu", "host:1", 600)
    first.close()

    second = SqliteTransport(tmp_path)
    queue = second.open("cpu")

    assert second.names() == ["cpu"]
    assert second.workers("cpu") == ["host:1"]
    assert [one.id for one in queue.receive(10, 0, 30)] == ["b"]
    assert queue.extend(delivery, 30) is not None
    second.close()


def test_while_nothing_changes_a_waiting_receiver_sends_no_queries(tmp_path):
    transport = SqliteTransport(tmp_path)
    queue = transport.open("cpu")
    statements = []
    with transport._relaxed.connection("testing") as connection:
        connection.set_trace_callback(statements.append)

    queue.receive(1, 0.5, 30)

    assert sum("data_version" in one for one in statements) > 5
    assert sum("messages" in one for one in statements) <= 3
    assert not any("BEGIN" in one for one in statements)
    transport.close()


def test_picking_the_next_message_does_not_read_the_whole_queue(tmp_path):
    transport = SqliteTransport(tmp_path)
    queue = transport.open("cpu")
    queue.send_batch([OutMessage(f"m{number}", "x") for number in range(5_000)])
    ticks = []
    with transport._relaxed.connection("testing") as connection:
        connection.set_progress_handler(lambda: ticks.append(1) and None, 100)

    queue.complete(queue.receive(1, 0, 30))

    assert len(ticks) < 20  # in hundreds of instructions of SQLite's machine; reading all rows would be some hundred
    transport.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda queue, delivery: queue.send_batch([OutMessage("b", "1")]),
        lambda queue, delivery: queue.complete([delivery]),
        lambda queue, delivery: queue.extend(delivery, 30),
        lambda queue, delivery: queue.abandon([delivery]),
    ],
)
def test_a_lock_that_another_connection_holds_is_waited_for_and_then_an_error(tmp_path, call):
    transport = SqliteTransport(tmp_path, busy_s=0.1)
    queue = transport.open("cpu")
    queue.send_batch([OutMessage("a", "1")])
    (delivery,) = queue.receive(1, 0, 30)
    other = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(BackendError, match=r"queue\.db: .* another process holds its lock for more than 0\.1 s"):
        call(queue, delivery)

    other.close()
    call(queue, delivery)
    transport.close()


def test_a_full_disk_sends_all_of_a_batch_or_none(tmp_path):
    transport = SqliteTransport(tmp_path)
    queue = transport.open("cpu")
    with transport._durable.connection("testing") as connection:
        connection.execute("PRAGMA max_page_count = 20")

    with pytest.raises(BackendError, match="the disk or the quota is full"):
        queue.send_batch([OutMessage(f"m{number}", "x" * 5000) for number in range(50)])

    assert queue.stats().waiting == 0
    queue.send_batch([OutMessage("a", "1")])
    assert queue.stats().waiting == 1
    transport.close()


def test_a_later_format_and_a_damaged_file_are_told_apart(tmp_path):
    fill(tmp_path, 1)
    other = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    other.execute("PRAGMA user_version = 9")
    other.close()
    with pytest.raises(NewerFormat):
        SqliteTransport(tmp_path).open("cpu")

    (tmp_path / "queue.db").write_bytes(random.Random(1).randbytes(8192))
    with pytest.raises(CorruptState):
        SqliteTransport(tmp_path).open("cpu")


def test_a_closed_transport_says_so_and_ends_waiting_receivers(tmp_path):
    transport = SqliteTransport(tmp_path)
    queue = transport.open("cpu")
    waiting = threading.Thread(target=lambda: queue.receive(1, 60, 30))
    waiting.start()

    transport.close()
    waiting.join(10)

    assert not waiting.is_alive()
    with pytest.raises(BackendError, match="was closed"):
        queue.send_batch([OutMessage("a", "1")])
