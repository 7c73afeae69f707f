"""Definitions: YAML of 10,000 tasks beside plain `yaml.load`, and 100,000 validated tasks. Prints one line each.

    python benchmarks/bench_model.py

Ratios are taken in one run on one machine. Reference: `yaml.load(Loader=CSafeLoader)`, which builds plain data and
checks nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import yaml

from dagkit.model.condition import Condition
from dagkit.model.spec import TaskSpec, WorkflowSpec


def timed(work: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """(best seconds, result) of some rounds."""
    best, result = float("inf"), None
    for _ in range(rounds):
        result = None
        started = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - started)
    return best, result


def task(number: int) -> dict[str, Any]:
    """One of a map of layers, as a compiled sweep looks."""
    return {
        "name": f"train-{number}",
        "depends_on": [f"train-{number - 100}"] if number >= 100 else [],
        "queue": "gpu-a100",
        "num_retries": 3,
        "kwargs": {"cmd": f"python train.py --seed {number}", "env": {"SEED": str(number), "RATE": "1e-3"}},
    }


def yaml_of_ten_thousand() -> None:
    spec = WorkflowSpec(name="sweep", tasks=[task(number) for number in range(10_000)])
    write_s, text = timed(spec.to_yaml)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain_s, _ = timed(lambda: yaml.load(text, Loader=loader))
    load_s, loaded = timed(lambda: WorkflowSpec.from_yaml(text))
    assert loaded == spec
    print(f"YAML of 10,000 tasks ({len(text) / 1e6:.1f} MB): load and validate {load_s:.2f} s (target 3 s)")
    print(f"  write {write_s:.2f} s")
    print(f"  plain yaml.load {plain_s:.2f} s: ratio {load_s / plain_s:.2f}")
    json_text = spec.to_json()
    json_s, _ = timed(lambda: WorkflowSpec.from_json(json_text))
    print(f"  the same as JSON: load and validate {json_s:.2f} s")


def a_hundred_thousand_tasks() -> None:
    def build() -> WorkflowSpec:
        tasks = [
            TaskSpec(name=f"t{number}", depends_on=(f"t{number - 1}",) if number else (), kwargs={"cmd": "true"})
            for number in range(100_000)
        ]
        return WorkflowSpec(name="chain", tasks=tasks)

    build_s, spec = timed(build)
    print(f"100,000 TaskSpecs and their WorkflowSpec (a chain): {build_s:.2f} s (target 2 s)")
    define_s, stored = timed(lambda: spec.definition("w", "2026-01-01T00:00:00+00:00"))
    read_s, _ = timed(lambda: WorkflowSpec.from_definition(stored).graph)
    print(f"  definition document: build {define_s:.2f} s, read back with its graph {read_s:.2f} s")


def a_condition_of_ten_thousand_terms() -> None:
    names = [f"fit-{number}" for number in range(10_000)]
    text = " and ".join(f'inputs["{name}"].loss < 0.5' for name in names)
    parse_s, condition = timed(lambda: Condition.parse(text, names))
    outputs = {name: {"loss": 0.1} for name in names}
    evaluate_s, _ = timed(lambda: condition.evaluate(outputs))
    print(f"condition of 10,000 terms: parse {parse_s * 1e3:.0f} ms, evaluate {evaluate_s * 1e3:.0f} ms")


if __name__ == "__main__":
    yaml_of_ten_thousand()
    a_hundred_thousand_tasks()
    a_condition_of_ten_thousand_terms()
