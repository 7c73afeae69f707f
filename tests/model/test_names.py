"""Names of runs, tasks and services, and what is derived from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import UsageError
from dagkit.model.names import (
    ServiceNames,
    check_task_name,
    check_workflow_id,
    closest,
    fold_id,
    partition_key,
    path_name,
)
from model.cases import load_cases


@pytest.mark.parametrize("case", load_cases("refs", "names"))
def test_service_names_are_made_from_the_prefix(case: dict[str, Any]) -> None:
    names = ServiceNames(case["prefix"])

    assert {kind: getattr(names, kind) for kind in case["names"]} == case["names"]


@pytest.mark.parametrize("case", load_cases("refs", "partition"))
def test_a_run_has_its_partition(case: dict[str, Any]) -> None:
    assert {run: partition_key(run) for run in case["partition"]} == case["partition"]
    assert partition_key("wf-1") == "wf-0b"


@pytest.mark.parametrize("case", load_cases("refs", "workflow_id"))
def test_a_case_may_or_may_not_be_an_id(case: dict[str, Any]) -> None:
    if case["valid"]:
        assert check_workflow_id(case["workflow_id"]) == case["workflow_id"]
    else:
        with pytest.raises(UsageError):
            check_workflow_id(case["workflow_id"])


@pytest.mark.parametrize(
    "text",
    ["", " ", "a/b", "a\\b", "a#b", "a?b", "a\nb", "a\x7fb", "..", ".", "\ud800", "x" * 201, "é" * 101, None, 3, b"x"],
)
def test_an_id_that_no_store_could_keep_is_refused_with_the_rule(text: object) -> None:
    with pytest.raises(UsageError, match="An id is 1 to 200 bytes"):
        check_workflow_id(text)


@pytest.mark.parametrize("text", ["x" * 200, "run 1", "läuft", "a.b", "...", "3f9c"])
def test_ordinary_ids_are_taken(text: str) -> None:
    assert check_workflow_id(text) == text


@pytest.mark.parametrize(
    ("name", "mentions"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("__merge_a_0", "reserved"),
        ("__", "reserved"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a\u2028b", "control"),
        ("\ud800", "control"),
        ("../a", "between slashes"),
        ("a/./b", "between slashes"),
        ("x" * 801, "characters"),
        (3, "not text"),
        (None, "not text"),
    ],
)
def test_a_task_name_that_could_do_harm_is_refused(name: object, mentions: str) -> None:
    with pytest.raises(UsageError, match=mentions):
        check_task_name(name)


@pytest.mark.parametrize(
    "name", ["a", "_a", "a__", "prep/feat", "train-1", "with space", "Größe", "日本", "a..b", "x\u00a0y", "x" * 800]
)
def test_ordinary_task_names_are_taken(name: str) -> None:
    assert check_task_name(name) == name


@pytest.mark.parametrize("prefix", ["", "1abc", "a-b", "a/b", "x" * 43, "é"])
def test_a_prefix_that_no_table_could_have_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="prefix"):
        ServiceNames(prefix)


# --- file names

ANY_NAME = st.text(max_size=300)


@given(ANY_NAME)
def test_a_file_name_is_one_safe_component(name: str) -> None:
    made = path_name(name)

    assert len(made.encode()) <= 200
    assert "/" not in made
    assert made.isascii()
    assert made.isprintable()
    assert not made.startswith((".", "-"))
    assert bool(made) is bool(name)


@given(
    st.lists(ANY_NAME, min_size=2, max_size=2, unique=True)
    | st.tuples(st.text("a/%~.-_é", max_size=4), st.text("a/%~.-_é", max_size=4))
)
def test_different_tasks_have_different_files(names: Any) -> None:
    one, other = names

    assert (path_name(one) == path_name(other)) is (one == other)


def test_readable_names_stay_readable() -> None:
    assert path_name("train-1_b.x") == "train-1_b.x"
    assert path_name("prep/feat 2") == "prep%2Ffeat%202"
    assert path_name("..") == "%2E."
    assert path_name("-rf") == "%2Drf"


def test_long_names_that_differ_at_the_end_have_different_files() -> None:
    made = {path_name("/" * 300 + str(number)) for number in range(50)}

    assert len(made) == 50
    assert {len(name) <= 200 for name in made} == {True}


# --- for people


def test_ids_are_folded_in_the_middle() -> None:
    assert fold_id("3f9c0123456789abcdef0123456789d1") == "3f9c…d1"
    assert fold_id("my-run") == "my-run"


def test_a_similar_name_is_found_and_a_different_one_is_not() -> None:
    assert closest("train-gn", ["prep", "train-gnn", "deploy"]) == ["train-gnn"]
    assert closest("xyz", ["prep", "train-gnn"]) == []
    assert closest("fit-10x", [f"fit-{number}" for number in range(100_000)] + ["fit-100x"]) == ["fit-100x"]
