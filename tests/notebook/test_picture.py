from __future__ import annotations

import pytest

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.notebook.palette import COLOURS, GLYPHS, headline, present
from dagkit.notebook.picture import Picture


def box(spec, title):
    return next(found for found in Picture.of(spec).boxes if found.title == title)


def test_a_map_is_one_box_with_its_count(sweep):
    assert [found.title for found in Picture.of(sweep).boxes] == [
        "featurize",
        "split",
        "train × 128",
        "compare",
        "deploy",
        "report",
    ]
    assert box(sweep, "train × 128").queue == "gpu-a100"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("all", ""),
        ("any", "needs any of 3"),
        (2, "needs any 2 of 3"),
        ("all_settled", "once all 3 have ended"),
    ],
)
def test_a_policy_is_said_in_words(build, policy, words):
    spec = build(("a", []), ("b", []), ("c", []), ("join", ["a", "b", "c"], {"dep_policy": policy}))

    assert box(spec, "join").needs == words


def test_policies_that_differ_within_a_map_are_not_guessed(build):
    join = [
        (f"join-{i}", ["a", "b"], {"template": "join", "dep_policy": policy}) for i, policy in enumerate(["any", 1])
    ]

    assert box(build(("a", []), ("b", []), *join), "join × 2").needs == "needs: one policy per task"


def test_a_condition_reads_without_its_syntax(build):
    spec = build(("a", []), ("b b", []), ("c", ["a", "b b"], {"condition": 'inputs.a.ok and inputs["b b"].mae < 1'}))

    assert box(spec, "c").when == "when a.ok and b b.mae < 1"


def test_conditions_that_differ_within_a_map_are_not_guessed(build):
    def mapped(*conditions):
        tasks = [
            (f"t-{i}", ["a"], {"template": "t", "condition": text} if text else {"template": "t"})
            for i, text in enumerate(conditions)
        ]
        return build(("a", []), *tasks)

    assert box(mapped("inputs.a > 1", "inputs.a > 2"), "t × 2").when == "when its own condition holds"
    assert box(mapped("inputs.a > 1", None), "t × 2").when == "some only when a condition holds"


def test_several_queues_of_a_map_are_named(build):
    spec = build(*[(f"t-{i}", [], {"template": "t", "queue": f"q{i % 3}"}) for i in range(6)])

    assert box(spec, "t × 6").queue == "q0 and 2 other queues"


def test_ten_thousand_tasks_in_a_chain_make_a_handful_of_boxes(chain):
    picture = Picture.of(chain(10_000))

    assert len(picture.boxes) == 6
    assert picture.boxes[3].title == "… 9,995 more …"
    assert picture.boxes[3].queue == "step-3 to step-9997"
    assert picture.size == "10,000 tasks"


def test_counts_are_per_box_and_a_task_without_a_state_is_pending(sweep, sweep_states):
    tallies = Picture.of(sweep).tally(sweep_states)

    assert tallies[2] == Counts(completed=90, failed=2, running=8, ready=5, pending=23)
    assert tallies[4] == Counts(pending=1)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (Counts(completed=9, failed=1), TaskState.FAILED),
        (Counts(completed=9, upstream_failed=1), TaskState.UPSTREAM_FAILED),
        (Counts(completed=9, cancelled=1), TaskState.CANCELLED),
        (Counts(completed=1, running=1, ready=1, pending=1), TaskState.RUNNING),
        (Counts(completed=1, pending=1), TaskState.PENDING),
        (Counts(completed=1, skipped=1), TaskState.COMPLETED),
        (Counts(skipped=2), TaskState.SKIPPED),
        (Counts(), TaskState.PENDING),
    ],
)
def test_trouble_speaks_for_a_box_first(counts, state):
    assert headline(counts) is state


def test_every_state_has_a_glyph_and_a_colour_and_a_place():
    everything = Counts(**{state.value: 1 for state in TaskState})

    assert set(GLYPHS) == set(COLOURS) == set(TaskState) == {state for state, _ in present(everything)}
    assert len(set(GLYPHS.values())) == len(TaskState)
