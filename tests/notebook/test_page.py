"""A run as a saved notebook has it: whole without a live view, bounded, and safe with any text."""

from __future__ import annotations

import re

import nbformat
import pytest

from dagkit.notebook import show
from watched_runs import stored

DONE = {"state": "completed", "attempt_no": 1, "usage": {"wall_s": 2.0, "peak_rss_bytes": 2**30}}


def failed(message: str) -> dict:
    return {"state": "failed", "attempt_no": 1, "error": message}


def test_it_has_the_graph_the_groups_and_what_failed():
    bundle = show.bundle(stored(3, {"prepare": DONE, "train-1": failed("ValueError: too large\nmore")}))

    assert "<svg" in bundle["text/html"]
    assert "✗ train × 3" in bundle["text/html"]
    assert "ValueError: too large" in bundle["text/html"]
    assert re.search("<td[^>]*>train</td><td[^>]*>3</td><td[^>]*>–</td><td[^>]*>1</td>", bundle["text/html"])
    assert bundle["image/svg+xml"].startswith("<svg")
    assert "✗ train-1  ValueError: too large" in bundle["text/plain"]


def test_text_of_users_is_text():
    bundle = show.bundle(stored(1, {"prepare": failed("<script>alert(1)</script>")}))

    assert "<script" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]


@pytest.mark.parametrize("size", [100, 20_000])
def test_its_size_does_not_grow_with_the_tasks(size):
    entries = {f"train-{i}": failed("x" * 10_000) for i in range(50)}

    assert len(show.bundle(stored(size, entries))["text/html"]) < 12_000


def test_a_saved_notebook_converts_to_a_page_with_graph_and_table():
    """The widget of a saved notebook is gone; what stands beside it has to be taken."""
    from nbconvert import HTMLExporter

    run = stored(3, {"prepare": DONE})
    widget = {"version_major": 2, "version_minor": 0, "model_id": "gone"}
    data = {**show.bundle(run), "application/vnd.jupyter.widget-view+json": widget}
    cell = nbformat.v4.new_code_cell("run", outputs=[nbformat.v4.new_output("display_data", data=data)])

    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))

    assert "dagkit-graph" in page
    assert ">train</td>" in page


def test_it_says_who_drives_a_run_that_is_not_over_and_has_a_column_for_each_state_there_is():
    going, over = show.bundle(stored(2, {"prepare": DONE})), show.bundle(stored(2, {"prepare": DONE}, "cancelled"))

    assert "driven by nobody" in going["text/html"]
    assert "driven by nobody" in going["text/plain"]
    assert "driven by" not in over["text/html"]
    assert "✓ completed</th>" in going["text/html"]
    assert "failed</th>" not in going["text/html"]
