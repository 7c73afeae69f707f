"""Every notebook runs from top to bottom in a fresh kernel, in a folder of its own."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
LIMIT_S = 180


@pytest.fixture(scope="module")
def executed(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param.stem)
    notebook = nbformat.read(request.param, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jupyter_client and pyzmq warn about their own loops and ports
        NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}}).execute()
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


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_saved_names_no_machine(file):
    saved = file.read_text(encoding="utf-8")

    assert "/home/" not in saved
    assert "/work/" not in saved
    assert str(Path.home()) + "/" not in saved
