"""A simulated PJM whose clock the test moves."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagkit.testing.pjm import PjmSimulator, Site

SAMPLES = Path(__file__).parent / "samples"
Made = Callable[..., PjmSimulator]


def sample(name: str) -> str:
    """A recorded text, without the words that say where it comes from."""
    text = (SAMPLES / f"{name}.txt").read_text()
    return re.sub(r"[ \t]*\[(?:off|rec|wrap|inf|unv)\].*$", "", text, flags=re.MULTILINE)


def at(text: str) -> float:
    """A moment, as the machine's clock says it: `2021/04/12 11:25:50`."""
    return time.mktime(time.strptime(text, "%Y/%m/%d %H:%M:%S"))


@pytest.fixture
def make(tmp_path: Path) -> Made:
    """Machines that run nothing, at a moment."""

    def made(moment: str = "2021/04/12 11:25:50", **settings: Any) -> PjmSimulator:
        site = Site(**{"mode": "plan", "is_group_needed": False, **settings})
        return PjmSimulator(tmp_path / "pjm", site, at=at(moment), speed=None)

    return made


class Prompt:
    """Types commands at the simulated login node."""

    def __init__(self, sim: PjmSimulator, folder: Path) -> None:
        self.sim, self.folder = sim, folder

    def __call__(self, *words: str, code: int = 0) -> str:
        done = self.sim.run(words, directory=self.folder, environ={"HOME": str(self.folder), "USER": "user1"})
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def script(self, name: str = "job.sh", text: str = "#!/bin/bash\ntrue\n") -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def prompt(tmp_path: Path) -> Callable[[PjmSimulator], Prompt]:
    return lambda sim: Prompt(sim, tmp_path)
