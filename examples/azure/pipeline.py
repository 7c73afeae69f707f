"""A sweep on two queues, submitted to a storage account: workers run it, this script waits for the result.

    python examples/azure/pipeline.py azure://devstoreaccount1/demo

Who we are to the account is found in the environment (docs/how-to/azurite.md). A coordinator and workers for the queues
`cpu` and `gpu` have to be there: `examples/azure/run-local.sh` starts all of it on Azurite.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dagkit import File, task, workflow


@task
def simulate(steps: int) -> File:
    """A trajectory: a file, which travels by way of the account."""
    lines = [f"{step},{(step * 7919) % 101}" for step in range(steps)]
    Path("trajectory.csv").write_text("\n".join(lines))
    print(f"simulated {steps} steps")
    return File("trajectory.csv")


@task(queue="gpu", retries=1)
def fit(trajectory: File, degree: int) -> dict[str, float]:
    values = [int(line.partition(",")[2]) for line in trajectory.read_bytes().decode().splitlines()]
    mean = sum(values) / len(values)
    return {"degree": degree, "loss": round(abs(mean - 50) + 1 / degree, 3)}


@task
def best(fits: list[dict[str, float]]) -> dict[str, float]:
    return min(fits, key=lambda one: one["loss"])


@workflow(default_queue="cpu")
def sweep(degrees: list[int]):
    trajectory = simulate(2_000)
    return best([fit.options(name=f"fit-{degree}")(trajectory, degree) for degree in degrees])


if __name__ == "__main__":
    run = sweep(degrees=[1, 2, 4, 8]).submit(store=sys.argv[1])
    print(f"submitted {run.id}")
    print(json.dumps(run.result(timeout=120)))
    print(run.logs("simulate"), end="")
