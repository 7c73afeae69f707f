"""Every notebook runs from top to bottom in a fresh kernel, in a folder of its own."""

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


@pytest.fixture(scope="module")
def executed(tmp_path_factory, request):
    base = tmp_path_factory.mktemp(request.param.stem)
    shutil.copytree(ROOT / "examples" / "data", base / "examples" / "data")  # what notebooks read, where they find it
    folder = base / "notebooks"
    folder.mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    notebook = nbformat.read(request.param, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jupyter_client and pyzmq warn about their own loops and ports
        NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}}).execute(
            env=environment
        )
    return notebook


def outputs(notebook: Any, mime: str) -> list[str]:
    return [
        output["data"][mime]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if mime in output.get("data", {})
    ]


@pytest.mark.parametrize("executed", NOTEBOOKS, ids=lambda file: file.stem, indirect=True)
def test_it_runs_and_draws(executed):
    assert any("<svg" in page for page in outputs(executed, "text/html"))
    assert outputs(executed, "image/svg+xml")


@pytest.mark.parametrize("executed", [n for n in NOTEBOOKS if n.stem == "01-first-steps"], indirect=True)
def test_the_first_one_shows_a_run_a_table_a_failure_and_a_retry(executed):
    pages, texts = outputs(executed, "text/html"), outputs(executed, "text/plain")
    printed = "".join(
        o.text for c in executed.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "stream"
    )

    assert any("✓ sample × 12" in page for page in pages)
    assert any("<table" in page for page in pages)
    assert any("✗ read × 3" in page for page in pages)
    assert "read-west, attempt 2 of 2: FileNotFoundError" in printed
    assert any("'read-west': 'completed, attempt" in text for text in texts)


def texts_of(notebook: Any) -> str:
    printed = [o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "stream"]
    return "\n".join([*outputs(notebook, "text/plain"), *printed])


@pytest.mark.parametrize(
    ("executed", "said"),
    [
        (ROOT / "notebooks/02-parameter-sweep.ipynb", ["'forecast': 'completed'", "'give_up': 'skipped'", "13 cached"]),
        (ROOT / "notebooks/03-train-compare-deploy.ipynb", ["deploy/model.npy", "not enough to change anything"]),
        (ROOT / "notebooks/04-yaml-for-colleagues.ipynb", ["OK", "(6 tasks)", "✓ completed", "'weeks': 522", "True"]),
    ],
    indirect=["executed"],
)
def test_the_others_show_what_they_say(executed, said):
    shown = texts_of(executed)

    for words in said:
        assert words in shown


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_saved_has_its_outputs_without_a_widget_that_is_gone(file):
    notebook = nbformat.read(file, as_version=4)

    assert outputs(notebook, "text/html")
    assert not outputs(notebook, "application/vnd.jupyter.widget-view+json")


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_saved_names_names_no_machine(file):
    saved = file.read_text(encoding="utf-8")

    assert "/home/" not in saved
    assert "/work/" not in saved
    assert str(Path.home()) + "/" not in saved
