"""Tables are lists of rows that read well."""

from __future__ import annotations

import pandas

from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.tables import Table, usage_table


def task_row(name: str, template: str, wall_s: float, peak_bytes: int, attempt: int = 1) -> TaskRow:
    usage = {"wall_s": wall_s, "peak_rss_bytes": peak_bytes}
    state = TaskState.COMPLETED
    return TaskRow(name, state, attempt, 4, "cpu", template, (), 1.0, 2.0, "", None, None, 0, usage)


def test_usage_is_summed_up_by_template() -> None:
    mib = 2**20
    rows = [
        task_row(f"t-{k}", "t", seconds, peak * mib)
        for k, (seconds, peak) in enumerate([(10, 300), (20, 600), (30, 900)])
    ]

    (usage,) = usage_table(rows)

    assert (usage["tasks"], usage["attempts"]) == (3, 3)
    assert [usage[f"time_s_{s}"] for s in ("min", "median", "mean", "max")] == [10, 20, 20, 30]
    assert [usage[f"peak_mib_{s}"] for s in ("min", "median", "mean", "max")] == [300, 600, 600, 900]


def test_a_template_that_has_not_run_has_no_numbers() -> None:
    row = TaskRow("t", TaskState.PENDING, 0, 1, "cpu", "t", (), None, None, "", None, None, 0, {})

    (usage,) = usage_table([row])

    assert usage["time_s_max"] is None


def test_usage_is_looked_at_as_words_with_units_and_kept_as_numbers() -> None:
    """The table of all its numbers is wider than a screen, and a median of 5.31e-05 tells nobody anything."""
    usage = usage_table([task_row("t", "t", 0.00005, 300 * 2**20), task_row("u", "u", 185.0, 2**31)])

    head, first, second = repr(usage).splitlines()
    assert head.split("  ")[0] == "template"
    assert ("<1 ms" in first, "300 MiB" in first, "3:05" in second, "2.0 GiB" in second) == (True,) * 4
    assert "<td style='text-align:right'>3:05</td>" in usage._repr_html_()
    assert usage[0]["time_s_median"] == 0.00005
    assert "time_s_p95" in usage.to_frame().columns


def test_text_is_aligned_and_missing_values_are_dashes() -> None:
    table = Table([{"task": "a", "time_s": 1.23456}, {"task": "longer", "time_s": None}])

    assert repr(table).splitlines() == ["task    time_s", "a       1.23", "longer  –"]


def test_html_is_escaped() -> None:
    assert "&lt;script&gt;" in Table([{"task": "<script>"}])._repr_html_()


def test_an_empty_table_says_so_and_makes_an_empty_frame() -> None:
    table = Table([], columns=["task", "state"])

    assert repr(table) == "(no rows)"
    assert list(table.to_frame().columns) == ["task", "state"]


def test_a_frame_has_the_rows() -> None:
    frame = Table([{"task": "a"}, {"task": "b"}]).to_frame()

    pandas.testing.assert_frame_equal(frame, pandas.DataFrame({"task": ["a", "b"]}))
