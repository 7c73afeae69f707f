"""Files: a task returns `File(path)`; the file is stored with the run and checked when it is read."""

import tempfile
from pathlib import Path

from dagkit import File, task, workflow


@task
def simulate(steps):
    """Leaves a trajectory in a file of its own, and returns it beside a number."""
    path = Path(tempfile.mkdtemp()) / "trajectory.csv"
    x, v, rows = 1.0, 0.0, []
    for step in range(steps):
        v -= 0.01 * x
        x += 0.01 * v
        rows.append(f"{step},{x:.6f}")
    path.write_text("\n".join(rows))
    return {"trajectory": File(path), "last": x}


@task
def count_lines(simulation):
    return len(simulation["trajectory"].read_bytes().splitlines())


@workflow
def trajectory(steps):
    simulation = simulate(steps)
    return {"lines": count_lines(simulation), "file": simulation["trajectory"]}


if __name__ == "__main__":
    result = trajectory(500).run().result()

    print(result["lines"], "lines")
    print("copied to", result["file"].download_to("trajectory.csv"))
