"""Runs and tasks as text."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.cli import render
from dagkit.cli.view import RunView, layers_of, view_of
from dagkit.model.records import Counts, RunRow
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import RunStatus, TaskState
from dagkit.notebook.graph import picture
from dagkit.rows import TaskRow, task_row
from dagkit.wording import width

NOW = 10_000.0
RUN = "3f9c0123456789abcdef0123456789d1"


def sweep(trains: int = 128) -> WorkflowSpec:
    names = [f"train-{number}" for number in range(trains)]
    return WorkflowSpec.from_dict(
        {
            "name": "sweep",
            "default_queue": "cpu",
            "tasks": [
                {"name": "featurize"},
                *({"name": n, "depends_on": ["featurize"], "queue": "gpu-a100", "template": "train"} for n in names),
                {"name": "compare", "depends_on": names, "dep_policy": min(100, trains)},
            ],
        }
    )


def rows_of(spec: WorkflowSpec, entries: dict[str, dict[str, Any]]) -> list[TaskRow]:
    return [task_row(spec, index, entries.get(task.name, {})) for index, task in enumerate(spec.tasks)]


def view(
    entries: dict[str, dict[str, Any]], *, status: str = "running", driven_by: str | None = "notebook (host-a)"
) -> RunView:
    spec = sweep()
    rows = rows_of(spec, entries)
    counts = Counts()
    for row in rows:
        setattr(counts, row.state.value, counts.of(row.state) + 1)
    run = RunRow(
        "3f9c0123456789abcdef0123456789d1", "sweep", RunStatus(status), counts, NOW - 40, NOW - 1, driven_by=driven_by
    )
    return view_of(run, picture(spec), rows, NOW)


def entries(**states: int) -> dict[str, dict[str, Any]]:
    """Featurize completed, and so many train tasks in each state."""
    result: dict[str, dict[str, Any]] = {
        "featurize": {"state": "completed", "completed_at": NOW - 35, "usage": {"wall_s": 12}}
    }
    number = 0
    for state, count in states.items():
        for _ in range(count):
            entry: dict[str, Any] = {"state": state, "attempt_no": 1}
            if state == "completed":
                entry |= {"completed_at": NOW - 10, "usage": {"wall_s": 38.0, "peak_rss_bytes": 39.8 * 2**30}}
            if state == "failed":
                entry |= {
                    "completed_at": NOW - number,
                    "error": "MemoryError: batch of 8192 does not fit\nTraceback ...",
                }
            result[f"train-{number}"] = entry
            number += 1
    return result


def text_of(run: RunView, columns: int = 120) -> str:
    return click.unstyle(render.status_view(run, columns))


def test_the_heading_says_state_progress_rate_and_driver() -> None:
    heading = text_of(view(entries(completed=90, failed=2, running=8))).splitlines()[0]

    assert heading == ("sweep  3f9c…d1   ◐ running   93 of 130   3.0/s   about 12 s left   driven by notebook (host-a)")


def test_groups_are_lines_with_numbers_and_what_they_wait_for() -> None:
    lines = text_of(view(entries(completed=90, failed=2, running=8))).splitlines()

    assert lines[3].split() == ["group", "tasks", "✓", "✗", "◐", "queue", "median", "peak"]
    assert lines[4].split() == ["featurize", "1", "1", "·", "·", "cpu", "12", "s"]
    assert lines[5].split() == ["train", "128", "90", "2", "8", "gpu-a100", "38", "s", "39.8", "GiB"]
    assert lines[6].split()[:1] == ["compare"]
    assert "needs any 100" in lines[6]


def test_trouble_names_the_task_its_error_and_what_to_type() -> None:
    lines = text_of(view(entries(completed=90, failed=2, running=8))).splitlines()
    trouble = [line for line in lines if "MemoryError" in line]

    assert trouble[0].startswith("  ✗ train-90   MemoryError: batch of 8192 does not fit")
    assert trouble[0].endswith("dagkit logs 3f9c0123 train-90")
    assert trouble[1].endswith("dagkit retry 3f9c0123")
    assert "Traceback" not in "\n".join(lines)


def test_one_failure_still_shows_both_commands() -> None:
    text = text_of(view(entries(failed=1)))

    assert "dagkit logs 3f9c0123 train-0" in text
    assert "dagkit retry 3f9c0123" in text


def test_many_failures_are_folded_with_the_command_that_lists_them() -> None:
    text = text_of(view(entries(failed=12)))

    assert text.count("✗ train-") == 5
    assert "and 7 more: dagkit tasks 3f9c0123 --status failed" in text


def test_a_run_that_nobody_drives_says_what_to_start() -> None:
    assert "nobody drives this run: start `dagkit coordinator`" in text_of(view(entries(running=1), driven_by=None))


def test_a_skip_that_could_not_be_decided_is_shown() -> None:
    undecided = {"compare": {"state": "skipped", "error": "condition unknown: inputs.A.mae: missing"}}

    assert "↷ compare   condition unknown: inputs.A.mae: missing" in text_of(view(undecided))


def test_text_of_users_is_not_obeyed() -> None:
    bad = {"train-0": {"state": "failed", "error": "ValueError: [/red] [bold \x1b[2J"}}

    assert "ValueError: [/red] [bold \\x1b[2J" in text_of(view(bad))


def test_a_run_that_is_over_says_how_long_it_took() -> None:
    heading = text_of(view(entries(completed=128), status="completed")).splitlines()[0]

    assert "took 39 s   1 s ago" in heading
    assert "driven by" not in heading


def test_layers() -> None:
    spec = sweep(3)

    assert [(g.title, g.counts.total) for g in layers_of(spec, rows_of(spec, {}))] == [
        ("layer 0", 1),
        ("layer 1", 3),
        ("layer 2", 1),
    ]


@given(st.lists(st.integers(0, 100_000), min_size=8, max_size=8), st.integers(8, 200))
def test_a_bar_fills_its_columns_and_shows_every_state(numbers: list[int], columns: int) -> None:
    counts = Counts(*numbers)
    drawn = click.unstyle(render.bar(counts, columns))

    assert width(drawn) == (columns if counts.total else 0)
    assert len(set(drawn)) == sum(number > 0 for number in numbers)


def test_a_table_of_tasks_cuts_long_errors_and_says_how_many_dependencies_are_satisfied() -> None:
    spec = sweep(2)
    (row,) = [r for r in rows_of(spec, {"train-0": {"state": "failed", "error": "x" * 60}}) if r.name == "train-0"]

    short = click.unstyle(render.task_table([(row, 1, 1)])).splitlines()
    whole = click.unstyle(render.task_table([(row, 1, 1)], verbose=True)).splitlines()

    assert short[0].split() == ["Task", "Status", "Queue", "Deps", "Error"]
    assert short[1].split() == ["train-0", "✗", "failed", "gpu-a100", "1/1", "x" * 37 + "…"]
    assert whole[1].endswith("x" * 60)


@pytest.mark.parametrize(
    ("status", "words"),
    [(RunStatus.RUNNING, "◐ running"), ("strange", "strange"), (TaskState.UPSTREAM_FAILED, "⊘ upstream failed")],
)
def test_states_have_a_glyph_and_a_word(status: Any, words: str) -> None:
    assert click.unstyle(render.state_words(status)) == words


def test_progress_in_a_list() -> None:
    assert render.progress_words(Counts(completed=2, failed=1, pending=3)) == "2/6 done, 1 fail"
    assert render.progress_words(Counts(skipped=1)) == "0/1 done, 0 fail, 1 skip"
