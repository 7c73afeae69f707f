"""The folder of an executor's workers, and what killed executors have left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit.executors.scratch import Scratch

_HOLD = "from dagkit.executors.scratch import Scratch; print(Scratch().path, flush=True); input()"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


@pytest.fixture
def other(root: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _HOLD], env=environment, **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def folder_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_it_goes_with_all_that_is_in_it(root: Path) -> None:
    scratch = Scratch()
    (scratch.path / "1").mkdir()
    (scratch.path / "1" / "upstream.json").touch()

    scratch.remove()

    assert list(root.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next(other: subprocess.Popen[str]) -> None:
    left = folder_of(other)
    (left / "2").mkdir()
    os.utime(left, (0, 0))
    other.kill()
    other.wait()
    assert left.exists()

    scratch = Scratch()

    assert not left.exists()
    scratch.remove()


def test_the_folder_of_a_living_process_stays(other: subprocess.Popen[str]) -> None:
    theirs = folder_of(other)
    os.utime(theirs, (0, 0))

    first, second = Scratch(), Scratch()

    assert theirs.exists()
    assert first.path.exists()
    first.remove()
    second.remove()


def test_young_ones_are_left_alone(root: Path) -> None:
    (root / "dagkit-scratch-1-justmade").mkdir()

    Scratch().remove()

    assert [path.name for path in root.iterdir()] == ["dagkit-scratch-1-justmade"]


@pytest.mark.parametrize(
    "name",
    [
        "dagkit-notes-2026",
        "dagkit-2026-results1",
        "dagkit-rehearsal-a1b2c3d4",
        "dagkit-scratch-notes",
        "dagkit-scratch-1-mine",
    ],
)
def test_what_others_keep_in_the_temporary_folder_stays_however_it_is_called_and_however_old_it_is(
    root: Path, name: str
) -> None:
    (root / name).mkdir()
    (root / name / "precious").write_text("results of a year")
    os.utime(root / name, (0, 0))

    Scratch().remove()

    assert (root / name / "precious").read_text() == "results of a year"
