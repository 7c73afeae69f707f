"""YAML that reads back the same here, in PyYAML (1.1) and in ruamel (1.2), and is the same when written again."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dagkit.model.document import read_yaml
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.writing import write_json, write_yaml


def read_1_2(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(StringIO(text))


def everywhere(data: Any) -> str:
    """The text, after every reader has returned exactly these data."""
    text = write_yaml(data)
    for reader in (lambda text: read_yaml(text).data, yaml.safe_load, read_1_2):
        found = reader(text)
        assert found == data
        assert json.dumps(found, sort_keys=True) == json.dumps(data, sort_keys=True)  # types too: True is not 1
    assert write_yaml(read_yaml(text).data) == text
    return text


#: Short texts of the characters that make numbers, dates, words and signs of YAML 1.1 and 1.2.
TRICKY = st.text("0123456789:yYnNoO~.eE+-_", max_size=6)


@settings(max_examples=400)
@given(st.dictionaries(TRICKY, TRICKY, min_size=1, max_size=6))
def test_texts_that_look_like_something_else_survive_in_every_reader(data: dict[str, str]) -> None:
    everywhere(data)


@settings(max_examples=200)
@given(st.lists(TRICKY | st.text(" ,[]{}#&*!|>%@`'\"?:-ax\t", max_size=5), max_size=5))
def test_texts_on_one_line_survive_in_every_reader(items: list[str]) -> None:
    everywhere({"items": items, "block": [items, "x"]})


@settings(max_examples=300)
@given(st.text(" \nab:#-|>'\"\t\r\x85\u2028é", max_size=12))
def test_several_lines_survive_in_every_reader(text: str) -> None:
    everywhere({"x": text, "list": [{"y": text}], "deep": {"z": {text[:3]: text}}})


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=10))
def test_any_text_survives_here_and_in_pyyaml(text: str) -> None:
    data = {text: text, "nested": [text, {"x": text}]}

    written = write_yaml(data)

    assert read_yaml(written).data == data
    assert yaml.safe_load(written) == data
    assert write_yaml(read_yaml(written).data) == written


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(st.dictionaries(TRICKY, JSON, max_size=4))
def test_any_json_survives_in_every_reader(data: dict[str, Any]) -> None:
    everywhere(data)


TASKS = st.dictionaries(
    st.sampled_from(["a", "b/c", "no", "1e3", "x y", "é"]), st.dictionaries(TRICKY, JSON, max_size=3), min_size=1
)


@settings(max_examples=100)
@given(TASKS)
def test_a_workflow_is_written_the_same_again(tasks: dict[str, dict[str, Any]]) -> None:
    first = next(iter(tasks))
    spec = WorkflowSpec(
        name="no",
        tasks=[
            TaskSpec(name=name, kwargs=kwargs, depends_on=() if name == first else (first,))
            for name, kwargs in tasks.items()
        ],
    )

    text = spec.to_yaml()

    assert WorkflowSpec.from_yaml(text) == spec
    assert WorkflowSpec.from_yaml(text).to_yaml() == text


@pytest.mark.parametrize("text", ["no", "Off", "12:30:00", "1e3", "Y", "0123", "~", "", "null", "0o17", "1_000", ".5", ".inf", "2024-01-31", "=", "<<", "-", "+", ".", "- a", "a: b", "a #b", "#a", "'", '"', "%a", "@a", "&a", "*a", "!a", "|", ">", "?", "? a", "{", "[", ",", "x ", " x", "0x1f", "-1", "1.5", "y", "...", "---"])  # fmt: skip # noqa: E501
def test_texts_that_yaml_would_misread_survive(text: str) -> None:
    everywhere({"value": text, "list": [text], text: 1, "block": [[text]]})


def test_several_lines_are_a_readable_block_where_that_is_exact() -> None:
    script = "set -e\nfor x in a b; do\n  echo $x\ndone\n"

    assert everywhere({"cmd": script}) == "cmd: |\n  set -e\n  for x in a b; do\n    echo $x\n  done\n"
    assert everywhere({"cmd": "a\n\nb"}) == "cmd: |-\n  a\n\n  b\n"
    assert "|" not in everywhere({"cmd": "a \nb"})


def test_short_lists_stay_on_a_line_and_long_ones_do_not() -> None:
    assert everywhere({"depends_on": ["a", "b"]}) == "depends_on: [a, b]\n"
    assert everywhere({"depends_on": ["x" * 50, "y" * 50]}).count("\n") == 3
    assert everywhere({"empty": [], "nothing": {}}) == "empty: []\nnothing: {}\n"


def test_a_long_text_is_not_folded() -> None:
    assert everywhere({"cmd": "word " * 400 + "end"}).count("\n") == 1


def test_the_same_data_twice_are_written_twice() -> None:
    env = {"A": "1"}

    assert "&" not in everywhere({"x": env, "y": env})


def test_unicode_is_written_as_it_is() -> None:
    assert everywhere({"cmd": "écho 日本"}) == "cmd: écho 日本\n"
    assert write_json({"cmd": "écho"}) == '{\n  "cmd": "écho"\n}\n'
