"""Workers stay for the next run, and are not used again when what they have seen has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dagkit import embedded, task


@task
def process() -> tuple[int, str | None]:
    return os.getpid(), os.environ.get("DAGKIT_TEST_WORD")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / ".dagkit")


def test_the_next_run_finds_the_workers_of_the_last(store: str) -> None:
    first, _ = process().run(store=store, progress=False).result()
    second, _ = process().run(store=store, progress=False).result()

    assert first == second
    embedded.close_all()


def test_workers_are_not_used_again_when_the_environment_has_changed(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = process().run(store=store, progress=False).result()
    monkeypatch.setenv("DAGKIT_TEST_WORD", "new")
    second, after = process().run(store=store, progress=False).result()

    assert (before, after) == (None, "new")
    assert first != second
    embedded.close_all()


def test_an_edited_module_is_run_as_it_is_now(tmp_path: Path) -> None:
    """A module beside the script, imported by reference in a function, edited between two runs of one session."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import importlib, os, pathlib
            from dagkit import task
            helper = pathlib.Path("helper.py")
            helper.write_text("WORD = 'one'")
            import helper as module

            @task
            def say():
                import helper
                return helper.WORD

            print(say().run(progress=False).result())
            helper.write_text("WORD = 'second'")
            importlib.reload(module)
            print(say().run(progress=False).result())
            """
        )
    )

    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.split() == ["one", "second"], done.stderr


def test_closing_ends_every_worker_and_thread(store: str) -> None:
    import psutil

    process().run(store=store, progress=False).result()

    embedded.close_all()

    assert not [child for child in psutil.Process().children() if "dagkit.runtime.child" in " ".join(child.cmdline())]
    assert embedded.driving(f"sqlite:{store}", "anything") is None
