"""Every example runs as it is, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LIMIT_S = 120

SAYS = {
    "sweep.py": ["└─ train × 4", "best: {'lr': 0.5"],
    "conditions.py": ["'all clear': 'fine: 20.2 °C from 5 sensors'", "alarm      skipped", "note       completed"],
    "names.py": ["('scale-10-05', 20.0)", "parse-two: ValueError", "because of parse-two"],
    "resume.py": ["failed: 3 tasks completed, 3 failed", "completed: [45, 145, 245]", "found again: True"],
    "files.py": ["500 lines", "copied to trajectory.csv"],
    "commands.py": ["condition: inputs.unique < inputs.count", "words: 6 different: 4", "there are, repeated words"],
    "keeling.py": ["The rise accelerates: +0.20 ppm", "47 tasks completed, 1 skipped by their condition"],
}


def run(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DAGKIT_", "JOBQ_"))}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
    )


def test_every_script_is_tried():
    assert set(SAYS) == {file.name for file in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("script", SAYS)
def test_it_runs_and_says_what_it_promises(script, tmp_path):
    done = run(script, tmp_path)

    assert done.returncode == 0, done.stderr
    for text in SAYS[script]:
        assert text in done.stdout


def test_the_demo_leaves_its_report_chart_and_drawing(tmp_path):
    done = run("keeling.py", tmp_path, "--out", "here")

    assert done.returncode == 0, done.stderr
    left = {file.name for file in (tmp_path / "here").iterdir()}
    assert left == {"report.md", "report.md.gz", "chart.svg", "chart.svg.gz", "graph.svg"}
    assert "✓ backtest × 27" in (tmp_path / "here" / "graph.svg").read_text(encoding="utf-8")


def test_the_yaml_that_is_shipped_is_the_one_that_the_script_writes(tmp_path):
    run("commands.py", tmp_path)

    assert (tmp_path / "commands.yaml").read_text() == (EXAMPLES / "commands.yaml").read_text()
