"""What the pure engine costs: microseconds per task for a few shapes of workflow, and bytes per task.

    python benchmarks/bench_engine.py [--sizes 1000,10000,100000]

A run is played as a coordinator does: steps of up to BATCH completions, then `dispatch` and `take_changes`.
Making the specification is not counted, making the engine's state is.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections import deque
from collections.abc import Callable

from dagkit.engine.state import WorkflowState
from dagkit.model.messages import Completion
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.states import RunStatus

BATCH = 64
NOW = 1_000_000.0


def spec_of(dependencies: list[tuple[str, ...]]) -> WorkflowSpec:
    kwargs = {"cmd": "true"}
    tasks = [TaskSpec.trusted(name=f"t{n}", depends_on=above, kwargs=kwargs) for n, above in enumerate(dependencies)]
    spec = WorkflowSpec.trusted("bench", tasks)
    assert spec.graph.is_acyclic
    return spec


def flat(n: int) -> WorkflowSpec:
    return spec_of([()] * n)


def chain(n: int) -> WorkflowSpec:
    return spec_of([(f"t{i - 1}",) if i else () for i in range(n)])


def layers(n: int) -> WorkflowSpec:
    """Layers of 100 tasks, each on 10 of the layer before."""
    return spec_of(
        [
            tuple(f"t{(i // 100 - 1) * 100 + (i % 100 + 7 * k) % 100}" for k in range(10)) if i >= 100 else ()
            for i in range(n)
        ]
    )


def fan_in(n: int) -> WorkflowSpec:
    return spec_of([()] * (n - 1) + [tuple(f"t{i}" for i in range(n - 1))])


def play(spec: WorkflowSpec, slots: int = 4 * BATCH) -> WorkflowState:
    """Run every task to success with at most `slots` outstanding."""
    state = WorkflowState.create(spec, "w" * 32, NOW)
    outstanding: deque[Completion] = deque()
    now = NOW
    while not state.is_over:
        now += 0.001
        for _ in range(min(BATCH, len(outstanding))):
            state.apply(outstanding.popleft(), now)
        room = slots - len(outstanding)
        for item in state.dispatch(now, {"default": room}):
            outstanding.append(
                Completion("w" * 32, item.name, True, "0", attempt=item.attempt, generation=item.generation)
            )
        state.take_changes()
    assert state.status is RunStatus.COMPLETED
    return state


def seconds(spec: WorkflowSpec, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        begun = time.process_time()
        play(spec)
        best = min(best, time.process_time() - begun)
    return best


def bytes_per_task(spec: WorkflowSpec) -> float:
    """What a finished run holds in memory beyond its specification."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    state = play(spec)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(state.names)


def give_up_a_chain(n: int) -> float:
    """Seconds in which a chain whose first task fails is declared `upstream_failed` to its end."""
    state = WorkflowState.create(chain(n), "w", NOW)
    state.dispatch(NOW)
    begun = time.process_time()
    state.apply(Completion("w", "t0", False, error="boom", attempt=1), NOW)
    took = time.process_time() - begun
    assert state.counts.upstream_failed == n - 1
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of tasks, with commas")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    shapes: dict[str, Callable[[int], WorkflowSpec]] = {
        "flat map": flat,
        "chain": chain,
        "layers": layers,
        "fan-in": fan_in,
    }
    print(f"{'':10}" + "".join(f"{size:>12,}" for size in sizes) + "   us/task; ratio of the last to the first; B/task")
    for name, shape in shapes.items():
        costs = []
        for size in sizes:
            spec = shape(size)
            costs.append(seconds(spec, 5 if size <= 10_000 else 2) / size * 1e6)
        memory = bytes_per_task(spec)
        figures = "".join(f"{cost:12.2f}" for cost in costs)
        print(f"{name:10}{figures}   ratio {costs[-1] / costs[0]:.2f}   {memory:5.0f} B/task", flush=True)
    print(f"a chain of {sizes[-1]:,} is given up in {give_up_a_chain(sizes[-1]) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
