"""Servers that a test session starts: on free ports of the loopback, gone with the session however that ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["die_with_parent", "free_ports", "is_listening", "require", "wait_until"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """For `preexec_fn`: the kernel sends this signal when the parent ends (prctl(2)). Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


def require(program: str, *places: Path) -> str:
    """Path of a program in one of `places` or on PATH. Missing, it fails the test in CI and skips it elsewhere."""
    for place in places:
        if os.access(place / program, os.X_OK):
            return str(place / program)
    if found := shutil.which(program):
        return found
    text = f"{program} is not installed; `.ci/services` installs it"
    if os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(holds: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Return when `holds()` is true; fail, saying `what` did not happen, after the time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)
