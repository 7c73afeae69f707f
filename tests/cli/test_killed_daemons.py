"""kill -9 of coordinators and workers at random moments: every task completes, and hardly anything runs twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLS = int(os.environ.get("DAGKIT_TEST_KILLS", "8"))
LAYERS, WIDTH, SLOTS = max(4, KILLS // 2), 12, 2


def definition() -> str:
    lines = ["name: killed", "default_queue: q", "tasks:"]
    for layer in range(LAYERS):
        for place in range(WIDTH):
            parents = [f"t{layer - 1}-{other}" for other in range(WIDTH)] if layer else []
            command = f"echo ran >> ran/t{layer}-{place}; sleep 0.5; echo {layer} > $JOBQ_OUTPUT_FILE"
            lines.append(
                f'- {{name: t{layer}-{place}, depends_on: [{", ".join(parents)}], kwargs: {{cmd: "{command}"}}}}'
            )
    return "\n".join(lines)


class Daemons:
    """A coordinator and two workers that are started again whenever they were killed."""

    COMMANDS = (
        ("coordinator",),
        ("worker", "q", "--slots", str(SLOTS), "--lock", "2s"),
        ("worker", "q", "--lock", "2s"),
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("DAGKIT_", "JOBQ_"))}
        self.processes = [self.start(*words) for words in self.COMMANDS]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dagkit.cli", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, which: int) -> None:
        self.processes[which].send_signal(signal.SIGKILL)
        self.processes[which].wait()
        self.processes[which] = self.start(*self.COMMANDS[which])

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_run_survives_every_kind_of_kill(tmp_path: Path) -> None:
    from dagkit.config import load_settings
    from dagkit.run import Run

    (tmp_path / "ran").mkdir()
    (tmp_path / "killed.yaml").write_text(definition())
    daemons = Daemons(tmp_path)
    settings = load_settings(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    store = settings.open_store()
    try:
        daemons.start("submit", "killed.yaml", "--id", "w").wait(60)
        run = Run(store, "w", settings)
        chance = random.Random(2)
        kills = [0, 0, 0]
        deadline = time.monotonic() + 60 + 20 * KILLS
        next_kill = time.monotonic() + 1.0
        while not run.status.is_over:
            assert time.monotonic() < deadline, run.summary()
            if time.monotonic() >= next_kill and sum(kills) < KILLS:
                which = chance.randrange(3)
                daemons.kill(which)
                kills[which] += 1
                next_kill = time.monotonic() + chance.uniform(0.3, 2.0)
            time.sleep(0.05)
        status, attempts = run.status, {task.attempt for task in run.tasks()}
    finally:
        daemons.close()
        store.close()

    ran = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "ran").iterdir()}
    assert sum(kills) > 2, "the run was over before anything was killed"
    assert str(status) == "completed"
    assert len(ran) == LAYERS * WIDTH
    assert attempts == {1}
    # Only what a killed worker held, and what a killed coordinator had sent and not saved, may have run again.
    assert sum(ran.values()) - len(ran) <= SLOTS * (kills[1] + kills[2]) + WIDTH * kills[0]
