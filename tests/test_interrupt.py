"""Ctrl-C, clock jumps and stores that fail, as the person at the prompt meets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dagkit import task, workflow
from dagkit.errors import BackendError, CorruptState, NewerFormat
from dagkit.stores import open_store

SCRIPT = """
    import sys, time
    from dagkit import task, workflow

    @task
    def quick(k): return k

    @task
    def slow(k):
        print("slow began", flush=True)
        time.sleep(60)

    @workflow
    def both():
        slow(quick(1))

    both().run(store=sys.argv[1], id="stopped", progress=False)
"""


def test_ctrl_c_stops_the_workers_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    import psutil

    store = str(tmp_path / ".dagkit")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen([sys.executable, str(script), store], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: state(store, "slow") == "running")
    family = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)

    assert process.returncode != 0
    assert "1 of 2 tasks of both have ended and are saved" in errors
    assert "dagkit.attach('stopped')" in errors
    assert "Traceback" not in errors.replace("KeyboardInterrupt", "").split("Stopped")[0]
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert state(store, "slow") == "ready"
    assert state(store, "quick") == "completed"


@task
def one() -> int:
    return 1


@task
def plus(x: int) -> int:
    return x + 1


@workflow
def pair() -> object:
    return plus(one())


def test_a_jump_of_the_wall_clock_during_a_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    jumps = iter([0.0, 0.0, 0.0, 86_400.0, -86_400.0, 86_400.0])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps, -3_600.0))

    assert pair().run(store=str(tmp_path / ".dagkit"), progress=False).result(timeout=30) == 2


def test_a_file_in_place_of_the_store_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / ".dagkit").write_text("not a folder")

    with pytest.raises(BackendError, match=r"\.dagkit"):
        pair().run(store=str(tmp_path / ".dagkit"), progress=False)


def test_a_damaged_database_is_one_clear_error_and_is_left_as_it_was(tmp_path: Path) -> None:
    store = tmp_path / ".dagkit"
    pair().run(store=str(store), progress=False, id="first").result()
    database = store / "state.db"
    for extra in store.glob("state.db-*"):
        extra.unlink()
    damage = b"\x00garbage\xff" * 4096
    database.write_bytes(damage)

    with pytest.raises(CorruptState, match=r"state\.db"):
        pair().run(store=str(store), progress=False)
    assert database.read_bytes() == damage


def test_a_store_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    import sqlite3

    store = tmp_path / ".dagkit"
    pair().run(store=str(store), progress=False).result()
    connection = sqlite3.connect(store / "state.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    with pytest.raises(NewerFormat, match="later"):
        pair().run(store=str(store), progress=False)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk_stops_the_run_with_one_clear_error_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=True)
    try:
        run_on_a_full_disk(disk)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def run_on_a_full_disk(disk: Path) -> None:
    ballast = disk / "ballast"

    @task
    def step(k: int, before: int, path: str) -> int:
        if k == 5 and not Path(path).exists():
            watched, deadline = open_store(str(Path(path).parent / ".dagkit")), time.monotonic() + 20
            while not watched.row("full").counts.completed and time.monotonic() < deadline:
                time.sleep(0.01)  # until something has been saved
            watched.close()
            with open(path, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError:
                    pass
        return k

    @workflow
    def filling() -> object:
        value: object = 0
        for k in range(200):
            value = step(k, value, str(ballast))
        return value

    store = str(disk / ".dagkit")
    with pytest.raises(BackendError, match="full"):
        filling().run(store=store, progress=False, id="full")
    opened = open_store(store)
    before = opened.row("full").counts
    opened.close()

    ballast.write_bytes(b"")
    run = filling().run(store=store, progress=False, id="full", resume=True)

    assert 0 < before.completed < 200
    assert run.result() == 199


def state(store: str, name: str) -> str:
    opened = open_store(store)
    try:
        if not opened.rows():
            return ""
        return str(opened.task_entries("stopped").get(name, {}).get("state", "pending"))
    except BackendError:
        return ""
    finally:
        opened.close()


def wait_for(condition: object, deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
