"""Statistics of what tasks used, by template."""

from __future__ import annotations

from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.tables import usage_table


def row(seconds: float, peak_bytes: int, wait_s: float, host: str) -> TaskRow:
    used = {"wall_s": seconds, "peak_rss_bytes": peak_bytes, "wait_s": wait_s, "started_at": 1.0, "host": host}
    return TaskRow("t", TaskState.COMPLETED, 2, 3, "q", "train", (), None, None, "", None, None, 0, used)


def test_the_numbers_of_the_facts_page() -> None:
    """10, 20, 30 s and 300, 600, 900 B."""
    (found,) = usage_table([row(10, 300, 1, "a"), row(20, 600, 2, "b"), row(30, 900, 3, "a")])
    assert (found["template"], found["tasks"], found["attempts"], found["hosts"]) == ("train", 3, 6, 2)
    assert [found[f"time_s_{part}"] for part in ("min", "median", "mean", "p95", "max")] == [10, 20, 20, 30, 30]
    assert [found[f"peak_mib_{part}"] * 2**20 for part in ("min", "median", "mean", "max")] == [300, 600, 600, 900]
    assert [found[f"wait_s_{part}"] for part in ("min", "mean", "max")] == [1, 2, 3]


def test_what_was_not_measured_is_none() -> None:
    bare = TaskRow("t", TaskState.COMPLETED, 1, 1, "q", "x", (), None, None, "", None, None, 0, {})
    (found,) = usage_table([bare])
    assert found["wait_s_mean"] is None
    assert found["peak_mib_p95"] is None
    assert found["hosts"] is None
