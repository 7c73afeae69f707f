"""What a viewer says of a run, and what it costs to say it."""

from __future__ import annotations

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import UnknownTask
from dagkit.model.messages import Completion
from dagkit.model.states import TaskState
from dagkit.viewing import Filter, RunViewer

DONE = {"state": "completed", "attempt_no": 1, "usage": {"wall_s": 2.0, "peak_rss_bytes": 1024}}


def failed(message: str, at: str = "2026-01-01T00:00:00+00:00") -> dict:
    return {"state": "failed", "attempt_no": 1, "error": f"{message}\nTraceback", "completed_at": at}


def test_groups_carry_counts_medians_and_peaks(run):
    look = RunViewer(run(3, {"prepare": DONE, "train-0": DONE, "train-1": failed("boom")})).look()

    prepare, train, compare = look.groups
    assert (prepare.title, prepare.counts.completed, prepare.median_s, prepare.peak_bytes) == ("prepare", 1, 2.0, 1024)
    assert (train.title, train.size) == ("train × 3", 3)
    assert (train.counts.completed, train.counts.failed, train.counts.pending) == (1, 1, 1)
    assert compare.median_s is None


def test_failures_are_newest_first_and_at_most_twenty(run):
    entries = {f"train-{i}": failed(f"no {i}", f"2026-01-01T00:00:{i:02}+00:00") for i in range(30)}

    look = RunViewer(run(30, entries)).look()

    assert [row.name for row in look.failures] == [f"train-{i}" for i in range(29, 9, -1)]


def test_the_mark_moves_only_with_what_is_shown(run):
    viewer = RunViewer(run(3))

    first, second = viewer.look(), viewer.look()

    assert first.mark == second.mark


def test_a_calm_look_reads_no_tasks(run, counting):
    shown = run(500, {"prepare": DONE})
    store = counting(shown)
    viewer = RunViewer(shown)
    viewer.look()
    whole, named = store.whole, store.named

    for _ in range(10):
        viewer.look()

    assert (store.whole, store.named) == (whole, named)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter(), ["train-2", "prepare", "train-0", "train-1", "compare"]),  # trouble first, else as defined
        (Filter(trouble_first=False), ["prepare", "train-0", "train-1", "train-2", "compare"]),
        (Filter(states=frozenset({TaskState.COMPLETED})), ["prepare", "train-0"]),
        (Filter(group="train-0"), ["train-2", "train-0", "train-1"]),
        (Filter(prefix="train-", trouble_first=False), ["train-0", "train-1", "train-2"]),
        (Filter(text="BOOM"), ["train-2"]),  # what failed tasks said is searched too
        (Filter(text="omp"), ["compare"]),
        (Filter(group="no such group"), []),
    ],
)
def test_a_page_holds_what_passes_the_filter(run, wanted, names):
    viewer = RunViewer(run(3, {"prepare": DONE, "train-0": DONE, "train-2": failed("Boom: no")}))

    page = viewer.page(wanted)

    assert [row.name for row in page.rows] == names
    assert page.total == len(names)


def test_a_page_of_many_reads_only_its_rows(run, counting):
    shown = run(5_000)
    viewer = RunViewer(shown)
    viewer.look()
    store = counting(shown)

    page = viewer.page(Filter(group="train-0"), offset=4_000, limit=50)

    assert [page.rows[0].name, len(page.rows), page.total] == ["train-4000", 50, 5_000]
    assert (store.whole, store.named) == (0, 50)


@pytest.mark.parametrize(("offset", "first"), [(-5, 0), (0, 0), (4_999, 9)])
def test_an_offset_outside_is_moved_inside(run, offset, first):
    assert RunViewer(run(8)).page(offset=offset).offset == first


def test_detail_and_group_of_a_task(run):
    viewer = RunViewer(run(3, {"train-1": failed("boom")}))

    assert viewer.detail("train-1").error == "boom\nTraceback"
    assert viewer.group_of("train-1") == "train-0"
    assert viewer.group_of("nobody") is None
    with pytest.raises(UnknownTask):
        viewer.detail("nobody")


def test_effects_are_told_in_numbers(run):
    entries = {"prepare": DONE, "train-0": DONE, "train-1": failed("x"), "compare": {"state": "upstream_failed"}}
    viewer = RunViewer(run(2, entries, "failed"))

    retry, rerun = viewer.effect_of_retry(), viewer.effect_of_rerun(["prepare"])

    assert (retry.tasks, retry.others) == (1, 1)
    assert (rerun.tasks, rerun.others, rerun.completed, rerun.is_refused) == (1, 3, 2, "")


def test_a_rerun_of_what_runs_is_refused_beforehand(run):
    effect = RunViewer(run(2, {"train-0": {"state": "running"}})).effect_of_rerun(["prepare"])

    assert "train-0 is running" in effect.is_refused


def test_a_run_without_trouble_is_followed_without_reading_its_tasks(run, counting):
    """What the coordinator counts by group is saved beside the state: a viewer costs by groups, never by tasks."""
    shown = run(2_000)
    stored = shown.store.load("run")
    state, etag = WorkflowState.load(shown.spec, stored.state), stored.etag
    (first,) = state.dispatch(1.0)
    state.apply(Completion("run", first.name, True, attempt=1), 1.0)
    etag = shown.store.save("run", state.take_changes(), etag)
    viewer, store = RunViewer(shown), counting(shown)
    viewer.look()

    for _ in range(5):
        for one in state.dispatch(1.0, lambda queue: 100):
            state.apply(Completion("run", one.name, True, attempt=1), 1.0)
        etag = store.save("run", state.take_changes(), etag)
        look, page = viewer.look(), viewer.page()

    assert [group.counts.completed for group in look.groups] == [1, 500, 0]
    assert (page.total, page.rows[0].state) == (2_002, TaskState.COMPLETED)
    assert store.whole == 0


def test_after_a_failure_the_page_begins_with_it(run, counting):
    shown = run(50)
    stored = shown.store.load("run")
    state = WorkflowState.load(shown.spec, stored.state)
    (first,) = state.dispatch(1.0)
    state.apply(Completion("run", first.name, True, attempt=1), 1.0)
    viewer, store = RunViewer(shown), counting(shown)
    attempts = state.dispatch(1.0)
    state.apply(Completion("run", attempts[30].name, False, attempt=1, error="ValueError: no"), 1.0)
    store.save("run", state.take_changes(), stored.etag)

    look, page = viewer.look(), viewer.page()

    assert [row.name for row in look.failures] == ["train-30"]
    assert page.rows[0].name == "train-30"
    assert store.whole == 1


def test_a_page_that_is_behind_says_so_until_all_tasks_may_be_read_again(run):
    """20,000 tasks completed at once and then nothing: the table of completed ones stayed as it had been, for ever."""
    now = [0.0]
    shown = run(4)
    viewer = RunViewer(shown, clock=lambda: now[0])
    completed = Filter(states=frozenset({TaskState.COMPLETED}))
    assert viewer.page(completed).is_current
    stored = shown.store.load("run")
    state = WorkflowState.load(shown.spec, stored.state)
    (first,) = state.dispatch(1.0)
    state.apply(Completion("run", first.name, True, attempt=1), 1.0)
    shown.store.save("run", state.take_changes(), stored.etag)

    behind = viewer.page(completed)
    now[0] += 10.0
    current = viewer.page(completed)

    assert (behind.total, behind.is_current) == (0, False)
    assert (current.total, current.is_current) == (1, True)


def test_rows_keep_their_place_under_somebody_who_has_scrolled_down(run):
    """Each new failure moved every row down by one, away from who was reading it."""
    now = [0.0]
    shown = run(50)
    viewer = RunViewer(shown, clock=lambda: now[0])
    before = [row.name for row in viewer.page(offset=20, limit=5).rows]
    stored = shown.store.load("run")
    state = WorkflowState.load(shown.spec, stored.state)
    (first,) = state.dispatch(1.0)
    state.apply(Completion("run", first.name, True, attempt=1), 1.0)
    state.apply(Completion("run", state.dispatch(1.0)[40].name, False, attempt=1, error="no"), 1.0)
    shown.store.save("run", state.take_changes(), stored.etag)
    now[0] += 10.0

    below = viewer.page(offset=20, limit=5)
    top = viewer.page(offset=0, limit=5)

    assert [row.name for row in below.rows] == before
    assert top.rows[0].name == "train-40"
