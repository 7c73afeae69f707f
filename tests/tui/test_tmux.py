"""The program in a real terminal, beside a coordinator and workers that are processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit import task, workflow
from services.processes import die_with_parent, require, wait_until

pytestmark = pytest.mark.slow


class Tmux:
    """A terminal of its own, with a program in it."""

    def __init__(self, *command: str, columns: int = 130, lines: int = 36, env: dict[str, str] | None = None) -> None:
        self.name = f"dagkit-{uuid.uuid4().hex[:8]}"
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("-f", os.devnull, "new-session", "-d", "-s", "t", *size, *command, env=env)
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.name, *words], capture_output=True, text=True, check=True, env=env, timeout=20
        )
        return done.stdout

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "t", *keys)

    def shows(self, *words: str) -> str:
        deadline = time.monotonic() + 60
        while not all(word in (text := self.text) for word in words):
            assert time.monotonic() < deadline, f"{words} not on the screen:\n{text}"
            time.sleep(0.1)
        return text

    @property
    def is_over(self) -> bool:
        return self._tmux("list-panes", "-t", "t", "-F", "#{pane_dead}").strip() == "1"

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.name, "kill-server"], capture_output=True, check=False, timeout=20)


@pytest.fixture
def tmux() -> Iterator[list[Tmux]]:
    if shutil.which("tmux") is None:
        require("tmux")
    opened: list[Tmux] = []
    yield opened
    for one in opened:
        one.close()


@task(retries=0)
def step(number: int, gate: str) -> int:
    import time

    print(f"step {number} begins", flush=True)
    deadline = time.monotonic() + 120
    while number and not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if number == 3:
        raise ValueError("[bold]three[/bold] is wrong")
    return number


@workflow(default_queue="cpu")
def pipeline(gate: str) -> list[int]:
    return [step(number, gate) for number in range(6)]  # type: ignore[misc]


def test_a_live_run_is_watched_cancelled_and_retried(tmp_path: Path, tmux: list[Tmux]) -> None:
    gate, store = tmp_path / "gate", f"sqlite:{tmp_path / 'store'}"
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**kept, "DAGKIT_STORE": store, "HOME": str(tmp_path), "TERM": "xterm-256color"}
    run = pipeline(str(gate)).submit(store=store, id="live-1")
    program = [sys.executable, "-m", "dagkit.cli"]
    served = [
        subprocess.Popen([*program, *words], env=environment, cwd=tmp_path, preexec_fn=die_with_parent)
        for words in (["coordinator"], ["worker", "cpu", "--slots", "2"])
    ]
    try:
        screen = Tmux(*program, "tui", env=environment)
        tmux.append(screen)
        screen.shows("live-1", "◐ running", "coordinator (")
        screen.press("q")
        screen.shows("workflow-completions", f":{served[1].pid}")
        screen.press("Escape")
        screen.shows("driven by")  # an escape with another key on its heels would be that key with alt
        screen.press("Enter")
        screen.shows("step × 6", "◐ running")
        screen.press("f", "f")
        screen.shows("running · 5")
        screen.press("l")
        screen.shows("begins", "following")
        screen.press("Escape")
        screen.shows("step × 6")
        screen.press("c")
        screen.shows("Cancel pipeline")
        screen.press("y")
        screen.shows("⊖ cancelled")
        gate.touch()
        screen.press("f", "f", "f", "f", "f")
        screen.press("r")
        screen.shows("Retry 5 failed tasks")
        screen.press("y")
        screen.shows("✗ failed", "6 of 6")
        screen.press("Home")
        screen.shows("ValueError: [bold]three[/bold] is wrong")
        screen.press("C-q")
        wait_until(lambda: screen.is_over, "it has ended")
    finally:
        for process in served:
            process.terminate()
        for process in served:
            process.wait(20)

    assert str(run.status) == "failed"
    assert run.counts.completed == 5


def test_without_a_terminal_it_says_what_to_type_instead(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dagkit.cli", "tui"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert done.stderr == "error: dagkit tui needs a terminal; dagkit status and dagkit watch print lines\n"
