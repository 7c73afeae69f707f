"""Task functions that the tests of the local executor run by reference: `executors.local_steps:<name>`."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dagkit import File, get_upstream_output, get_upstream_outputs, is_cancelled, set_output


def echo(value: Any = None) -> Any:
    return value


def add(a: Any, b: Any) -> Any:
    return a + b


def mark(folder: str, name: str) -> str:
    """Leave one line per execution, so that tests can count them."""
    with open(Path(folder, name), "a") as file:
        file.write("ran\n")
    return name


def mark_and_pause(folder: str, name: str, seconds: float) -> str:
    mark(folder, name)
    time.sleep(seconds)
    return name


def meet(folder: str, me: str, other: str) -> str:
    """Returns only if `other` runs at the same time."""
    Path(folder, me).touch()
    wait_for(Path(folder, other))
    return me


def wait_for(path: str | Path, limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not Path(path).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(str(path))
        time.sleep(0.002)


def announce_and_hang(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(1000)


def hang_with_cleanup(path: str) -> None:
    try:
        announce_and_hang(path)
    finally:
        Path(path + ".cleaned").touch()


def ignore_sigterm(path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce_and_hang(path)


def start_sleeper_and_hang(path: str) -> None:
    sleeper = subprocess.Popen(["sleep", "1000"])
    Path(path + ".sleeper").write_text(str(sleeper.pid))
    announce_and_hang(path)


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Quiet(BaseException):
    pass


def fail(kind: str = "value") -> None:
    errors: dict[str, BaseException] = {
        "value": ValueError("no such file: x.csv"),
        "exit": SystemExit(0),
        "interrupt": KeyboardInterrupt(),
        "memory": MemoryError("cannot allocate"),
        "base": Quiet("from below Exception"),
        "odd": Odd(),
        "lines": ValueError("first\nsecond"),
        "long": ValueError("x" * 1_000_000),
    }
    raise errors[kind]


async def fail_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("in a coroutine")


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def end_process(folder: str, how: str) -> None:
    mark(folder, how)
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        print("about to crash")
        ctypes.string_at(0)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    if how == "close":
        os.closerange(3, 256)


def fork_and_return(folder: str) -> str:
    """Both copies return; only one of them is the worker."""
    if os.fork() == 0:
        return "copy"
    os.wait()
    return "original"


def unpicklable() -> Any:
    return threading.Lock()


def write_everywhere() -> None:
    print("from print")
    logging.getLogger("steps").warning("from logging")
    os.write(1, b"from write\n")
    subprocess.run("echo from a subprocess; echo and its stderr >&2", shell=True, check=True)
    sys.stdout.write("without newline")


def print_and_wait(path: str) -> None:
    print("working")
    wait_for(path)
    print("done")


def spoil_streams() -> None:
    print("before")
    sys.stdout.close()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def spoil_surroundings(folder: str) -> None:
    os.environ["LEAKED"] = "yes"
    os.environ["JOBQ_WORKFLOW_ID"] = "another"
    del os.environ["HOME"]
    os.chdir(folder)


def surroundings() -> dict[str, Any]:
    names = ("LEAKED", "HOME", "JOBQ_WORKFLOW_ID", "JOBQ_WORKFLOW_TASK", "JOBQ_WORKFLOW_ATTEMPT", "JOBQ_TASK_ID")
    return {"cwd": str(Path.cwd()), "pid": os.getpid(), **{name: os.environ.get(name) for name in names}}


def parents() -> dict[str, Any]:
    return get_upstream_outputs()


def parents_in_a_loop(name: str) -> Any:
    async def inside() -> Any:
        return get_upstream_output(name)

    return asyncio.run(inside())


def parents_in_a_script() -> Any:
    code = "from dagkit import get_upstream_outputs as g; import json; print(json.dumps(g()))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def put_output(value: Any, result: Any = None) -> Any:
    set_output(value)
    return result


def cancelled_flag() -> bool:
    return is_cancelled()


def wait_until_cancelled() -> str:
    deadline = time.monotonic() + 20
    while not is_cancelled():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)
    return "noticed"


def change(items: list[Any]) -> int:
    items.append("changed")
    return len(items)


def make_file(path: str, content: str) -> dict[str, Any]:
    Path(path).write_text(content)
    return {"model": File(path)}


def read_file(value: dict[str, Any]) -> str:
    return value["model"].read_bytes().decode()


def grow(mebibytes: int) -> int:
    return len(bytearray(mebibytes << 20))


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def burn_forever(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    while True:
        pass


def shell(command: str) -> int:
    return subprocess.run(command, shell=True, check=True).returncode


def main_name() -> str:
    return str(sys.modules["__main__"].__name__)


def hold_memory(mib: int, seconds: float) -> int:
    held = bytearray(mib << 20)
    time.sleep(seconds)
    return len(held)
