"""What every executor promises, over local processes, queues with a worker, and a real Slurm."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagkit.executors.base import Executor
from dagkit.executors.local import LocalExecutor
from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience as PjmPatience
from dagkit.executors.queued import QueuedExecutor
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.watch import Patience
from dagkit.model.messages import AttemptKey, Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues import open_transport
from dagkit.runtime.values import load_output
from dagkit.settings import WorkerSettings
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.testing.pjm import PjmSimulator, Site
from dagkit.worker import Worker
from executors.driving import call, collect, message, poll_until, run_all, run_one

SLURM = pytest.param("slurm", marks=pytest.mark.xdist_group("slurm"))
PATIENCE = Patience(collect_s=0.0, look_s=0.3, most_look_s=1, grace_s=5, short_grace_s=1, files_s=0.1)


@dataclass
class Place:
    """Where a kind of executor is tried: `make` gives another one over the same store and services."""

    store: Store
    make: Callable[[], Executor]
    kind: str


@pytest.fixture(params=["local", "queued", SLURM, "pjm"])
def place(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Place]:
    kind: str = request.param
    if kind == "slurm":
        request.getfixturevalue("slurm")
    made: list[Executor] = []

    def make() -> Executor:
        executor: Executor
        if kind == "local":
            executor = LocalExecutor(store, slots=2, kill_timeout_s=1.0)
        elif kind == "queued":
            executor = QueuedExecutor(store, open_transport(store.url))
        elif kind == "pjm":
            executor = pjm_executor(store, tmp_path)
        else:
            executor = SlurmExecutor(store, folder=tmp_path / "slurm", patience=PATIENCE)
        made.append(executor)
        return executor

    with _Worker(store) if kind == "queued" else pjm_of(tmp_path).running() if kind == "pjm" else _Nobody():
        yield Place(store, make, kind)
        for executor in made:
            executor.close(0.0)


def pjm_of(folder: Path) -> PjmSimulator:
    return PjmSimulator(folder / "pjm", Site.quick(nodes=2))


def pjm_executor(store: Store, folder: Path) -> PjmExecutor:
    quick = PjmPatience(
        look_s=0.1,
        most_look_s=0.3,
        refill_s=60,
        submit_interval_s=0,
        short_grace_s=1,
        grace_s=5,
        files_s=0.05,
        missing_s=5,
    )
    client = Client(environ=pjm_of(folder).environment)
    executor = PjmExecutor(
        store, folder=folder / "spools", default=PjmQueue(elapse_s=600), patience=quick, client=client
    )
    assert executor.open_refill(20)
    return executor


class _Worker:
    """A worker of the queue in a thread, as `dagkit worker` is one in a process."""

    def __init__(self, store: Store) -> None:
        self._store = open_store(store.url.removeprefix("sqlite:"))
        self._transport = open_transport(store.url)
        settings = WorkerSettings(slots=2, grace_s=0.0, kill_timeout_s=1.0, cancel_poll_s=0.1)
        self._worker = Worker("default", self._store, self._transport, settings)
        self._thread = threading.Thread(target=self._worker.run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._thread.join(30)
        self._transport.close()
        self._store.close()


class _Nobody:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def value_of(place: Place, done: Completion) -> Any:
    return load_output(done.output_ref, place.store.get_output)


def test_calls_and_commands_succeed_with_their_outputs(place: Place) -> None:
    messages = [
        message("call", call("echo", {"a": [1, 2]})),
        message("command", {"cmd": "echo '{\"b\": 2}' > $JOBQ_OUTPUT_FILE"}),
        message("large", call("echo", "x" * 100_000)),
        message("nothing", {"cmd": "true"}),
        message("again", call("echo", 3), attempt=2, generation=1),
    ]

    done = run_all(place.make(), messages)

    assert all(one.success and one.error is None for one in done.values())
    assert value_of(place, done["call"]) == {"a": [1, 2]}
    assert value_of(place, done["command"]) == {"b": 2}
    assert len(value_of(place, done["large"])) == 100_000
    assert done["nothing"].output_ref is None
    assert (done["again"].attempt, done["again"].generation) == (2, 1)


def test_upstream_outputs_arrive(place: Place) -> None:
    upstream = {"train": json.dumps({"mae": 0.5}), "skipped": None}

    done = run_one(place.make(), call("parents"), upstream=upstream)

    assert value_of(place, done) == {"train": {"mae": 0.5}, "skipped": None}


def test_failures_say_why_in_their_first_line(place: Place) -> None:
    done = run_all(place.make(), [message("call", call("fail")), message("command", {"cmd": "exit 3"})])

    assert {one.kind for one in done.values()} == {FailureKind.USER}
    first_lines = {name: (one.error or "").partition("\n")[0] for name, one in done.items()}
    assert first_lines["call"] == "ValueError: no such file: x.csv"
    assert "exit code 3" in first_lines["command"]
    assert "Traceback" in (done["call"].error or "")


def test_what_a_task_wrote_is_in_its_log(place: Place) -> None:
    run_all(
        place.make(), [message("call", call("write_everywhere")), message("command", {"cmd": "echo words; exit 1"})]
    )

    assert b"from a subprocess" in place.store.read_log("wf1", "call", "0.1")
    assert place.store.read_log("wf1", "command", "0.1") == b"words\n"


def test_usage_is_measured(place: Place) -> None:
    done = run_one(place.make(), call("burn", 0.05))

    usage = done.usage or {}
    assert usage["wall_s"] > 0.01
    assert usage["cpu_s"] >= 0.05
    assert usage["peak_rss_bytes"] > 5 << 20
    assert usage["host"]


def test_the_numbers_of_usage_are_those_of_the_task(place: Place) -> None:
    wants = {"resources": {"memory": "700M"}}
    messages = [
        message("holds", call("hold_memory", 300, 0.3), **wants),
        message("exits", {"cmd": "exit 3"}, **wants),
        message("killed", {"cmd": "kill -9 $$"}, **wants),
    ]

    used = {name: done.usage or {} for name, done in run_all(place.make(), messages).items()}

    assert 300 <= used["holds"]["peak_rss_bytes"] / 2**20 < 420
    assert 0.3 <= used["holds"]["wall_s"] < 5
    assert used["exits"]["exit_code"] == 3
    assert used["killed"]["signal"] == "SIGKILL"
    assert {one["host"] for one in used.values()} == {socket.gethostname()}


@pytest.mark.not_for("pjm")  # the simulated one ends no job for its memory
def test_an_attempt_that_holds_more_than_it_asked_for_fails_for_memory(place: Place) -> None:
    messages = [
        message("greedy", call("hold_memory", 400, 60.0), resources={"memory": "200M"}),
        message("modest", call("hold_memory", 20, 0.1), resources={"memory": "500M"}),
    ]

    done = run_all(place.make(), messages)

    assert done["greedy"].kind is FailureKind.MEMORY
    assert done["modest"].success


def test_a_worker_that_dies_costs_one_attempt(place: Place, tmp_path: Path) -> None:
    messages = [message("bad", call("end_process", str(tmp_path), "segfault")), message("good", call("echo", 1))]

    done = run_all(place.make(), messages)

    assert not done["bad"].success
    assert "SIGSEGV" in (done["bad"].error or "")
    assert done["good"].success


def test_a_message_that_is_in_flight_runs_once(place: Place, tmp_path: Path) -> None:
    executor = place.make()
    twice = message("a", call("mark_and_pause", str(tmp_path), "ran", 0.2))

    assert executor.submit([twice]) == 1
    assert executor.submit([twice]) == 1
    ended, _ = collect(executor, lambda ended, begun: bool(ended))

    assert [one.task for one in ended] == ["a"]
    assert (tmp_path / "ran").read_text() == "ran\n"


@pytest.mark.not_for("queued")  # its workers look at the store's cancel flag themselves
def test_a_stopped_attempt_is_reported_once_and_gone(place: Place, tmp_path: Path) -> None:
    executor = place.make()
    messages = [
        message("call", call("announce_and_hang", str(tmp_path / "call"))),
        message("command", {"cmd": f"echo $$ > {tmp_path / 'command'}; sleep 1000"}),
    ]
    executor.submit(messages)
    poll_until(executor, lambda: all((tmp_path / one.task).exists() for one in messages))

    executor.cancel([one.key for one in messages], FailureKind.TIMEOUT)
    ended, _ = collect(executor, lambda ended, begun: len(ended) == 2)

    assert {one.kind for one in ended} == {FailureKind.TIMEOUT}
    pids = [int((tmp_path / one.task).read_text()) for one in messages]
    poll_until(executor, lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_stopping_what_nobody_knows_does_nothing(place: Place) -> None:
    executor = place.make()

    executor.cancel([AttemptKey("wf1", "never", 0, 1)], FailureKind.CANCELLED)

    assert executor.poll(0.1) == []


def test_a_wait_ends_when_it_is_interrupted(place: Place) -> None:
    executor = place.make()
    executor.poll(0.0)
    threading.Timer(0.1, executor.interrupt).start()
    began = time.monotonic()

    executor.poll(30.0)

    assert time.monotonic() - began < 10


def test_room_is_a_count_or_without_limit(place: Place) -> None:
    capacity = place.make().capacity()

    assert capacity is None or capacity > 0


def test_what_is_acknowledged_is_not_reported_again(place: Place) -> None:
    first = place.make()
    first.submit([message("a", call("echo", 1))])
    ended, _ = collect(first, lambda ended, begun: bool(ended))
    first.acknowledge(ended)
    first.close(0.0)

    second = place.make()
    if place.kind != "local":
        assert second.recover([]) == []

    assert second.poll(1.0) == []


def test_after_a_restart_every_attempt_is_lost_or_comes_back(place: Place, tmp_path: Path) -> None:
    first = place.make()
    running: list[TaskMessage] = [message(f"t{n}", call("mark", str(tmp_path), f"t{n}")) for n in range(2)]
    assert first.submit(running) == 2
    first.close(0.0)

    second = place.make()
    lost = second.recover(running)
    back, _ = collect(second, lambda ended, begun: len(ended) + len(lost) == 2)

    assert {one.task for one in [*lost, *back]} == {"t0", "t1"}
    assert all(one.kind is FailureKind.LOST for one in lost)
    if place.kind != "local":
        assert lost == []
        assert [(tmp_path / one.task).read_text() for one in running] == ["ran\n"] * 2
