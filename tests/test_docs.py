"""What README and docs show is run: each page is a session in a folder of its own.

Python blocks run one after another in one Jupyter kernel, shell blocks in bash in the same folder; a block with a title
(```yaml title="sweep.yaml") is written to that file instead. A comment in front of a block changes that:
`<!-- in the background -->` starts it and stops it after the page, `<!-- not run: why -->` leaves it out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from dagkit.cli.app import COMMANDS
from services.azurite import installed_azurite
from services.processes import is_listening, require, wait_until

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]
LIMIT_S = 120

_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    title: str | None
    note: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        title = _TITLE.search(match["info"])
        language = match["info"].partition(" ")[0]
        found.append(Block(language, match["body"], title and title[1], match["note"] or ""))
    return found


class Session:
    """A folder with a Python kernel and a shell, where `python` and `dagkit` are those under test."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DAGKIT_", "JOBQ_"))}
        self.environment = {**kept, "PATH": f"{tools}:{kept['PATH']}", "PYTHONIOENCODING": "utf-8"}
        self._kernel: tuple | None = None
        self._daemons: list[subprocess.Popen[bytes]] = []

    def python(self, code: str) -> None:
        if self._kernel is None:
            self._kernel = start_new_kernel(cwd=str(self.folder), env=self.environment)
        reply = self._kernel[1].execute_interactive(code, timeout=LIMIT_S, output_hook=lambda message: None)
        content = reply["content"]
        assert content["status"] == "ok", re.sub(r"\x1b\[[\d;]*m", "", "\n".join(content["traceback"]))

    def shell(self, code: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{code}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"

    def background(self, code: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["bash", "-c", f"exec {code}"]
        self._daemons.append(subprocess.Popen(command, cwd=self.folder, env=self.environment, **quiet))
        if code.startswith("azurite"):
            wait_until(lambda: all(map(is_listening, (10_000, 10_001, 10_002))), "Azurite listens on its three ports")

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel[1].stop_channels()
            self._kernel[0].shutdown_kernel(now=True)
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            daemon.wait(timeout=30)


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    tools, folder = tmp_path / "tools", tmp_path / "session"
    for name, command in (("python", ""), ("dagkit", "-m dagkit.cli ")):
        tools.mkdir(exist_ok=True)
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command}"$@"\n')
        (tools / name).chmod(0o755)
    if azurite := installed_azurite():
        (tools / "azurite").symlink_to(azurite)
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jupyter_client and pyzmq warn about their own loops and ports
        opened = Session(folder, tools)
        yield opened
        opened.close()


def is_run(block: Block) -> bool:
    if block.note.startswith("not run: ") or block.body.startswith("make "):  # the two commands are what CI is
        return False
    return block.language in ("python", "bash") or block.title is not None


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(is_run, blocks(p)))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_what_a_page_shows_works(page, session):
    shown = [block for block in blocks(page) if is_run(block)]
    if any(block.body.startswith("azurite") for block in shown):
        require("azurite", session.tools)
    for block in shown:
        if block.title:
            (session.folder / block.title).write_text(block.body, encoding="utf-8")
        elif block.note == "in the background":
            session.background(block.body.strip())
        elif block.language == "python":
            session.python(block.body)
        else:
            session.shell(block.body)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_say_their_language_and_why_they_are_not_run(page):
    for block in blocks(page):
        assert block.language in ("python", "bash", "yaml", "text", "toml"), block
        assert block.note in ("", "in the background") or re.match(r"not run: \w", block.note), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r'\]\(([^)#\s]+)[^)]*\)|src="([^"]+)"', page.read_text(encoding="utf-8"))
    for target in (first or second for first, second in targets):
        assert (page.parent / target).exists(), target


def test_every_command_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `dagkit ([\w-]+)", page, re.MULTILINE)) == set(COMMANDS)


def test_every_field_of_the_model_is_in_the_reference():
    from dagkit import TaskSpec, WorkflowSpec

    page = (ROOT / "docs" / "reference" / "yaml.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))

    assert set(re.findall(r"`(\w+)`", rows)) == {*TaskSpec.model_fields, *WorkflowSpec.model_fields}


def test_every_public_name_is_in_the_reference():
    import dagkit

    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    classes = {"DagkitError", "TaskFailed", "errors", "TaskSpec"}  # members of modules that are shown as a whole

    assert [name for name in dagkit.__all__ if name not in classes and not re.search(rf"\.{name}\b", pages)] == []


def test_the_picture_of_the_readme_is_what_is_drawn(tmp_path):
    from dagkit.notebook import graph

    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    names: dict[str, object] = {}
    exec(compile(first.body.partition("run = ")[0], "README.md", "exec"), names)

    assert (ROOT / "docs" / "images" / "sweep.svg").read_text(encoding="utf-8") == graph.svg(names["flow"]) + "\n"
