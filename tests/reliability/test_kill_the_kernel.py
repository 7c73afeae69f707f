"""kill -9 of the process that embeds the coordinator, at random moments; then the same line again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from dagkit.stores import open_store

KILLS = int(os.environ.get("DAGKIT_KILLS", "100"))
TASKS = 300

SCRIPT = """
    import os, sys
    from dagkit import task, workflow

    effects = sys.argv[1]

    def effect(name):
        fd = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{name}\\n".encode())
        os.close(fd)

    @task
    def step(name, parents):
        import time
        time.sleep(0.004)
        effect(name)
        return name

    @workflow
    def layers():
        level = []
        for i in range(10):
            level = [step.options(name=f"t{i}-{k}")(f"t{i}-{k}", level[k:k + 3]) for k in range(30)]
        return level

    run = layers().run(store=sys.argv[2], id="victim", resume=True, progress=False)
    run.result()
"""


@pytest.mark.slow
def test_every_task_completes_and_no_saved_completion_runs_again(tmp_path: Path) -> None:
    rng = random.Random(20261201)
    killed, round_number = 0, 0
    while killed < KILLS:
        round_number += 1
        killed += kill_until_it_ends(tmp_path / str(round_number), rng, KILLS - killed)


def kill_until_it_ends(folder: Path, rng: random.Random, most: int) -> int:
    """Run the script, killing it again and again, until it ends by itself; returns how often it was killed."""
    folder.mkdir()
    script, effects, store = folder / "script.py", folder / "effects", folder / ".dagkit"
    script.write_text(textwrap.dedent(SCRIPT))
    killed = 0
    while True:
        before, counts = completed(store), executions(effects)
        process = subprocess.Popen(
            [sys.executable, str(script), str(effects), str(store)], stderr=subprocess.PIPE, start_new_session=True
        )
        ended = wait(process, 0.3 + 1.2 * rng.random() if killed < most else 120)
        if not ended:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        _, errors = process.communicate(timeout=60)
        after = executions(effects)
        again = {name for name in before if after[name] != counts[name]}
        assert not again, f"saved as completed and yet run again after kill {killed}: {sorted(again)[:5]}"
        twice = {name for name in after if after[name] > counts[name] + 1}
        assert not twice, f"run more than once without a kill in between: {sorted(twice)[:5]}"
        assert sum(after.values()) - sum(counts.values()) <= TASKS - len(before)
        if ended:
            assert process.returncode == 0, errors.decode()
            break
    assert_all_is_well(store, effects, killed)
    return killed


def assert_all_is_well(store: Path, effects: Path, killed: int) -> None:
    counts = executions(effects)
    assert len(counts) == TASKS
    assert len(completed(store)) == TASKS
    assert max(counts.values()) <= 1 + killed
    opened = open_store(str(store))
    try:
        entries = opened.task_entries("victim")
        assert {entry["state"] for entry in entries.values()} == {"completed"}
        assert opened.row("victim").counts.completed == TASKS
    finally:
        opened.close()


def completed(store: Path) -> set[str]:
    if not (store / "state.db").exists():
        return set()
    opened = open_store(str(store))
    try:
        if not opened.rows():
            return set()
        return {name for name, entry in opened.task_entries("victim").items() if entry.get("state") == "completed"}
    finally:
        opened.close()


def executions(effects: Path) -> Counter[str]:
    return Counter(effects.read_text().split()) if effects.exists() else Counter()


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ended by itself in time."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.slow
def test_the_workers_of_a_killed_kernel_are_gone_within_seconds(tmp_path: Path) -> None:
    import psutil

    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time, subprocess
            from dagkit import task, shell, workflow
            @task
            def spawn():
                subprocess.run(["sleep", "1000"])
            @workflow
            def both():
                spawn()
                shell("sleep 1000", name="sh")()
            both().run(store=sys.argv[1], progress=False)
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / ".dagkit")])
    parent = psutil.Process(process.pid)
    family: list[psutil.Process] = []
    deadline = time.monotonic() + 30
    while sum(child.name() == "sleep" for child in family) < 2:
        assert time.monotonic() < deadline, "the tasks did not start"
        time.sleep(0.02)
        family = parent.children(recursive=True)

    process.kill()
    process.wait()

    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive
