"""The worker process by its pipes alone: what is written when, and what ends it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.runtime.wire import Frames, pack

_BOOT = "import sys; from dagkit.runtime.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
LIMIT_S = 20.0


class Host:
    """Stands for the executor."""

    def __init__(self, folder: Path) -> None:
        scratch = folder / "scratch" / "1"
        scratch.mkdir(parents=True)
        inner_in, self.out = os.pipe()
        self.back, inner_out = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(inner_in), str(inner_out)],
            pass_fds=(inner_in, inner_out),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(inner_in)
        os.close(inner_out)
        self._frames, self._got = Frames(), []  # type: ignore[var-annotated]
        options = {"store": "memory:", "scratch": str(scratch), "log": str(folder / "log")}
        self.send(("setup", options))
        assert self.receive() == ("ready",)

    def send(self, *frames: tuple[Any, ...]) -> None:
        os.write(self.out, b"".join(map(pack, frames)))

    def receive(self) -> Any:
        deadline = time.monotonic() + LIMIT_S
        while not self._got:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "nothing came"
            data = os.read(self.back, 65_536)
            assert data, "the pipe is closed"
            self._got += self._frames.feed(data)
        return self._got.pop(0)

    def close(self) -> None:
        os.close(self.out)
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.back)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def job(serial: int, function: str, *args: Any, **fields: Any) -> tuple[Any, ...]:
    return (serial, "wf1", f"t{serial}", 0, 1, {"call": {"function": function, "args": list(args)}, **fields}, {})


def ref_of(report: tuple[Any, ...]) -> str | None:
    """The output ref of a success; the short form of a report becomes the long one when the machine is busy."""
    return report[1] if len(report) == 4 else report[1].get("ref")


def test_reports_come_in_the_order_of_the_jobs(host: Host) -> None:
    host.send(("run", [job(i, "operator:neg", i) for i in range(20)]))

    reports = [host.receive() for _ in range(20)]

    assert [(report[0], ref_of(report)) for report in reports] == [(i, str(-i)) for i in range(20)]


def test_a_report_is_written_before_the_next_job_begins(host: Host, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.send(("run", [job(1, "operator:neg", 1), job(2, "builtins:open", str(fifo), "w")]))

    assert ref_of(host.receive()) == "-1"

    os.close(os.open(fifo, os.O_RDONLY))
    assert "cannot" in host.receive()[1]["error"]


def test_jobs_that_have_not_begun_are_given_back_while_one_runs(host: Host, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.send(("run", [job(1, "builtins:open", str(fifo), "w"), *(job(i, "operator:neg", i) for i in range(2, 6))]))
    host.send(("drop", [3, 4]))
    assert host.receive() == ("back", [3, 4])
    host.send(("drop", None))
    assert host.receive() == ("back", [2, 5])

    os.close(os.open(fifo, os.O_RDONLY))
    host.send(("run", [job(9, "operator:neg", 9)]))

    assert [host.receive()[0] for _ in range(2)] == [1, 9]


def test_a_command_that_is_stopped_before_it_begins_does_not_begin(host: Host, tmp_path: Path) -> None:
    command = (1, "wf1", "t1", 0, 1, {"cmd": f"touch {tmp_path}/begun"}, {})
    host.send(("run", [command]), ("stop", 1, 1.0))

    serial, report = host.receive()

    assert (serial, report.get("stopped")) == (1, True)
    assert not (tmp_path / "begun").exists()


def test_it_asks_for_what_only_the_executor_has(host: Host) -> None:
    host.send(("run", [job(1, "operator:mul", "x", 40_000)]))

    word, what, (workflow_id, path, data) = host.receive()
    host.send(("answer", "blob:wf1/t1.json", None))

    assert (word, what, workflow_id, path, len(data)) == ("ask", "put", "wf1", "t1.json", 40_002)
    assert ref_of(host.receive()) == "blob:wf1/t1.json"


def test_an_answer_that_is_an_error_fails_the_task(host: Host) -> None:
    host.send(("run", [job(1, "operator:mul", "x", 40_000)]))
    host.receive()

    host.send(("answer", None, "the disk is full"))

    assert "the disk is full" in host.receive()[1]["error"]


def test_leave_ends_it_after_what_it_has(host: Host) -> None:
    host.send(("run", [job(1, "operator:neg", 1)]), ("leave",))

    assert host.receive()[0] == 1
    assert host.process.wait(LIMIT_S) == 0


def test_sigterm_while_idle_ends_it_and_says_so(host: Host) -> None:
    host.process.terminate()

    assert host.receive() == ("leaving",)
    assert host.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("busy", [False, True])
def test_without_an_executor_it_ends_and_leaves_no_files(tmp_path: Path, busy: bool) -> None:
    host = Host(tmp_path)
    if busy:
        host.send(("run", [job(1, "time:sleep", 1000)]))

    host.close()

    assert not (tmp_path / "scratch").exists()
    assert not (tmp_path / "log").exists()


def test_starting_it_does_not_import_pydantic() -> None:
    code = (
        "import sys, dagkit.runtime.child; print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'rich')])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert found.strip() == "[]"
