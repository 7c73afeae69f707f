"""Stopping attempts, and the executor as a whole."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit.executors.local import LocalExecutor
from dagkit.model.messages import AttemptKey, Completion
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store
from executors.driving import LIMIT_S, call, collect, is_alive, message, poll_until, run_all, run_one, wait_until


def outcomes(ended: list[Completion]) -> dict[str, FailureKind | None]:
    return {completion.task: completion.kind for completion in ended}


def test_a_running_call_is_stopped_and_may_clean_up(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    one = message("hang", call("hang_with_cleanup", str(path)))
    executor.submit([one])
    poll_until(executor, lambda: path.exists() and path.read_text())

    executor.cancel([one.key], FailureKind.CANCELLED)
    ended, _ = collect(executor, lambda ended, _: bool(ended))

    assert outcomes(ended) == {"hang": FailureKind.CANCELLED}
    assert Path(f"{path}.cleaned").exists()
    wait_until(lambda: not is_alive(int(path.read_text())))


def test_a_call_that_ignores_the_signal_is_killed(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    one = message("hang", call("ignore_sigterm", str(path)), timeout_s=7)
    executor.submit([one])
    poll_until(executor, lambda: path.exists() and path.read_text())

    executor.cancel([one.key], FailureKind.TIMEOUT)
    ended, _ = collect(executor, lambda ended, _: bool(ended))

    assert outcomes(ended) == {"hang": FailureKind.TIMEOUT}
    assert ended[0].error == "timed out after 7 s"


def test_what_a_stopped_call_has_started_goes_with_it(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    one = message("hang", call("start_sleeper_and_hang", str(path)))
    executor.submit([one])
    poll_until(executor, lambda: path.exists() and path.read_text())
    sleeper = int(Path(f"{path}.sleeper").read_text())

    executor.cancel([one.key], FailureKind.CANCELLED)
    collect(executor, lambda ended, _: bool(ended))

    poll_until(executor, lambda: not is_alive(sleeper))


@pytest.mark.parametrize(
    "command", ["sleep 1000", "trap '' TERM; sleep 1000 & wait; sleep 1000", "trap 'exit 0' TERM; sleep 1000 & wait"]
)
def test_a_command_is_stopped_with_its_group_and_its_worker_goes_on(
    one_slot: LocalExecutor, tmp_path: Path, command: str
) -> None:
    one = message("hang", {"cmd": f"echo $$ > {tmp_path}/pid; {command}"})
    one_slot.submit([one])
    poll_until(one_slot, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    worker = one_slot._crew.members[0].process.pid

    one_slot.cancel([one.key], FailureKind.CANCELLED)
    ended, _ = collect(one_slot, lambda ended, _: bool(ended))

    assert outcomes(ended) == {"hang": FailureKind.CANCELLED}
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    assert run_one(one_slot, {"cmd": "true"}).success
    assert one_slot._crew.members[0].process.pid == worker


def test_other_tasks_do_not_notice(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    one = message("hang", call("announce_and_hang", str(path)))
    executor.submit([one, message("other", call("mark_and_pause", str(tmp_path), "other", 0.5))])
    poll_until(executor, lambda: path.exists() and path.read_text())

    executor.cancel([one.key], FailureKind.CANCELLED)
    ended, _ = collect(executor, lambda ended, _: len(ended) == 2)

    assert outcomes(ended) == {"hang": FailureKind.CANCELLED, "other": None}
    assert (tmp_path / "other").read_text() == "ran\n"


def test_tasks_behind_a_stopped_one_are_run_elsewhere_or_dropped(one_slot: LocalExecutor, tmp_path: Path) -> None:
    """The tasks look alike to the executor: the short ones before made it hand out the long one in a batch."""
    run_all(one_slot, [message(f"w{i}", call("mark", str(tmp_path), f"w{i}"), template="t") for i in range(300)])
    path = tmp_path / "pid"
    hang = message("hang", call("announce_and_hang", str(path)), template="t")
    behind = [message(f"t{i}", call("mark", str(tmp_path), f"t{i}"), template="t") for i in range(10)]
    behind = behind[: one_slot.submit([hang, *behind]) - 1]

    one_slot.cancel([hang.key, behind[3].key], FailureKind.CANCELLED)
    ended, _ = collect(one_slot, lambda ended, _: len(ended) == 1 + len(behind))

    expected = {one.task: None for one in behind} | {"hang": FailureKind.CANCELLED, "t3": FailureKind.CANCELLED}
    assert outcomes(ended) == expected
    assert not (tmp_path / "t3").exists()
    assert all((tmp_path / one.task).read_text() == "ran\n" for one in behind if one.task != "t3")


def test_a_task_that_waits_is_dropped(one_slot: LocalExecutor, tmp_path: Path) -> None:
    run_all(one_slot, [message(f"w{i}", call("mark", str(tmp_path), f"w{i}"), template="t") for i in range(300)])
    path = tmp_path / "go"
    waiting = [message(f"t{i}", call("mark", str(tmp_path), f"t{i}"), template="other") for i in range(3)]
    one_slot.submit([message("first", call("wait_for", str(path), 20)), *waiting])

    one_slot.cancel([one.key for one in waiting], FailureKind.CANCELLED)
    path.touch()
    ended, _ = collect(one_slot, lambda ended, _: len(ended) == 4)

    assert outcomes(ended) == {"first": None, **{f"t{i}": FailureKind.CANCELLED for i in range(3)}}
    assert not any((tmp_path / f"t{i}").exists() for i in range(3))


def test_unknown_attempts_are_ignored(executor: LocalExecutor) -> None:
    executor.cancel([AttemptKey("wf1", "nobody", 0, 1)], FailureKind.CANCELLED)

    assert run_one(executor, call("echo", 1)).success


def test_stopping_right_after_the_submit_is_reported_once(executor: LocalExecutor, tmp_path: Path) -> None:
    for i in range(10):
        one = message(f"t{i}", {"cmd": "sleep 1000"} if i % 2 else call("announce_and_hang", str(tmp_path / f"{i}")))
        executor.submit([one])
        executor.cancel([one.key], FailureKind.CANCELLED)
        ended, _ = collect(executor, lambda ended, _: bool(ended))

        assert outcomes(ended) == {f"t{i}": FailureKind.CANCELLED}


def test_close_lets_what_runs_end(store: Store, tmp_path: Path) -> None:
    local = LocalExecutor(store, slots=1)
    local.submit([message("t", {"cmd": f"touch {tmp_path}/begun; sleep 0.3; touch {tmp_path}/ended"})])
    poll_until(local, (tmp_path / "begun").exists)

    local.close(LIMIT_S)

    assert (tmp_path / "ended").exists()


def test_close_kills_what_does_not_end(store: Store, tmp_path: Path) -> None:
    local = LocalExecutor(store, slots=2)
    local.submit(
        [
            message("call", call("start_sleeper_and_hang", str(tmp_path / "call"))),
            message("shell", {"cmd": f"echo $$ > {tmp_path}/shell; trap '' TERM; sleep 1000"}),
        ]
    )
    files = [tmp_path / name for name in ("call", "call.sleeper", "shell")]
    poll_until(local, lambda: all(file.exists() and file.read_text().strip() for file in files))

    begin = time.monotonic()
    local.close(0.1)

    assert time.monotonic() - begin < 5
    wait_until(lambda: not any(is_alive(int(file.read_text())) for file in files))


def test_a_program_that_never_closes_ends_at_once(tmp_path: Path) -> None:
    program = """
        import sys
        from dagkit.executors.local import LocalExecutor
        from dagkit.stores import open_store

        sys.path.insert(0, sys.argv[2])
        from executors.driving import call, message

        executor = LocalExecutor(open_store(sys.argv[1]), slots=2)
        executor.submit([message("t", call("echo", 1)), message("s", {"cmd": "sleep 1000"})])
        executor.poll(5)
    """
    tests = str(Path(__file__).parent.parent)

    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path), tests], check=True, timeout=LIMIT_S)

    assert time.monotonic() - begin < 10


@pytest.fixture
def patient(store: Store) -> Iterator[LocalExecutor]:
    """One that gives a stopped task all the time it wants, unless the attempt may be running elsewhere."""
    with LocalExecutor(store, slots=2, kill_timeout_s=1000.0) as local:
        yield local


def test_an_attempt_whose_lock_was_lost_is_killed_at_once(patient: LocalExecutor, tmp_path: Path) -> None:
    """Another worker may have begun the same attempt: a call that ignores SIGTERM would run beside it for minutes."""
    path, other = tmp_path / "pid", tmp_path / "shell.pid"
    one = message("hang", call("ignore_sigterm", str(path)))
    two = message("stubborn", {"cmd": f"trap '' TERM; echo $$ > {other}; while :; do sleep 0.05; done"})
    patient.submit([one, two])
    poll_until(patient, lambda: all(p.exists() and p.read_text() for p in (path, other)))

    patient.cancel([one.key, two.key], FailureKind.LOST)
    ended, _ = collect(patient, lambda ended, _: len(ended) == 2)

    assert outcomes(ended) == {"hang": FailureKind.LOST, "stubborn": FailureKind.LOST}
    wait_until(lambda: not any(is_alive(int(p.read_text())) for p in (path, other)))


def test_a_lost_attempt_may_be_given_time_to_clean_up(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    one = message("hang", call("hang_with_cleanup", str(path)))
    with LocalExecutor(store, slots=1, lost_kill_timeout_s=1000.0) as executor:
        executor.submit([one])
        poll_until(executor, lambda: path.exists() and path.read_text())

        executor.cancel([one.key], FailureKind.LOST)
        collect(executor, lambda ended, _: bool(ended))

    assert Path(f"{path}.cleaned").exists()
