"""Capturing needs descriptors 1 and 2 of a process of its own: every test is a small program."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

_BEGIN = """
import json, os, sys
from pathlib import Path
from dagkit.runtime.capture import Capture

folder = Path(sys.argv[1])
capture = Capture(folder / "open")
answers = []
"""
_END = """
(folder / "answers").write_text(json.dumps(answers))
"""


def run(folder: Path, program: str) -> list[Any]:
    code = _BEGIN + textwrap.dedent(program) + _END
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "open").read_text()
    return list(json.loads((folder / "answers").read_text()))


def test_a_silent_task_claims_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "answers.append(capture.has_unclaimed())") == [False]


def test_each_task_gets_a_file_of_its_own(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        for name in ("a", "b"):
            print("text of", name)
            os.write(2, b"bytes of " + name.encode())
            assert capture.has_unclaimed()
            capture.claim(folder / "logs" / name)
        """,
    )

    assert (tmp_path / "logs" / "a").read_text() == "text of a\nbytes of a"
    assert (tmp_path / "logs" / "b").read_text() == "text of b\nbytes of b"


def test_a_log_that_is_published_too_late_takes_nothing_from_anybody(tmp_path: Path) -> None:
    """Whoever publishes looked while the task ran, and comes when it has ended, and the next one writes."""
    run(
        tmp_path,
        """
        before = capture.ended
        print("of the first")
        assert capture.has_unclaimed()
        capture.claim(folder / "first")
        capture.publish(folder / "first", before)
        print("of the second")
        capture.publish(folder / "first", before)
        assert capture.has_unclaimed()
        capture.claim(folder / "second")

        before = capture.ended
        assert not capture.has_unclaimed()  # a silent one
        print("of the fourth")
        capture.publish(folder / "third", before)
        assert capture.has_unclaimed()
        capture.claim(folder / "fourth")
        """,
    )

    found = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name not in ("open", "answers")}
    assert found == {"first": "of the first\n", "second": "of the second\n", "fourth": "of the fourth\n"}


def test_a_published_log_goes_on_growing_and_needs_no_claim(tmp_path: Path) -> None:
    answers = run(
        tmp_path,
        """
        print("one")
        capture.publish(folder / "log", capture.ended)
        answers.append((folder / "log").read_text())
        print("two")
        answers.append(capture.has_unclaimed())
        print("of the next")
        """,
    )

    assert answers == ["one\n", False]
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_a_published_log_that_stays_empty_goes_away(tmp_path: Path) -> None:
    answers = run(tmp_path, "capture.publish(folder / 'log', capture.ended); answers.append(capture.has_unclaimed())")

    assert answers == [False]
    assert not (tmp_path / "log").exists()


def test_discarded_text_is_nobodys(tmp_path: Path) -> None:
    answers = run(
        tmp_path,
        """
        print("noise")
        answers.append(capture.has_unclaimed())
        capture.discard()
        answers.append(capture.has_unclaimed())
        """,
    )

    assert answers == [True, False]


def test_streams_that_a_task_broke_are_mended(tmp_path: Path) -> None:
    answers = run(
        tmp_path,
        """
        sys.stdout.close()
        sys.stderr = None
        os.close(1)
        os.close(2)
        capture.has_unclaimed()
        print("works")
        sys.stderr.write("again")
        answers.append(capture.has_unclaimed())
        capture.claim(folder / "log")
        """,
    )

    assert answers == [True]
    assert (tmp_path / "log").read_text() == "works\nagain"


def test_a_log_that_cannot_be_moved_is_lost_and_not_given_to_the_next(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        (folder / "file").write_text("in the way")
        print("lost")
        capture.has_unclaimed()
        capture.claim(folder / "file" / "log")
        print("kept")
        capture.has_unclaimed()
        capture.claim(folder / "log")
        """,
    )

    assert (tmp_path / "log").read_text() == "kept\n"
