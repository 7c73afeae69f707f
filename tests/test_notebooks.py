"""Every notebook runs from top to bottom in a fresh kernel, in a folder of its own.

`pytest tests/test_notebooks.py --save-shown` saves them as they were executed.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT_S = 180
#: What they run on: the fixture of a service, and the tests that share it.
SERVICES = {"05-slurm": ("slurm_cluster", "slurm"), "07-azure-on-azurite": ("azurite", "azurite")}
#: What each shows that has to be seen in it.
SAID = {
    "02-parameter-sweep": ["'forecast': 'completed'", "'give_up': 'skipped'", "13 cached"],
    "03-train-compare-deploy": ["deploy/model.npy", "not enough to change anything"],
    "04-yaml-for-colleagues": ["OK", "(6 tasks)", "✓ completed", "'weeks': 522", "True"],
    "05-slurm": [
        "#SBATCH --array=0-3",
        "in partition minute has 5",
        "failed for memory",
        "asked for memory 600M, runtime 1m and is completed",
        "[0, 1, 4, 9, 16, 25, 36, 49]",
        "{'once '}",
        "queue: ",
    ],
    "06-fugaku-campaign": [
        "ran: 19 parts; names used twice: 0",
        "'field': 0.9",
        "field-0.2  completed  2/",
        "single",
        "calls of pjsub",
    ],
    "07-azure-on-azurite": [
        "'since': 1990",
        "weeks have a measurement",
        "nothing was measured from 1940 to 1952",
        "[0, 0, 0]",
    ],
}
WIDGET = "application/vnd.jupyter.widget-view+json"


def each() -> list[Any]:
    marks = {stem: [pytest.mark.xdist_group(group)] for stem, (_, group) in SERVICES.items()}
    return [pytest.param(file, id=file.stem, marks=marks.get(file.stem, [])) for file in NOTEBOOKS]


@pytest.fixture
def execute(tmp_path, request):
    """Executes a notebook."""

    def surroundings(stem: str) -> dict[str, str]:
        if stem not in SERVICES:
            return {}
        service = request.getfixturevalue(SERVICES[stem][0])
        return dict(service.development if stem == "07-azure-on-azurite" else service.environment)

    def run(file: Path) -> Any:
        notebook, folder = nbformat.read(file, as_version=4), tmp_path / "notebooks"
        shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")  # where notebooks find it
        folder.mkdir()
        execute_in(folder, notebook, surroundings(file.stem))
        if request.config.getoption("--save-shown"):
            save(notebook, file, folder)
        return notebook

    return run


def execute_in(folder: Path, notebook: Any, services: dict[str, str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jupyter_client and pyzmq warn about their own loops and ports
        client.execute(env={**os.environ, **services, "PATH": path})


def save(notebook: Any, file: Path, folder: Path) -> None:
    """Without what is gone tomorrow (widgets, times) or true of this machine only."""
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if WIDGET not in one.get("data", {})]
            for output in cell.outputs:
                output.get("metadata", {}).clear()
                if output.output_type == "stream":
                    output.text = output.text.replace(f"{folder}/", "")
    nbformat.write(notebook, file)


def outputs(notebook: Any, mime: str) -> list[str]:
    return [
        output["data"][mime]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if mime in output.get("data", {})
    ]


def texts_of(notebook: Any) -> str:
    printed = [o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "stream"]
    return "\n".join([*outputs(notebook, "text/plain"), *printed])


@pytest.mark.parametrize("file", each())
def test_it_runs_draws_and_shows_what_it_says(execute, file):
    executed = execute(file)

    assert any("<svg" in page for page in outputs(executed, "text/html"))
    assert outputs(executed, "image/svg+xml")
    shown = texts_of(executed)
    for words in SAID.get(file.stem, ()):
        assert words in shown
    if file.stem == "01-first-steps":
        assert_shows_a_run_a_table_a_failure_and_a_retry(executed, shown)


def assert_shows_a_run_a_table_a_failure_and_a_retry(executed: Any, shown: str) -> None:
    pages = outputs(executed, "text/html")
    assert any("✓ sample × 12" in page for page in pages)
    assert any("<table" in page for page in pages)
    assert any("✗ read × 3" in page for page in pages)
    assert "read-west, attempt 2 of 2: FileNotFoundError" in shown
    assert "'read-west': 'completed, attempt" in shown


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_saved_has_its_outputs_without_a_widget_that_is_gone(file):
    notebook = nbformat.read(file, as_version=4)

    assert outputs(notebook, "text/html")
    assert not outputs(notebook, WIDGET)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_saved_names_names_no_machine(file):
    saved = file.read_text(encoding="utf-8")

    assert "/home/" not in saved
    assert "/work/" not in saved
    assert "/tmp/" not in saved
    assert str(Path.home()) + "/" not in saved
