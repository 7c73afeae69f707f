"""A sweep on Slurm: one array for all fits, packed short steps, and a summary on the login node."""

from __future__ import annotations

import sys

from dagkit import task, workflow


@task(queue="quick")
def make(seed: int) -> list[float]:
    import random

    source = random.Random(seed)
    return [2.0 * x + source.gauss(0, 1) for x in range(50)]


@task(queue="cpu", cores=1, memory="200M", runtime="5m", retries=2)
def fit(values: list[float]) -> float:
    import os

    print("fitting on", os.environ.get("SLURM_JOB_NODELIST", "this machine"))
    count = len(values)
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    over = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values))
    return over / sum((x - mean_x) ** 2 for x in range(count))


@task(queue="login")
def summary(slopes: list[float]) -> str:
    mean = sum(slopes) / len(slopes)
    return f"{len(slopes)} fits, slope {mean:.2f}, from {min(slopes):.2f} to {max(slopes):.2f}"


@workflow
def sweep(count: int):
    return summary([fit(data) for data in make.map(range(count))])


if __name__ == "__main__":
    target = sys.argv[sys.argv.index("--target") + 1] if "--target" in sys.argv else "cluster"
    run = sweep(40).run(target=target)
    print(run.result())
    print(run.logs("fit").strip())
