"""How the screens look, line by line.

`pytest tests/tui/test_looks.py --save-shown` takes what is shown now for right, and makes the
pictures of the docs anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tui.conftest import Terminal, terminal

pytestmark = pytest.mark.asyncio

SNAPSHOTS = Path(__file__).parent / "snapshots"
IMAGES = Path(__file__).parents[2] / "docs/images"
_MOVING = [
    (re.compile(r"\d\d:\d\d:\d\d"), "HH:MM:SS"),
    (re.compile(r"\b1:\d\d\b"), "1:SS"),
    (re.compile(r"\d\.\d/s   about \S+( s)? left   "), ""),
]


async def compare(screen: Terminal, name: str, save: bool) -> None:
    text = screen.text
    for moving, still in _MOVING:
        text = moving.sub(still, text)
    file = SNAPSHOTS / f"{name}.txt"
    if save:
        SNAPSHOTS.mkdir(exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")
        IMAGES.joinpath(f"tui-{name}.svg").write_text(screen.app.export_screenshot(title=""), encoding="utf-8")
    assert text + "\n" == file.read_text(encoding="utf-8")


@pytest.fixture
def save(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--save-shown"))


async def test_runs(store, save) -> None:
    async with terminal(store, size=(118, 24)) as screen:
        await screen.shows("sweep-3f9c", "prep-9")
        screen.app.screen.query_one("#runs").select("sweep-3f9c")
        await screen.shows("train-1   MemoryError")
        await compare(screen, "runs", save)


async def test_a_run(store, save) -> None:
    async with terminal(store, "sweep-3f9c", size=(118, 30)) as screen:
        await screen.shows("train-5", "line 7, in train")
        await compare(screen, "run", save)


async def test_a_task(store, save) -> None:
    async with terminal(store, "sweep-3f9c", size=(118, 30)) as screen:
        await screen.shows("train-5", "line 7, in train")
        await screen.press("enter")
        await screen.shows("asked for memory 27G")
        await compare(screen, "task", save)


async def test_a_question(store, save) -> None:
    async with terminal(store, "sweep-3f9c", size=(118, 30), is_dark=False) as screen:
        await screen.shows("train-5", "line 7, in train")
        await screen.press("r")
        await screen.shows("Retry 2 failed tasks and the 1 that depends on them?")
        await compare(screen, "retry", save)
