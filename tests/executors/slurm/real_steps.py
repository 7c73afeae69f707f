"""Task functions of the tests on the real Slurm: `executors.slurm.real_steps:<name>`."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from dagkit import checkpoint_dir, on_preempt


def stay_until(path: str, limit_s: float = 100) -> str:
    deadline = time.monotonic() + limit_s
    while not Path(path).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.02)
    return "seen"


def note(folder: str, name: str) -> None:
    """One line for each execution."""
    with Path(folder, name).open("a") as file:
        file.write("ran\n")


def note_and_stay(folder: str, name: str) -> str:
    note(folder, name)
    return stay_until(f"{folder}/go")


def hold(mebibytes: int) -> int:
    held = bytearray(mebibytes << 20)
    time.sleep(0.5)
    return len(held) >> 20


def save_when_told(folder: str) -> str:
    """The first time it goes on until it is told to stop, and saves; the next time it finds what was saved."""
    saved = checkpoint_dir() / "step"
    if saved.exists():
        return saved.read_text()
    told: list[str] = []
    on_preempt(told.append)
    note(folder, "begun")
    deadline = time.monotonic() + 100
    while not told and time.monotonic() < deadline:
        time.sleep(0.02)
    saved.write_text(told[0])
    raise RuntimeError("stopped at a step")


def resume_after_preemption(folder: str) -> str:
    """Saves at once, and hangs the first time."""
    saved = checkpoint_dir() / "step"
    note(folder, "executions")
    if saved.exists():
        return "resumed"
    saved.write_text("1")
    Path(folder, "begun").touch()
    time.sleep(100)
    return "never"


def save_and_stay(folder: str) -> str:
    """Saves when it is told, and hangs; the next time it finds what was saved."""
    saved = checkpoint_dir() / "step"
    note(folder, "executions")
    if saved.exists():
        return saved.read_text()
    on_preempt(lambda why: note_saved(saved, folder, why))
    Path(folder, "begun").touch()
    time.sleep(100)
    return "never"


def note_saved(saved: Path, folder: str, why: str) -> None:
    saved.write_text(why)
    Path(folder, "saved").touch()


def stay_the_first_time(folder: str) -> str:
    begun = Path(folder, "begun")
    if begun.exists():
        return "again"
    begun.touch()
    time.sleep(100)
    return "never"


def surroundings() -> dict[str, str | None]:
    names = ("SLURM_JOB_PARTITION", "SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK", "SLURM_JOB_GPUS", "FLAVOUR", "BOXED")
    return {"host": socket.gethostname(), **{name: os.environ.get(name) for name in names}}


def rank() -> str:
    return f"{os.environ['SLURM_PROCID']} of {os.environ['SLURM_NTASKS']}"


def fail_as_rank(number: int) -> str:
    if int(os.environ["SLURM_PROCID"]) == number:
        raise ValueError(f"rank {number} has no data")
    time.sleep(30)
    return "never"


def kill_job() -> None:
    """The job's own process goes without a word, and this one with it."""
    os.kill(os.getppid(), 9)
    time.sleep(30)
