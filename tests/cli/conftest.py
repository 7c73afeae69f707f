"""A project folder to type commands in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dagkit.cli.app import cli

DIAMOND = """\
name: diamond
tasks:
- {name: a, kwargs: {cmd: "echo hello from a; echo '{\\"x\\": 1}' > $JOBQ_OUTPUT_FILE"}}
- {name: b, depends_on: [a], kwargs: {cmd: "true"}}
- {name: c, depends_on: [a], queue: gpu, kwargs: {cmd: "true"}}
- {name: d, depends_on: [b, c], kwargs: {cmd: "true"}}
"""
FAILING = """\
name: failing
tasks:
- {name: bad, kwargs: {cmd: "test -e repaired"}}
- {name: after, depends_on: [bad], kwargs: {cmd: "true"}}
"""


class Project:
    """A folder with a store of its own, and the program called in this process."""

    diamond, failing = DIAMOND, FAILING

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def call(self, *words: str, stdin: str | None = None, code: int = 0) -> Result:
        """Type a command; the exit code must be as expected."""
        result = CliRunner().invoke(cli, list(words), input=stdin, prog_name="dagkit")
        told = f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, told
        assert "Traceback" not in result.stdout
        return result

    def json(self, *words: str, **keywords: Any) -> Any:
        return json.loads(self.call(*words, "--json", **keywords).stdout)

    def submit(self, text: str = DIAMOND, *words: str) -> str:
        self.write("given.yaml", text)
        return self.call("submit", "given.yaml", *words).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    import os

    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("DAGKIT_", "JOBQ_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(tmp_path)
    yield Project(tmp_path)
    os.environ.clear()
    os.environ.update(before)
