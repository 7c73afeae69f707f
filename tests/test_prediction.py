"""Suggested resources, from what was used."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit.model.states import TaskState
from dagkit.prediction import percentile_of, suggestions
from dagkit.rows import TaskRow

GIB = 1 << 30


def row(template: str, usage: dict[str, Any], state: TaskState = TaskState.COMPLETED, **more: Any) -> TaskRow:
    resources = more.pop("resources", {})
    return TaskRow("t", state, 1, 1, "long", template, (), None, None, "", None, None, 0, usage, resources)


def test_the_suggestion_covers_nearly_all_with_a_margin() -> None:
    rows = [row("train", {"peak_rss_bytes": n * GIB, "wall_s": 60.0 * n}) for n in range(1, 101)]
    assert suggestions(rows, margin=0.1, percentile=99) == {
        "train": {"memory": "109G", "runtime": "2h", "queue": "long"}
    }
    assert suggestions(rows, margin=0.0, percentile=50)["train"] == {"memory": "50G", "runtime": "50m", "queue": "long"}


def test_only_completed_tasks_and_only_what_was_measured_count() -> None:
    rows = [
        row("a", {"wall_s": 30.0}),
        row("a", {"wall_s": 9000.0, "peak_rss_bytes": 99 * GIB}, TaskState.FAILED),
        row("b", {}),
        row("c", {"peak_rss_bytes": 1000}, resources={"cores": 4}),
    ]
    assert suggestions(rows, margin=0.1, percentile=99) == {
        "a": {"runtime": "60s", "queue": "long"},
        "c": {"memory": "64M", "cores": 4, "queue": "long"},
    }


@pytest.mark.parametrize(("percentile", "value"), [(0, 10), (50, 20), (66, 20), (67, 30), (100, 30)])
def test_percentiles_are_values_that_were_seen(percentile: float, value: float) -> None:
    assert percentile_of([30, 10, 20], percentile) == value


@pytest.mark.parametrize(("percentile", "margin"), [(101, 0), (-1, 0), (50, -0.1)])
def test_bounds(percentile: float, margin: float) -> None:
    with pytest.raises(ValueError, match="allowed are"):
        suggestions([], margin=margin, percentile=percentile)
