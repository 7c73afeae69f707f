"""The local executor alone: no engine, no saves. Each figure beside a bare reference measured in the same run.

    python benchmarks/bench_local.py [--repeat 5]

`map`: 10,000 no-op calls on two worker processes, beside ProcessPoolExecutor.map(chunksize=1); with the processor time
of this process per task. `hop`: submit one call, poll its completion, beside one byte there and back through two pipes.
`shell`: 200 times `true` on two slots, beside subprocess.Popen two at a time. Figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from dagkit.executors.local import LocalExecutor
from dagkit.model.messages import Completion, TaskMessage
from dagkit.stores import open_store

SLOTS = 2


def message(task: str, kwargs: dict[str, Any], upstream: dict[str, str | None] | None = None) -> TaskMessage:
    return TaskMessage("bench", task, 1, 0, "default", kwargs, upstream or {})


def noop(k: int) -> dict[str, Any]:
    return {"cmd": "dagkit exec", "call": {"function": "operator:pos", "args": [k]}}


def run_all(executor: LocalExecutor, messages: list[TaskMessage]) -> None:
    at = done = 0
    while done < len(messages):
        at += executor.submit(messages[at : at + executor.capacity()])
        reports = executor.poll(10)
        done += sum(isinstance(report, Completion) for report in reports)
        if not all(report.success for report in reports if isinstance(report, Completion)):
            raise SystemExit("a task failed")


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def bench_map(executor: LocalExecutor, pool: ProcessPoolExecutor, n: int = 10_000) -> dict[str, float]:
    messages = [message(f"t{k}", noop(k)) for k in range(n)]
    processor = time.process_time()
    ours = seconds(lambda: run_all(executor, messages))
    processor = time.process_time() - processor
    theirs = seconds(lambda: list(pool.map(abs, range(n), chunksize=1)))
    return {
        "tasks/s": n / ours,
        "pool tasks/s": n / theirs,
        "ratio": theirs / ours,
        "parent us/task": processor / n * 1e6,
    }


def bench_hop(executor: LocalExecutor, n: int = 1000) -> dict[str, float]:
    def hop(k: int) -> None:
        run_all(executor, [message(f"hop-{k}", noop(k), {f"hop-{k - 1}": str(k - 1)})])

    hops = [seconds(lambda k=k: hop(k)) for k in range(n)]  # type: ignore[misc]
    ours, theirs = statistics.median(hops), round_trip(n)
    return {"hop us": ours * 1e6, "pipe us": theirs * 1e6, "ratio": ours / theirs}


def round_trip(n: int) -> float:
    """Median seconds for one byte to a process that sends it back."""
    code = "import os\nwhile data := os.read(0, 1): os.write(1, data)"
    echo = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert echo.stdin is not None
    assert echo.stdout is not None
    there, back = echo.stdin.fileno(), echo.stdout.fileno()

    def trip() -> None:
        os.write(there, b"x")
        os.read(back, 1)

    trip()
    times = [seconds(trip) for _ in range(n)]
    echo.stdin.close()
    echo.wait()
    echo.stdout.close()
    return statistics.median(times)


def bench_shell(executor: LocalExecutor, n: int = 200) -> dict[str, float]:
    messages = [message(f"s{k}", {"cmd": "true"}) for k in range(n)]
    ours, theirs = seconds(lambda: run_all(executor, messages)), seconds(lambda: bare_popen(n))
    return {"ms/task": ours / n * 1e3, "popen ms": theirs / n * 1e3, "ratio": ours / theirs}


def bare_popen(n: int) -> None:
    """`true` through a shell, two at a time."""
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(n):
        running.append(subprocess.Popen("true", shell=True))
        if len(running) == SLOTS:
            running.pop(0).wait()
    for process in running:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(SLOTS) as pool:
        store = open_store(folder)
        with LocalExecutor(store, slots=SLOTS) as executor:
            run_all(executor, [message(f"warm-{k}", noop(k)) for k in range(500)])
            for _ in range(repeat):
                found.setdefault("map", []).append(bench_map(executor, pool))
                found.setdefault("hop", []).append(bench_hop(executor))
                found.setdefault("shell", []).append(bench_shell(executor))
        store.close()
    for name, rounds in found.items():
        figures = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        print(f"{name:6s}" + "".join(f"  {key} {value:,.2f}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
