"""Imports point down only: the floors of DESIGN section 3, checked by import-linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_imports_point_down_only():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_a_module_that_no_floor_names_is_an_error():
    """Else a new module would escape the check above."""
    assert "exhaustive = true" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
