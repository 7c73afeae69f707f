"""What submitting to Slurm costs this side of it, beside submitit by itself; and what a look at many jobs costs.

    python benchmarks/bench_slurm.py [--tasks 10000] [--real]

Submissions go to an `sbatch` that answers at once (or, with `--real`, to a real Slurm, as held jobs that are cancelled
in the end): what is measured is the client. Raw `sbatch` is the same number of calls with scripts that exist. submitit
pickles every task into a file of its own (`executor.batch()`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dagkit.coordinator import Coordinator
from dagkit.engine.state import WorkflowState
from dagkit.executors.slurm.commands import Commands
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.listing import read_squeue
from dagkit.executors.slurm.request import SlurmQueue
from dagkit.executors.slurm.watch import Patience
from dagkit.model.messages import TaskMessage
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.stores import open_store
from dagkit.testing import FakeExecutor

NEVER = Patience(collect_s=0.0, look_s=1000.0, most_look_s=1000.0)
ANSWER = '#!/bin/sh\nread n < "$0.n"; n=$((n+1)); echo $n > "$0.n"; echo $n\n'
SUBMITIT_ANSWER = '#!/bin/sh\nread n < "$0.n"; n=$((n+1)); echo $n > "$0.n"; echo "Submitted batch job $n"\n'
ARRAY = 1000
NOW = "2026-01-01T00:00:00+00:00"


def quick_sbatch(folder: Path, text: str) -> dict[str, str]:
    """An environment whose sbatch says yes, and costs no more than a process."""
    folder.mkdir(parents=True)
    for name in ("sbatch", "squeue", "sacct", "sacctmgr", "scancel", "scontrol", "srun"):
        path = folder / name
        path.write_text(text if name == "sbatch" else "#!/bin/sh\necho 'MaxArraySize = 1001'\n")
        path.chmod(0o755)
    (folder / "sbatch.n").write_text("0\n")
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def messages(count: int) -> list[TaskMessage]:
    call = {"function": "math:sqrt", "args": [4], "kwargs": {}}
    return [
        TaskMessage("wf", f"sqrt-{n}", 1, 0, "default", {"cmd": "dagkit exec", "call": call}, template="sqrt")
        for n in range(count)
    ]


def dagkit_client(folder: Path, commands: Commands, count: int, queue: SlurmQueue) -> tuple[float, SlurmExecutor]:
    store = open_store(folder / "store")
    executor = SlurmExecutor(store, folder=folder / "spools", default=queue, patience=NEVER, commands=commands)
    waiting = messages(count)

    def submit() -> None:
        taken = 0
        while taken < count:
            taken += executor.submit(waiting[taken:])

    return timed(submit), executor


def raw_sbatch(folder: Path, environ: dict[str, str], count: int, options: list[str]) -> float:
    script = folder / "raw.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    command = ["sbatch", "--parsable", *options, f"--array=0-{ARRAY - 1}", "--output=/dev/null", str(script)]

    def submit() -> None:
        for _ in range(count // ARRAY):
            subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)

    return timed(submit)


def submitit_client(folder: Path, count: int) -> float:
    environ = quick_sbatch(folder / "bin", SUBMITIT_ANSWER)
    before, os.environ["PATH"] = os.environ["PATH"], environ["PATH"]
    try:
        import math

        import submitit

        executor = submitit.SlurmExecutor(folder=folder / "jobs")

        def submit() -> None:
            for _ in range(count // ARRAY):
                with executor.batch():
                    for _ in range(ARRAY):
                        executor.submit(math.sqrt, 4)

        return timed(submit)
    finally:
        os.environ["PATH"] = before


def whole_run(folder: Path, commands: Commands, count: int) -> tuple[float, float]:
    """Seconds from a stored run to every task submitted: over Slurm, and over an executor that does nothing."""
    spec = WorkflowSpec.trusted(
        "bench", [TaskSpec.trusted(name=f"t{n}", template="t", kwargs={"cmd": "true"}) for n in range(count)]
    )
    found = []
    for name in ("slurm", "nothing"):
        store = open_store(folder / name)
        store.create("wf", spec.definition("wf", NOW), WorkflowState.create(spec, "wf", 0.0).document())
        slurm = SlurmExecutor(store, folder=folder / f"{name}-spools", patience=NEVER, commands=commands)
        executor = slurm if name == "slurm" else FakeExecutor()
        coordinator = Coordinator(store, lambda queue, executor=executor: executor)  # type: ignore[misc]
        coordinator.drive("wf")

        def run(coordinator: Coordinator = coordinator) -> None:
            while coordinator.counters.dispatched < count:
                coordinator.step(0.0)

        found.append(timed(run))
        coordinator.close()
        slurm.close()
    return found[0], found[1]


def look_at(count: int) -> float:
    """Reading a listing of that many elements that run, and telling them apart: the client's half of a look."""
    text = "".join(f"{7 + n // ARRAY}_{n % ARRAY}|RUNNING|None|sqrt.{n // ARRAY:010x}\n" for n in range(count))
    return timed(lambda: read_squeue(text))


def whole_look(executor: SlurmExecutor, count: int) -> float:
    """What the coordinator's thread does with the listing of all jobs."""
    from dagkit.executors.slurm.watch import Look

    text = "".join(f"{1 + n // ARRAY}_{n % ARRAY}|RUNNING|None|x\n" for n in range(count))
    return timed(lambda: executor._tracker.take_look(Look(time.time() + 1, read_squeue(text))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--real", action="store_true", help="submit held jobs to the Slurm of this machine")
    arguments = parser.parse_args()
    count = arguments.tasks
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = dict(os.environ) if arguments.real else quick_sbatch(folder / "bin", ANSWER)
        commands = Commands(60.0, environ)
        queue = SlurmQueue(sbatch=(("hold", True),) if arguments.real else (), max_array=ARRAY)
        raw_s = raw_sbatch(folder, environ, count, ["--hold"] if arguments.real else [])
        if arguments.real:
            subprocess.run(["scancel", f"--user={os.getuid()}"], check=True)
        seconds, executor = dagkit_client(folder / "dagkit", commands, count, queue)
        print(f"{count:,} tasks in arrays of {ARRAY:,}")
        print(f"  raw sbatch            {raw_s:7.3f} s")
        print(
            f"  dagkit executor       {seconds:7.3f} s   {(seconds - raw_s) / count * 1e6:6.1f} us a task beyond sbatch"
        )
        print(f"  look, reading         {look_at(count) * 1e3:7.1f} ms")
        print(f"  look, whole           {whole_look(executor, count) * 1e3:7.1f} ms")
        if arguments.real:
            print(f"  squeue and reading    {timed(commands.squeue) * 1e3:7.1f} ms")
            subprocess.run(["scancel", f"--user={os.getuid()}"], check=True)
        else:
            run_s, nothing_s = whole_run(folder / "run", commands, count)
            print(f"  run, submitted        {run_s:7.3f} s   {nothing_s:.3f} s of it without Slurm")
            print(f"  submitit, batch()     {submitit_client(folder / 'submitit', count):7.3f} s")
        executor.close()
        shutil.rmtree(folder / "dagkit", ignore_errors=True)


if __name__ == "__main__":
    main()
