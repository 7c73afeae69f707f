"""Everything a task writes is in its own log."""

from __future__ import annotations

from pathlib import Path

from dagkit.executors.local import LocalExecutor
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore
from executors.driving import call, collect, message, poll_until, run_all, run_one


def log_of(store: Store, task: str = "task", attempt: str = "0.1") -> str:
    return store.read_log("wf1", task, attempt).decode()


WRITTEN = ["from print", "from logging", "from write", "from a subprocess", "and its stderr", "without newline"]


def test_print_logging_c_level_writes_and_subprocesses_are_in_the_log(store: Store, executor: LocalExecutor) -> None:
    run_one(executor, call("write_everywhere"))

    assert log_of(store).splitlines() == WRITTEN


def test_logs_of_a_store_in_memory_are_kept_there() -> None:
    store = MemoryStore()
    with LocalExecutor(store, slots=1) as executor:
        run_all(executor, [message("call", call("write_everywhere")), message("shell", {"cmd": "echo hello"})])

    assert log_of(store, "call").splitlines() == WRITTEN
    assert log_of(store, "shell") == "hello\n"


def test_every_task_owns_its_lines_and_a_silent_one_has_no_log(store: Store, one_slot: LocalExecutor) -> None:
    tasks = []
    for i in range(30):
        tasks.append(message(f"loud-{i}", {"cmd": f"echo {i}; echo {i} >&2"}))
        tasks.append(message(f"quiet-{i}", call("echo", i)))

    run_all(one_slot, tasks)

    assert [log_of(store, f"loud-{i}") for i in range(30)] == [f"{i}\n{i}\n" for i in range(30)]
    path = store.log_path("wf1", "quiet-1", "0.1")
    assert path is not None
    assert sorted(file.name for file in path.parent.iterdir()) == sorted(f"loud-{i}.0.1.log" for i in range(30))


def test_the_log_grows_for_readers_while_the_task_runs(store: Store, executor: LocalExecutor, tmp_path: Path) -> None:
    executor.submit([message("task", call("print_and_wait", str(tmp_path / "go")))])
    elsewhere = open_store(tmp_path / "store")

    poll_until(executor, lambda: log_of(elsewhere) == "working\n")
    (tmp_path / "go").touch()
    collect(executor, lambda ended, _: bool(ended))

    assert log_of(elsewhere) == "working\ndone\n"
    elsewhere.close()


def test_a_long_silent_task_leaves_no_log(store: Store, executor: LocalExecutor, tmp_path: Path) -> None:
    path = store.log_path("wf1", "task", "0.1")
    assert path is not None
    executor.submit([message("task", call("wait_for", str(tmp_path / "go"), 20))])
    poll_until(executor, path.exists)

    (tmp_path / "go").touch()
    collect(executor, lambda ended, _: bool(ended))
    run_one(executor, call("write_everywhere"), attempt=2)

    assert not path.exists()
    assert log_of(store, attempt="0.2").splitlines() == WRITTEN


def test_a_task_that_spoils_the_streams_spoils_only_its_own(store: Store, one_slot: LocalExecutor) -> None:
    run_all(one_slot, [message("spoiler", call("spoil_streams")), message("next", call("write_everywhere"))])

    assert log_of(store, "spoiler").startswith("before")
    assert log_of(store, "next").splitlines() == WRITTEN


def test_what_a_task_left_running_writes_into_its_log(store: Store, one_slot: LocalExecutor, tmp_path: Path) -> None:
    command = f"(while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo late) & echo started"
    run_one(one_slot, call("shell", command))
    run_all(one_slot, [message("next", {"cmd": "echo next"})])
    (tmp_path / "go").touch()
    poll_until(one_slot, lambda: "late" in log_of(store))

    assert log_of(store, "next") == "next\n"


def test_a_log_folder_on_another_file_system_works(store: Store) -> None:
    """Renaming fails there; the log is copied."""
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir():
        return
    with LocalExecutor(store, slots=1, log_dir=elsewhere / "dagkit-test-logs") as executor:
        run_all(executor, [message("a", {"cmd": "echo a"}), message("b", {"cmd": "echo b"})])

    assert (log_of(store, "a"), log_of(store, "b")) == ("a\n", "b\n")
    (elsewhere / "dagkit-test-logs").rmdir()
