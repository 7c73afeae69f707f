"""Whole runs on the local target, beside ProcessPoolExecutor and bare subprocess.Popen in the same run.

    python benchmarks/bench_run.py [map chain layers shell fanin] [--repeat 5]

Each figure is the median of several runs; the reference runs between them, under the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from dagkit import shell, task, workflow

SLOTS = 2
ROOT = Path(tempfile.mkdtemp(prefix="dagkit-bench-"))


@task
def nothing(k: int) -> int:
    return k


@task
def successor(k: int) -> int:
    return k + 1


@task
def pause(k: int) -> None:
    time.sleep(0.1)


@task
def merge(values: list[int]) -> int:
    return len(values)


def nothing_plain(k: int) -> int:
    return k


def timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def whole_run(build: Callable[[], Any], check: Callable[[Any], None]) -> float:
    """Seconds from the first traced call to the last value read, with a store on disk."""

    def whole() -> None:
        run = build().run(store=str(ROOT / ".dagkit"), progress=False)
        check(run.result())

    return timed(whole)


def warm_up() -> None:
    """Start the workers, as the references start theirs."""

    @workflow
    def pauses() -> Any:
        return [pause(k) for k in range(2 * SLOTS)]

    pauses().run(store=str(ROOT / ".dagkit"), progress=False).result()


def expect(value: Any) -> Callable[[Any], None]:
    def check(found: Any) -> None:
        if found != value:
            raise SystemExit(f"wrong result: {str(found)[:80]}")

    return check


def bench_map(n: int = 10_000) -> dict[str, float]:
    @workflow
    def mapped() -> Any:
        return nothing.map(range(n))

    warm_up()
    ours = whole_run(mapped, expect(list(range(n))))
    flow = mapped()
    compiled = timed(lambda: flow.spec)
    with ProcessPoolExecutor(SLOTS) as pool:
        list(pool.map(nothing_plain, range(10)))
        reference = timed(lambda: list(pool.map(nothing_plain, range(n), chunksize=1)))
    return {
        "tasks/s": n / ours,
        "tasks/s once compiled": n / (ours - compiled),
        "ProcessPoolExecutor tasks/s": n / reference,
        "ratio": reference / ours,
    }


def bench_chain(n: int = 1_000) -> dict[str, float]:
    @workflow
    def chain() -> Any:
        value: Any = 0
        for _ in range(n):
            value = successor(value)
        return value

    warm_up()
    ours = whole_run(chain, expect(n))
    with ProcessPoolExecutor(SLOTS) as pool:
        list(pool.map(nothing_plain, range(10)))

        def hops() -> None:
            for k in range(n):
                pool.submit(nothing_plain, k).result()

        reference = timed(hops)
    return {"ms/hop": ours / n * 1e3, "ProcessPoolExecutor ms/hop": reference / n * 1e3, "ratio": reference / ours}


def bench_layers(layers: int = 10, width: int = 100, parents: int = 10) -> dict[str, float]:
    @workflow
    def lattice() -> Any:
        level = [nothing(k) for k in range(width)]
        for _ in range(layers - 1):
            level = [merge([level[(k + j) % width] for j in range(parents)]) for k in range(width)]
        return level

    warm_up()
    ours = whole_run(lattice, expect([parents] * width))
    return {"tasks/s": layers * width / ours}


def bench_fanin(n: int = 20_000) -> dict[str, float]:
    def build(size: int) -> Callable[[], Any]:
        @workflow
        def fan() -> Any:
            return merge(nothing.map(range(size)))

        return fan

    warm_up()
    small = whole_run(build(n // 10), expect(n // 10)) / (n // 10)
    large = whole_run(build(n), expect(n)) / n
    return {"us/task": large * 1e6, "ratio to a tenth": large / small}


def bench_shell(n: int = 200) -> dict[str, float]:
    @workflow
    def commands() -> None:
        for k in range(n):
            shell("true", name=f"c{k}")()

    warm_up()
    ours = whole_run(commands, lambda found: None)

    def bare() -> None:
        running: list[subprocess.Popen[bytes]] = []
        for _ in range(n):
            if len(running) == SLOTS:
                running.pop(0).wait()
            running.append(subprocess.Popen("true", shell=True))
        for process in running:
            process.wait()

    reference = timed(bare)
    return {"ms/task": ours / n * 1e3, "Popen ms/task": reference / n * 1e3, "times Popen": ours / reference}


BENCHES: dict[str, Callable[[], dict[str, float]]] = {
    "map": bench_map,
    "chain": bench_chain,
    "layers": bench_layers,
    "fanin": bench_fanin,
    "shell": bench_shell,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BENCHES))
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("DAGKIT_SLOTS", str(SLOTS))
    try:
        measure(options.names, options.repeat)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)


def measure(names: list[str], repeat: int) -> None:
    for name in names:
        rounds = [BENCHES[name]() for _ in range(repeat)]
        medians = {key: round(statistics.median(r[key] for r in rounds), 3) for key in rounds[0]}
        print(json.dumps({"bench": name, "repeat": repeat, **medians}))


if __name__ == "__main__":
    main()
