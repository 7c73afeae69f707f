"""How long tracing, compiling, validating, planning and drawing take, for shapes that break slow tools.

    python benchmarks/bench_trace.py [--tasks 100000]

Each shape is measured once in this process. Times are CPU seconds, so that a busy
machine does not blur them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from dagkit import task, workflow
from dagkit.notebook import graph
from dagkit.workflow import Flow


@task
def item(x: int, seed: int = 0) -> int:
    return x + seed


@task
def step(x: int) -> int:
    return x + 1


@task
def join(items: list[int]) -> int:
    return sum(items)


@workflow
def flat(count: int) -> Any:
    return join(item.map(range(count)))


@workflow
def keywords(count: int) -> Any:
    item.partial(seed=3).map(x=range(count))


@workflow
def calls(count: int) -> Any:
    for index in range(count):
        item(index, seed=1)


@workflow
def named(count: int) -> Any:
    item.options(name="item-{x:06d}").map(range(count))


@workflow
def chain(count: int) -> Any:
    node = step(0)
    for _ in range(count - 1):
        node = step(node)
    return node


@workflow
def lattice(count: int) -> Any:
    width, height = 100, max(1, count // 100)
    layer = item.map(range(width))
    for _ in range(height - 1):
        layer = [join([layer[(column + offset) % width] for offset in range(10)]) for column in range(width)]
    return join(layer)


def measure(name: str, make: Callable[[int], Flow], count: int) -> dict[str, Any]:
    gc.collect()
    marks = [time.process_time()]
    flow = make(count)
    marks.append(time.process_time())
    spec = flow.spec
    marks.append(time.process_time())
    flow.plan()
    marks.append(time.process_time())
    graph.text(spec)
    marks.append(time.process_time())
    phases = [later - earlier for earlier, later in itertools.pairwise(marks)]
    trace, compiled, plan, draw = phases
    tasks = len(spec.tasks)
    return {
        "shape": name,
        "tasks": tasks,
        "trace_s": trace,
        "compile_and_validate_s": compiled,
        "plan_s": plan,
        "draw_s": draw,
        "us_per_task": (trace + compiled) / tasks * 1e6,
    }


def node_bytes(count: int) -> float:
    """Memory of one node of a map, its arguments included."""
    gc.collect()
    tracemalloc.start()
    nodes = item.map(range(count))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    shapes: list[tuple[str, Callable[[int], Flow], int]] = [
        ("map", flat, 1_000),
        ("map", flat, given.tasks),
        ("map by keyword", keywords, given.tasks),
        ("calls in a loop", calls, given.tasks),
        ("map with a name template", named, given.tasks),
        ("chain", chain, given.tasks // 10),
        ("lattice, 10 parents each", lattice, given.tasks // 100),
        ("lattice, 10 parents each", lattice, given.tasks // 10),
    ]
    measure("warm-up", flat, 10)
    if not given.json:
        print(f"{'shape':26} {'tasks':>8} {'trace':>8} {'compile':>8} {'plan':>8} {'draw':>8} {'us/task':>22}")
    for name, make, count in shapes:
        row = measure(name, make, count)
        if given.json:
            print(json.dumps(row))
            continue
        times = "".join(f" {row[key]:7.2f}s" for key in ("trace_s", "compile_and_validate_s", "plan_s", "draw_s"))
        print(f"{name:26} {row['tasks']:8,}{times} {row['us_per_task']:22.1f}")
    print(f"one node of a map: {node_bytes(given.tasks // 10):.0f} bytes")


if __name__ == "__main__":
    main()
