"""Feeds an executor and collects what it reports, with a deadline on every wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dagkit.executors.local import LocalExecutor
from dagkit.model.messages import Completion, Started, TaskMessage

LIMIT_S = 30.0


def call(function: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """kwargs of a task that calls a function of `local_steps`."""
    reference = f"executors.local_steps:{function}"
    return {"cmd": "dagkit exec", "call": {"function": reference, "args": list(args), "kwargs": kwargs}}


def message(
    task: str, kwargs: dict[str, Any], *, upstream: dict[str, str | None] | None = None, **more: Any
) -> TaskMessage:
    fields: dict[str, Any] = {"attempt": 1, "generation": 0, "queue": "default", **more}
    return TaskMessage("wf1", task, kwargs=kwargs, upstream=upstream or {}, **fields)


def collect(
    executor: LocalExecutor, until: Callable[[list[Completion], list[Started]], bool]
) -> tuple[list[Completion], list[Started]]:
    """Poll until the condition on what was reported holds."""
    ended: list[Completion] = []
    begun: list[Started] = []
    deadline = time.monotonic() + LIMIT_S
    while not until(ended, begun):
        assert time.monotonic() < deadline, f"reported so far: {ended} {begun}"
        for report in executor.poll(0.5):
            (ended if isinstance(report, Completion) else begun).append(report)  # type: ignore[arg-type]
    return ended, begun


def run_all(executor: LocalExecutor, messages: Iterable[TaskMessage]) -> dict[str, Completion]:
    """Run messages to their end, as fast as the executor takes them; fails if one is reported twice."""
    rest = list(messages)
    names = {one.task for one in rest}
    done: dict[str, Completion] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(done) < len(names):
        assert time.monotonic() < deadline, f"missing: {sorted(names - set(done))[:10]}"
        del rest[: executor.submit(rest)]
        for report in executor.poll(0.5):
            if isinstance(report, Completion):
                assert report.task not in done, f"reported twice: {report}"
                done[report.task] = report
    return done


def run_one(executor: LocalExecutor, kwargs: dict[str, Any], **more: Any) -> Completion:
    return run_all(executor, [message("task", kwargs, **more)])["task"]


def wait_until(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def poll_until(executor: LocalExecutor, condition: Callable[[], Any]) -> list[Completion | Started]:
    """Keep the executor going until a condition outside it holds; returns what it reported meanwhile."""
    found: list[Completion | Started] = []
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        found += executor.poll(0.01)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def open_files() -> set[str]:
    return {entry.name for entry in os.scandir("/proc/self/fd")}
