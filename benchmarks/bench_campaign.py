"""A chain of five steps on the local target, from the call to the result: cold, and with workers that linger.

    python benchmarks/bench_campaign.py [--repeat N]

Bound: under 1 s in a process that has run nothing yet (Jobmon, at its defaults, takes 272 s for five steps).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BOUND_S = 1.0
STEPS = 5


def measure(folder: str) -> list[float]:
    """Seconds of one run after the other in this process; the first starts the workers."""
    from dagkit import task, workflow

    @task(memory="1G", runtime="1h", retries=2)
    def step(before: int) -> int:
        return before + 1

    @workflow
    def chain() -> object:
        value: object = 0
        for _ in range(STEPS):
            value = step(value)  # type: ignore[arg-type]
        return value

    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        assert chain().run(store=folder, progress=False).result() == STEPS
        seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeat", type=int, default=3, help="processes to measure")
    options.add_argument("--one", metavar="FOLDER", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one)))
        return
    cold, warm, whole = [], [], []
    for _ in range(chosen.repeat):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            words = [sys.executable, __file__, "--one", str(Path(folder) / ".dagkit")]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            whole.append(time.perf_counter() - begin)
            first, *others = json.loads(done.stdout.splitlines()[-1])
            cold.append(first)
            warm += others
    verdict = "ok" if min(cold) < BOUND_S else "OVER THE BOUND"
    print(f"five steps, first run of a process: {min(cold) * 1e3:7.1f} ms  (bound {BOUND_S:g} s)  {verdict}")
    print(f"five steps, a later run:            {min(warm) * 1e3:7.1f} ms")
    print(f"a process with five such runs:      {min(whole) * 1e3:7.1f} ms")
    sys.exit(min(cold) >= BOUND_S)


if __name__ == "__main__":
    main()
