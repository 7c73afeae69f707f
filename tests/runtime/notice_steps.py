"""Task functions that save their work when they are told to stop: `runtime.notice_steps:<name>`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dagkit import checkpoint_dir, on_preempt


def hang(folder: str, *, end: bool = False) -> None:
    """Hangs until it is stopped; notes every notice. `end`: raises once it was told."""
    told: list[str] = []

    def save(reason: str) -> None:
        told.append(reason)
        with Path(folder, "notices").open("a") as file:
            file.write(f"{reason}\n")

    def spoiled(reason: str) -> None:
        raise RuntimeError("no disk")

    on_preempt(spoiled)
    on_preempt(save)
    fresh = Path(folder, "pid.fresh")
    fresh.write_text(str(os.getpid()))
    fresh.rename(Path(folder, "pid"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if told and end:
            raise RuntimeError("saved")
        time.sleep(0.01)


def count(folder: str) -> int:
    """How many attempts have been here before."""
    place = checkpoint_dir() / "count"
    seen = int(place.read_text()) if place.exists() else 0
    place.write_text(str(seen + 1))
    if seen < 2:
        raise ValueError("again")
    return seen


def quick(folder: str) -> str:
    on_preempt(lambda reason: Path(folder, "late").touch())
    return "done"
