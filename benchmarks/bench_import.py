"""What it costs to import dagkit and to ask the command line for help, beside an empty Python.

python benchmarks/bench_import.py [--repeat 15]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import dagkit": [sys.executable, "-c", "import dagkit"],
    "from dagkit import task": [sys.executable, "-c", "from dagkit import task"],
    "dagkit --help": [sys.executable, "-m", "dagkit.cli", "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeat):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    empty = statistics.median(times["python -c pass"])
    for name, found in times.items():
        median = statistics.median(found)
        print(
            json.dumps(
                {"bench": name, "repeat": repeat, "ms": round(median * 1e3, 1), "times empty": round(median / empty, 2)}
            )
        )


if __name__ == "__main__":
    main()
