from __future__ import annotations

import pytest

from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.notebook.grouping import group


def labels(spec):
    return [(found.label, len(found.members)) for found in group(spec).groups]


def test_the_tasks_of_a_template_are_one_group(sweep):
    assert labels(sweep) == [
        ("featurize", 1),
        ("split", 1),
        ("train", 128),
        ("compare", 1),
        ("deploy", 1),
        ("report", 1),
    ]


def test_an_edge_between_groups_is_listed_once(sweep):
    assert group(sweep).edges == {(0, 1), (0, 2), (2, 3), (3, 4), (3, 5), (1, 5)}


def test_numbered_names_without_a_template_are_one_group_from_four_on(build):
    four = build(*[(f"fit-{i}", []) for i in range(4)], ("load-1", []), ("load-2", []))

    assert labels(four) == [("fit", 4), ("load-1", 1), ("load-2", 1)]


@pytest.mark.parametrize("name", ["2024", "-7", "1"])
def test_a_name_that_is_only_a_number_stays_what_it_is(build, name):
    assert labels(build((name, []), *[(f"{name}{i}", []) for i in range(2, 6)]))[0][1] >= 1


def test_a_template_and_a_task_of_the_same_name_stay_apart(build):
    spec = build(("fit", []), ("fit-1", ["fit"], {"template": "fit"}), ("fit-2", ["fit"], {"template": "fit"}))

    assert labels(spec) == [("fit", 1), ("fit", 2)]


def test_a_template_that_depends_on_itself_gets_a_group_per_level(lattice):
    grouping = group(lattice(4, 20))

    assert [len(found.members) for found in grouping.groups] == [20, 20, 20, 20]
    assert grouping.edges == {(0, 1), (1, 2), (2, 3)}


def test_templates_that_alternate_get_a_group_per_level_and_the_others_do_not(build):
    rounds = [
        row
        for i in range(3)
        for row in (
            (f"move-{i}", [f"score-{i - 1}"] if i else ["start"], {"template": "move"}),
            (f"score-{i}", [f"move-{i}"], {"template": "score"}),
        )
    ]
    spec = build(("start", []), *rounds, *[(f"plot-{i}", [f"score-{i}"], {"template": "plot"}) for i in range(3)])

    assert labels(spec) == [("start", 1), *[("move", 1), ("score", 1)] * 3, ("plot", 3)]


def test_merge_nodes_are_seen_through():
    leaves = [TaskSpec.trusted(f"leaf-{i}", template="leaf") for i in range(4)]
    merges = [
        TaskSpec.trusted("__merge_sum_0", depends_on=("leaf-0", "leaf-1")),
        TaskSpec.trusted("__merge_sum_1", depends_on=("leaf-2", "leaf-3")),
        TaskSpec.trusted("__merge_sum_2", depends_on=("__merge_sum_0", "__merge_sum_1")),
    ]
    spec = WorkflowSpec.trusted("wide", [*leaves, *merges, TaskSpec.trusted("sum", depends_on=("__merge_sum_2",))])

    assert labels(spec) == [("leaf", 4), ("sum", 1)]
    assert group(spec).edges == {(0, 1)}
