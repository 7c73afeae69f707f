"""What happened, as it can be read off a run: newest first, bounded."""

from __future__ import annotations

import pytest

from dagkit.rows import task_row
from dagkit.viewing import RunViewer, advice, failure_words

DONE = {"state": "completed", "attempt_no": 1, "completed_at": 20.0}
PAST = {"attempt": 1, "kind": "memory", "started_at": 10.0, "wall_s": 2.0}


def events(run) -> list[tuple]:
    viewer = RunViewer(run)
    viewer.look()
    return [(event.at, event.state, event.subject, event.text) for event in viewer.events()]


def test_a_run_that_was_submitted_has_one_event(run):
    shown = events(run(2))

    assert [(state, text) for _, state, _, text in shown] == [("pending", "submitted: 4 tasks")]


def test_failures_skips_retries_and_ends_are_told_newest_first(run):
    failed = {"state": "failed", "attempt_no": 2, "error": "MemoryError: no\nTraceback", "completed_at": 30.0}
    entries = {
        "train-0": DONE,
        "train-1": {**failed, "past": [PAST], "resources": {"memory": "4G"}},
        "compare": {"state": "skipped", "error": "its condition did not hold", "completed_at": 40.0},
    }

    assert events(run(2, entries, "failed"))[-4:] == [
        (40.0, "skipped", "compare", "its condition did not hold"),
        (30.0, "failed", "train × 2", "all 2 have ended, 1 of them not completed"),
        (30.0, "failed", "train-1", "MemoryError: no"),
        (12.0, "ready", "train-1", "attempt 1 failed (memory): memory → 4G"),
    ]


def test_the_end_of_a_run_is_the_first_of_what_is_told(run):
    shown = events(run(2, {"train-0": DONE}, "cancelled"))

    assert (shown[0][1], shown[0][3]) == ("cancelled", "the run was cancelled")


def test_however_much_happened_a_hundred_events_are_told(run):
    entries = {
        f"train-{i}": {"state": "failed", "attempt_no": 1, "error": "no", "completed_at": float(i)} for i in range(500)
    }

    shown = events(run(500, entries))

    assert len(shown) == 100
    assert shown[-1][0] >= 400.0


def test_they_are_read_again_only_when_something_changed(run, counting):
    shown = run(50, {"train-0": DONE})
    viewer, store = RunViewer(shown), counting(shown)
    viewer.look()
    viewer.events()
    before = store.whole

    for _ in range(5):
        viewer.events()

    assert store.whole == before


@pytest.mark.parametrize(
    ("before", "then", "words"),
    [
        ({"attempt": 1, "kind": "user"}, {}, "attempt 1 failed (user)"),
        ({"attempt": 2, "kind": None}, {}, "attempt 2 failed (user)"),
        (
            {"attempt": 2, "kind": "memory", "resources": {"memory": "27G", "cores": 4}},
            {"resources": {"memory": "40G", "cores": 4}},
            "attempt 2 failed (memory): memory 27G → 40G",
        ),
    ],
)
def test_what_changed_between_two_attempts_is_told(before, then, words):
    assert failure_words(before, then) == words


def test_what_a_task_asked_for_at_first_is_what_its_definition_says(run):
    shown = run(1, {"train-0": {**DONE, "attempt_no": 2, "past": [PAST], "resources": {"memory": "4G"}}})

    first, second = RunViewer(shown).attempts(shown.task("train-0"))

    assert (first["attempt"], first["resources"]) == (1, {})
    assert (second["attempt"], second["resources"], second["state"]) == (2, {"memory": "4G"}, "completed")


@pytest.mark.parametrize(("kind", "said"), [("memory", "memory="), ("timeout", "timeout="), ("user", ""), ("odd", "")])
def test_advice_is_by_the_kind_of_failure(run, kind, said):
    row = task_row(run(1).spec, 1, {"state": "failed", "attempt_no": 1, "error": "no", "kind": kind})

    assert said in advice(row)
    assert bool(advice(row)) == bool(said)


def test_usage_is_by_group_with_what_was_asked_for(run):
    usage = {"wall_s": 2.0, "cpu_s": 3.0, "peak_rss_bytes": 100, "started_at": 5.0, "wait_s": 1.5}
    entries = {f"train-{i}": {**DONE, "usage": {**usage, "wall_s": 2.0 + i}} for i in range(3)}
    entries["train-0"]["past"] = [{**PAST, "peak_rss_bytes": 900}]
    viewer = RunViewer(run(4, entries))
    viewer.look()

    used = {group.title: used for group, used in viewer.usage()}

    train = used["train × 4"]
    assert (train.measured, train.median_s, train.longest_s) == (3, 3.0, 4.0)
    assert (train.peak_bytes, train.cores, train.wait_s) == (900, 1.0, 1.5)
    assert used["prepare"].measured == 0
