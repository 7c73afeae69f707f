"""Makes coordinators over a PJM that can be killed, at the price of a fork each: reads one folder a line, answers with
a process. A coordinator drives the run `wf` of the store in the folder to its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dagkit.coordinator import Coordinator, Pace
from dagkit.executors.pjm.client import Client, Timeouts
from dagkit.executors.pjm.executor import PjmExecutor
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.stores import open_store

#: `settle_s` is longer than pjsub can take after its caller was killed.
PATIENCE = Patience(
    look_s=0.1,
    most_look_s=0.2,
    refill_s=0.2,
    submit_interval_s=0.0,
    grace_s=5,
    short_grace_s=5,
    missing_s=5,
    settle_s=1.5,
    files_s=0.02,
)


def drive(folder: Path) -> int:
    """Drive the run to its end; 0 if it is completed."""
    store = open_store(folder / "store")
    pack, mode = (folder / "how").read_text().split()
    executor = PjmExecutor(
        store,
        folder=folder / "spools",
        default=PjmQueue(rscgrp="small", elapse_s=60, pack=int(pack), mode=mode),
        patience=PATIENCE,
        client=Client(Timeouts(5, 5, 5), {**os.environ, "PATH": f"{folder / 'pjm/bin'}:{os.environ['PATH']}"}),
    )
    coordinator = Coordinator(store, lambda queue: executor, pace=Pace(idle_sleep_s=0.05, save_interval_s=0.01))
    outcome = coordinator.drive("wf")
    while not outcome.done():
        coordinator.step(0.05)
    return 0 if str(outcome.result()) == "completed" else 1


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.environ["PATH"] = f"{line.strip()}/pjm/bin:{os.environ['PATH']}"
                code = drive(Path(line.strip()))
            finally:
                os._exit(code)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
