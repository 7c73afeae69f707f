from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dagkit.runtime import shell
from dagkit.runtime.outcome import Failure, Outcome


def run(text: str, cwd: Path | None = None, command: shell.Command | None = None) -> Outcome:
    place = None if cwd is None else str(cwd)
    return shell.run(text, dict(os.environ), place, command or shell.Command())


@pytest.mark.parametrize(
    ("text", "exit_code", "signal", "words"),
    [
        ("true", 0, None, []),
        ("exit 7", 7, None, ["exit code 7"]),
        ("/no/such/program", 127, None, ["127", "not found"]),
        ("exit 126", 126, None, ["126", "not executable"]),
        ("kill -KILL $$", None, "SIGKILL", ["SIGKILL"]),
        ("sh -c 'kill -SEGV $$'; exit $?", 139, None, ["139", "SIGSEGV"]),
    ],
)
def test_how_a_command_ended(text: str, exit_code: int | None, signal: str | None, words: list[str]) -> None:
    outcome = run(text)

    assert (outcome.exit_code, outcome.signal) == (exit_code, signal)
    assert (outcome.error is None) is (exit_code == 0)
    assert all(word in (outcome.error or "") for word in words)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"cmd": ["true"]},
        {"cmd": " \n"},
        {"cmd": "a\0b"},
        {"cmd": "true", "env": ["A=1"]},
        {"cmd": "true", "env": {"A": 1}},
        {"cmd": "true", "env": {"A=B": "1"}},
        {"cmd": "true", "env": {"": "1"}},
        {"cmd": "true", "env": {"A": "\0"}},
        {"cmd": "true", "cwd": 5},
    ],
)
def test_what_is_no_command_is_a_config_failure(kwargs: dict[str, Any]) -> None:
    with pytest.raises(Failure) as caught:
        shell.check(kwargs)

    assert caught.value.kind == "config"


def test_other_keys_are_carried_and_not_used() -> None:
    assert shell.check({"cmd": "true", "note": 1, "env": None}) == ("true", {}, None)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="nowhere"):
        run("true", tmp_path / "nowhere")


def test_a_command_that_is_too_long_is_a_failure_of_its_own() -> None:
    with pytest.raises(Failure, match="Argument list too long"):
        run("true " + "x" * 3_000_000)


def test_a_stop_that_comes_before_the_start_is_not_lost() -> None:
    command = shell.Command()
    command.is_stopped = True

    outcome = run("sleep 1000", command=command)

    assert outcome.stopped
    assert outcome.signal == "SIGTERM"


def test_a_stop_from_another_thread_ends_the_whole_group(tmp_path: Path) -> None:
    command = shell.Command()
    found: list[Outcome] = []
    text = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    thread = threading.Thread(target=lambda: found.append(run(text, command=command)))
    thread.start()
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.005)

    command.stop()
    thread.join(20)

    assert found[0].stopped
    pid = (tmp_path / "pid").read_text().strip()
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert command.group is None
