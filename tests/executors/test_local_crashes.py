"""A worker process that dies costs one attempt of the task that ran in it, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dagkit.executors.ending import OomWatch, describe_exit
from dagkit.executors.local import LocalExecutor
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store
from executors.driving import (
    LIMIT_S,
    call,
    collect,
    is_alive,
    message,
    poll_until,
    run_all,
    run_one,
    wait_until,
)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", ["exited with code 3"]),
        ("segfault", ["SIGSEGV"]),
        ("sigkill", ["SIGKILL", "memory limit"]),
        ("sigterm", ["SIGTERM"]),
        ("close", ["worker process"]),
    ],
)
def test_a_task_that_ends_its_worker_is_the_only_one_that_pays(
    executor: LocalExecutor, tmp_path: Path, how: str, words: list[str]
) -> None:
    run_all(executor, [message(f"w{i}", call("mark", str(tmp_path), f"w{i}"), template="t") for i in range(40)])
    tasks = [message(f"t{i}", call("mark", str(tmp_path), f"t{i}"), template="t") for i in range(60)]
    tasks[25] = message("t25", call("end_process", str(tmp_path), how), template="t")

    done = run_all(executor, tasks)

    assert [name for name, completion in done.items() if not completion.success] == ["t25"]
    assert done["t25"].kind is FailureKind.USER
    assert all(word in (done["t25"].error or "") for word in words), done["t25"].error
    counts = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert set(counts.values()) == {"ran\n"}
    assert len(counts) == 100


def test_every_worker_can_die_again_and_again(executor: LocalExecutor, tmp_path: Path) -> None:
    tasks = [message(f"t{i}", call("end_process", str(tmp_path), "exit")) for i in range(6)]

    done = run_all(executor, tasks)

    assert {completion.kind for completion in done.values()} == {FailureKind.USER}
    assert (tmp_path / "exit").read_text() == "ran\n" * 6


def test_the_log_of_a_crash_has_the_stack(store: Store, executor: LocalExecutor, tmp_path: Path) -> None:
    run_one(executor, call("end_process", str(tmp_path), "segfault"))

    log = store.read_log("wf1", "task", "0.1").decode()
    assert "about to crash" in log
    assert "local_steps.py" in log


def test_an_idle_worker_that_is_killed_is_replaced(one_slot: LocalExecutor) -> None:
    run_one(one_slot, call("echo", 1))
    pid = one_slot._crew.members[0].process.pid

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))

    assert run_one(one_slot, call("echo", 2)).output_ref == "2"


def test_a_command_below_a_worker_that_dies_is_killed(one_slot: LocalExecutor, tmp_path: Path) -> None:
    one_slot.submit([message("t", {"cmd": f"echo $$ > {tmp_path}/pid; sleep 1000"})])
    poll_until(one_slot, (tmp_path / "pid").exists)
    wait_until(lambda: (tmp_path / "pid").read_text())

    one_slot._crew.members[0].signal(signal.SIGKILL)
    ended, _ = collect(one_slot, lambda ended, _: bool(ended))

    assert "SIGKILL" in (ended[0].error or "")
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_a_task_that_forks_is_reported_once(executor: LocalExecutor, tmp_path: Path) -> None:
    done = run_all(executor, [message(f"t{i}", call("fork_and_return", str(tmp_path))) for i in range(4)])

    assert {completion.output_ref for completion in done.values()} == {'"original"'}


def test_a_kill_by_the_kernel_for_memory_is_a_failure_of_that_kind() -> None:
    class Killed(OomWatch):
        def has_killed(self) -> bool:
            return True

    text, kind = describe_exit(-signal.SIGKILL, Killed())

    assert kind is FailureKind.MEMORY
    assert "out of memory" in text


_HOST = """
    import os, sys, time
    from dagkit.executors.local import LocalExecutor
    from dagkit.stores import open_store
    from executors.driving import call, message

    folder = sys.argv[1]
    executor = LocalExecutor(open_store(folder + "/store"), slots=3)
    executor.submit([
        message("shell", {"cmd": f"echo $$ > {folder}/shell; sleep 1000 & echo $! > {folder}/inner; wait"}),
        message("call", call("start_sleeper_and_hang", folder + "/call")),
        message("busy", call("burn_forever", folder + "/busy")),
    ])
    if sys.argv[2] == "forked" and (copy := os.fork()) == 0:
        time.sleep(60)  # holds the pipes to the workers open
        os._exit(0)
    if sys.argv[2] == "forked":
        open(folder + "/copy", "w").write(str(copy))
    while True:
        executor.poll(0.1)
"""


@pytest.mark.parametrize(
    ("ending", "how"), [(signal.SIGKILL, "alone"), (signal.SIGTERM, "alone"), (signal.SIGKILL, "forked")]
)
def test_an_executor_that_is_killed_leaves_no_process(tmp_path: Path, ending: signal.Signals, how: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    host = subprocess.Popen([sys.executable, "-c", textwrap.dedent(_HOST), str(tmp_path), how], env=environment)
    files = [tmp_path / name for name in ("shell", "inner", "call", "call.sleeper", "busy")]
    copy = tmp_path / "copy"
    try:
        wait_until(lambda: how == "alone" or (copy.exists() and copy.read_text()))
        wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(map(is_alive, pids))
    finally:
        host.send_signal(ending)
        host.wait(LIMIT_S)

    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not list((tmp_path / "tmp").iterdir()))
    wait_until(lambda: not list((tmp_path / "store").rglob(".open-*")))
    if how == "forked":
        os.kill(int(copy.read_text()), signal.SIGKILL)
