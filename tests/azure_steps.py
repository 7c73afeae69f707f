"""Functions that workers of the end-to-end tests import."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dagkit import File, task


@task
def numbers(count: int) -> list[int]:
    print(f"makes {count}")
    return list(range(count))


@task(queue="gpu")
def double(values: list[int], factor: int = 2) -> list[int]:
    return [value * factor for value in values]


@task
def total(parts: list[list[int]]) -> dict[str, int]:
    return {"sum": sum(map(sum, parts)), "pid": os.getpid()}


@task
def model(text: str) -> File:
    Path("model.txt").write_text(text)
    return File("model.txt")


@task
def read(file: File) -> str:
    return file.read_bytes().decode()


@task
def fails_until(path: str) -> str:
    if not Path(path).exists():
        raise FileNotFoundError(path)
    return "repaired"


@task
def waits_for(path: str, beat: str) -> str:
    """Ends when the file is there; appends a line to `beat` at each start."""
    with open(beat, "a") as file:
        file.write(f"{os.getpid()}\n")
    print("waiting", flush=True)
    while not Path(path).exists():
        time.sleep(0.02)
    return "done"


@task
def shout(text: str) -> str:
    return text.upper()
