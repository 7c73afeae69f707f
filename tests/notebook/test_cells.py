"""Runs in the cells of a real kernel: beside one another, awaited, interrupted, without the extra."""

from __future__ import annotations

import warnings
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = pytest.mark.xdist_group("browser")

WIDGET = "application/vnd.jupyter.widget-view+json"
FLOWS = """\
from dagkit import task, workflow
from pathlib import Path
import time

@task
def wait_for(gate):
    Path(f"{gate}.began").touch()
    while not Path(gate).exists():
        time.sleep(0.02)
    return gate

@workflow
def waiting(gate):
    return wait_for(gate)
"""
#: What the button does, once the task of the cell has begun.
PRESS_STOP = """\
import os, signal, threading

def press():
    while not Path("never.began").exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
"""


@pytest.fixture
def execute(tmp_path):
    """Runs cells in a fresh kernel; returns what each of them put out."""

    def run(*cells: str, allow_errors: bool = False) -> list[list[Any]]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        client = NotebookClient(
            notebook,
            timeout=60,
            allow_errors=allow_errors,
            resources={"metadata": {"path": str(tmp_path)}},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jupyter_client and pyzmq warn about their own loops and ports
            client.execute()
        return [cell.outputs for cell in notebook.cells]

    return run


def shown(outputs: list[Any], mime: str = "text/plain") -> str:
    return "\n".join(o["data"][mime] for o in outputs if mime in o.get("data", {}))


def test_a_run_goes_on_while_others_are_run_and_awaited(execute):
    outputs = execute(
        FLOWS,
        "slow = waiting('later').run(wait=False)\nslow",
        "Path('now').touch()\nwaiting('now').run()",
        "await waiting('now').run(wait=False)",
        "before = slow.status\nPath('later').touch()\n(str(before), slow.result())",
    )

    assert "◐ wait_for" in shown(outputs[1]) or "○ wait_for" in shown(outputs[1])
    assert "✓ wait_for" in shown(outputs[2], "text/html")  # the still picture is that of the end
    assert shown(outputs[2]).count("live view of run") == 1  # the handle that the cell returns is not shown again
    assert shown(outputs[3]) == "'now'"
    assert shown(outputs[4]) == "('running', 'later')"


def test_an_interrupted_cell_says_how_to_go_on_and_what_it_shows_is_true(execute):
    outputs = execute(
        FLOWS,
        PRESS_STOP + "waiting('never').run(id='stopped')",
        "import dagkit\nPath('never').touch()\ndagkit.attach('stopped').result()",
        allow_errors=True,
    )

    said = "".join(o.text for o in outputs[1] if o.output_type == "stream")
    assert "go on with dagkit.attach('stopped')" in said
    (error,) = [o for o in outputs[1] if o.output_type == "error"]
    assert error.traceback[-1] == "KeyboardInterrupt"
    assert "driver.py" not in "".join(error.traceback)
    assert shown(outputs[2]) == "'never'"


def test_closed_views_and_finished_runs_leave_no_thread(execute):
    outputs = execute(
        FLOWS,
        "import ipywidgets, threading\nslow = waiting('later').run(wait=False)\nslow",
        "views = lambda: [t.name for t in threading.enumerate() if t.name == 'dagkit-view']\nlen(views())",
        "ipywidgets.Widget.close_all()\nlen(views())",
        "Path('later').touch()\nslow.result()\nslow",  # shown again after it was closed
        "len(views())",
    )

    assert [shown(outputs[i]) for i in (2, 3, 5)] == ["1", "0", "0"]
    assert WIDGET in outputs[4][-1]["data"]


def test_without_the_extra_there_is_the_picture_and_a_sentence(execute):
    outputs = execute(
        "import sys\nsys.modules['anywidget'] = None  # as if it were not installed\n" + FLOWS,
        "Path('now').touch()\nrun = waiting('now').run()",
        "run",
    )

    for put_out in outputs[1:]:
        assert "✓ wait_for" in shown(put_out, "text/html")
        assert "pip install &#x27;dagkit[notebook]&#x27;" in shown(put_out, "text/html")
        assert not shown(put_out, WIDGET)


def test_an_error_in_a_cell_is_short(execute):
    with pytest.raises(CellExecutionError) as raised:
        execute(FLOWS, "import dagkit\ndagkit.attach('nobody')")

    text = str(raised.value)
    assert "UnknownRun" in text
    assert "dagkit.attach('nobody')" in text
    assert "launch.py" not in text
