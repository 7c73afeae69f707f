"""Makes coordinators that can be killed, at the price of a fork each: reads one folder a line, answers with a process.

A coordinator drives the run `wf` of the store in the folder to its end, over the fake Slurm in it.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from dagkit.coordinator import Coordinator, Pace
from dagkit.engine.state import WorkflowState
from dagkit.executors.slurm.commands import Commands
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.request import SlurmQueue
from dagkit.executors.slurm.script import check_installed
from dagkit.executors.slurm.watch import Patience
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.stores import open_store

#: `settle_s` is longer than the fake sbatch can take after its caller was killed.
PATIENCE = Patience(
    collect_s=0.0, look_s=0.1, most_look_s=0.2, grace_s=5, short_grace_s=5, gone_s=5, settle_s=0.6, files_s=0.02
)


def spec(tasks: int) -> WorkflowSpec:
    """Tasks of one kind, and one that waits for all of them."""
    layer = [TaskSpec(name=f"t{n}", template="t", kwargs={"cmd": "true"}, num_retries=0) for n in range(tasks)]
    last = TaskSpec(name="last", kwargs={"cmd": "true"}, depends_on=[task.name for task in layer])
    return WorkflowSpec(name="wf", tasks=[*layer, last])


def create(folder: Path, tasks: int) -> None:
    """Store the run."""
    store, workflow = open_store(folder / "store"), spec(tasks)
    state = WorkflowState.create(workflow, "wf", store.now())
    store.create("wf", workflow.definition("wf", "2026-01-01T00:00:00+00:00"), state.document())
    store.close()


def drive(folder: Path) -> int:
    """Drive the run to its end; 0 if it is completed."""
    store = open_store(folder / "store")
    executor = SlurmExecutor(
        store,
        folder=folder / "spools",
        default=SlurmQueue(pack=int((folder / "pack").read_text())),
        patience=PATIENCE,
        commands=Commands(5.0, {**os.environ, "PATH": f"{folder / 'slurm/bin'}:{os.environ['PATH']}"}),
    )
    coordinator = Coordinator(store, lambda queue: executor, pace=Pace(idle_sleep_s=0.05, save_interval_s=0.01))
    outcome = coordinator.drive("wf")
    while not outcome.done():
        coordinator.step(0.05)
    return 0 if str(outcome.result()) == "completed" else 1


def main() -> None:
    check_installed()  # submitit is imported once for all
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = drive(Path(line.strip()))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
