"""A map of no-op tasks by dagkit and by peers, in one run: joblib, executorlib (block allocation), Parsl (HTEX).

    pip install -e '.[bench]'; python benchmarks/bench_peers.py [--repeat 3]

Each pool has two workers and is started before the clock is. A peer that is not installed or does not start is named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from dagkit import task, workflow

SLOTS = 2


@task
def nothing(k: int) -> int:
    return k


@task
def pause(k: int) -> None:
    time.sleep(0.1)


@workflow
def pauses() -> Any:
    """Has every worker started."""
    return pause.map(range(2 * SLOTS))


@workflow
def mapped(n: int) -> Any:
    return nothing.map(range(n))


def plain(k: int) -> int:
    return k


def dagkit_rate(n: int) -> float:
    root = Path(tempfile.mkdtemp(prefix="dagkit-bench-"))
    try:
        store = str(root / ".dagkit")
        pauses().run(store=store, progress=False).result()

        started = time.perf_counter()
        assert mapped(n).run(store=store, progress=False).result() == list(range(n))
        return n / (time.perf_counter() - started)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def pool_rate(n: int) -> float:
    with ProcessPoolExecutor(SLOTS) as pool:
        list(pool.map(plain, range(10)))
        started = time.perf_counter()
        list(pool.map(plain, range(n), chunksize=1))
        return n / (time.perf_counter() - started)


def joblib_rate(n: int) -> float:
    from joblib import Parallel, delayed

    with Parallel(n_jobs=SLOTS) as pool:
        pool(delayed(plain)(k) for k in range(10))
        started = time.perf_counter()
        pool(delayed(plain)(k) for k in range(n))
        return n / (time.perf_counter() - started)


def executorlib_rate(n: int) -> float:
    from executorlib import SingleNodeExecutor

    with SingleNodeExecutor(max_workers=SLOTS, block_allocation=True) as pool:
        [pool.submit(plain, k).result() for k in range(4)]
        started = time.perf_counter()
        for future in [pool.submit(plain, k) for k in range(n)]:
            future.result()
        return n / (time.perf_counter() - started)


def parsl_rate(n: int) -> float:
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    # Parsl starts its interchange and its workers by name, also where the environment is not activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    root = tempfile.mkdtemp(prefix="parsl-bench-")
    provider = LocalProvider(init_blocks=1, max_blocks=1)
    executor = HighThroughputExecutor(max_workers_per_node=SLOTS, address="127.0.0.1", provider=provider)
    with parsl.load(Config(executors=[executor], run_dir=root)):
        app = parsl.python_app(plain)
        [app(k).result() for k in range(4)]
        started = time.perf_counter()
        for future in [app(k) for k in range(n)]:
            future.result()
        rate = n / (time.perf_counter() - started)
    shutil.rmtree(root, ignore_errors=True)
    return rate


PEERS: dict[str, tuple[Callable[[int], float], int]] = {
    "ProcessPoolExecutor": (pool_rate, 10_000),
    "joblib": (joblib_rate, 10_000),
    "executorlib": (executorlib_rate, 2_000),
    "parsl": (parsl_rate, 1_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("peers", nargs="*", default=list(PEERS))
    options = parser.parse_args()
    ours = statistics.median(dagkit_rate(10_000) for _ in range(options.repeat))
    print(json.dumps({"bench": "dagkit, durable", "tasks/s": round(ours)}))
    for name in options.peers:
        rate_of, n = PEERS[name]
        try:
            theirs = statistics.median(rate_of(n) for _ in range(options.repeat))
        except Exception as error:  # a peer that is not here must not spoil the others
            print(json.dumps({"bench": name, "error": f"{type(error).__name__}: {error}"}))
            continue
        print(json.dumps({"bench": name, "tasks/s": round(theirs), "dagkit is times": round(ours / theirs, 2)}))


if __name__ == "__main__":
    main()
