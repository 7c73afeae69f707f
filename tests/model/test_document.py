"""Reading YAML and JSON files: lines, duplicate keys, tags, aliases, bounds; nothing hangs and nothing is guessed."""

from __future__ import annotations

import datetime
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.errors import DefinitionError, Problem
from dagkit.model import document
from dagkit.model.document import read_json, read_yaml
from dagkit.model.spec import WorkflowSpec


def refused(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(DefinitionError) as caught:
        WorkflowSpec.from_yaml(text, "flow.yaml")
    return caught.value.problems


def kwargs_of(yaml_text: str) -> Any:
    """Some YAML as the kwargs of a task."""
    indented = "\n".join(f"    {line}" for line in yaml_text.splitlines())
    return WorkflowSpec.from_yaml(f"name: w\ntasks:\n- name: a\n  kwargs:\n{indented}\n").tasks[0].kwargs


# --- where it is wrong

SWEEP = """\
name: sweep
tasks:
- name: train-gnn
  kwargs: {cmd: train}
- name: prep
- name: other
- name: compare
  kwargs:
    cmd: compare
  depends_on:
  - prep
  - train-gn
- name: deploy
  depends_on: [train-gnn]
  condition: |
    inputs.compare.mae
    < 0.1
  kwargs: {cmd: deploy}
"""


def test_problems_read_like_the_sample_of_the_validate_command() -> None:
    with pytest.raises(DefinitionError) as caught:
        WorkflowSpec.from_yaml(SWEEP, "sweep.yaml")

    assert str(caught.value).splitlines() == [
        "sweep.yaml: 2 problems",
        '  line 12  tasks[3] (compare)  depends_on: "train-gn" is not a task. Did you mean "train-gnn"?',
        '  line 15  tasks[4] (deploy)  condition: inputs.compare.mae < 0.1: "compare" is not in depends_on [train-gnn]',
    ]


def test_a_missing_field_points_at_its_task_and_an_unknown_one_at_itself() -> None:
    problems = refused("name: w\ntasks:\n- name: a\n- queue: cpu\n  depends_on: []\n- name: b\n  kwarg: {}\n")

    assert [(problem.line, problem.index, problem.field) for problem in problems] == [(4, 1, "name"), (7, 2, "kwarg")]


def test_a_problem_deep_in_kwargs_points_at_its_line() -> None:
    (problem,) = refused("name: w\ntasks:\n- name: a\n  kwargs:\n    x:\n    - 1\n    - when: 2024-01-31\n")

    assert problem.line == 7
    assert problem.message.startswith("kwargs.x[1].when: 2024-01-31 is a date to YAML")


@pytest.mark.parametrize(
    ("text", "line", "mentions"),
    [
        ("name: w\ntasks:\n- name: a\n  queue: 'x\n", 5, "not YAML"),
        ("name: w\ntasks: [\n", 3, "not YAML"),
        ("name: w\n\ttasks: []\n", 2, "spaces, not tabs"),
        ("name: w\n---\nname: v\n", 2, "second document"),
        ("name: w\ntasks: *nothing\n", 2, 'no anchor "nothing"'),
        ("name: w\ntasks: &t [*t]\n", 2, "inside its own anchor"),
        ("name: w\n? [a, b]\n: 1\n", 2, "cannot be a key"),
        ("name: w\n? &k {a: 1}\n: 1\n", 2, "cannot be a key"),
        ("name: &n [w]\n*n : 1\n", 2, "a key must be text"),
        ("name: w\nx: \x01\n", 2, "not YAML"),
    ],
)
def test_text_that_is_no_yaml_is_refused_with_its_line(text: str, line: int, mentions: str) -> None:
    (problem,) = refused(text)

    assert mentions in problem.message
    assert problem.line == line


def test_a_byte_order_mark_is_no_problem() -> None:
    text = "\ufeffname: w\ntasks: [{name: a}]\n"

    assert WorkflowSpec.from_yaml(text.encode()) == WorkflowSpec.from_yaml(text)
    assert WorkflowSpec.from_json('\ufeff{"name": "w", "tasks": [{"name": "a"}]}'.encode()).name == "w"


# --- what a person meant and YAML did not


def test_every_duplicate_key_is_reported_with_its_line() -> None:
    problems = refused("name: w\nname: v\ntasks:\n- name: a\n  kwargs:\n    x: 1\n    y: 2\n    x: 3\n")

    assert [(problem.line, problem.message) for problem in problems] == [
        (2, 'name: the key "name" occurs twice'),
        (8, 'kwargs.x: the key "x" occurs twice'),
    ]
    assert problems[1].task == "a"


def test_a_key_that_is_no_text_is_shown_as_it_was_written() -> None:
    problems = refused("name: w\ntasks:\n- name: a\n  kwargs:\n    env: {no: 1, 12: 2, ~: 3, 0x1F: 4}\n")

    assert [problem.message for problem in problems] == [
        "kwargs.env.no: the key no, which YAML reads as false, is not text. Quotes make it text",
        "kwargs.env.12: the key 12 is not text. Quotes make it text",
        "kwargs.env.~: the key ~, which YAML reads as null, is not text. Quotes make it text",
        "kwargs.env.0x1F: the key 0x1F, which YAML reads as 31, is not text. Quotes make it text",
    ]
    assert {problem.line for problem in problems} == {5}


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system", "!!binary", "!!set", "!!omap", "!local", "!!python/name:os.system"]
)
@pytest.mark.parametrize("value", ["x", "[x]", "{x: y}"])
def test_any_tag_of_another_kind_is_refused(tag: str, value: str) -> None:
    problems = refused(f"name: w\ntasks:\n- name: a\n  kwargs:\n    x: {tag} {value}\n")

    assert problems[0].line == 5
    assert f'the tag "{tag}" is not allowed' in problems[0].message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: !!str 12", "12"),
        ("x: ! 12", "12"),
        ("x: !!int '12'", 12),
        ("x: !!float 3", 3.0),
        ("x: !!seq [1]", [1]),
        ("x: !!map {a: 1}", {"a": 1}),
        ("x: !!null ''", None),
        ("x: !!bool yes", True),
        ("x: 1_000", 1000),
        ("x: 0x1F", 31),
        ("x: 0b101", 5),
        ("x: +5", 5),
        ("x: -5", -5),
        ("x: 0", 0),
        ("x: -0", 0),
        ("x: 1e3", "1e3"),
        ("x: 1.0e+3", 1000.0),
        ("x: 1.5", 1.5),
        ("x: .5", 0.5),
        ("x: =", "="),
        ("x: off", False),
        ("x:", None),
        ("x: ''", ""),
        ("x: |\n  a\n  b", "a\nb\n"),
        ("x: 1:30:00", 5400),
        ("x: 01:30:00", "01:30:00"),
        ("x: '12:30:00'", "12:30:00"),
    ],
)
def test_scalars_are_what_yaml_1_1_says(text: str, value: Any) -> None:
    found = kwargs_of(text)["x"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["x: !!int abc", "x: !!float abc", "x: !!bool maybe", "x: !!timestamp abc", "x: " + "9" * 5000]
)
def test_a_scalar_that_is_not_what_its_tag_says_is_a_problem(text: str) -> None:
    (problem,) = refused(f"name: w\ntasks:\n- name: a\n  kwargs:\n    {text}\n")

    assert "kwargs.x: " in problem.message
    assert problem.line == 5


def test_numbers_in_base_60_and_octal_are_hinted_at() -> None:
    spec = WorkflowSpec.from_yaml(
        "name: w\ntasks:\n- name: a\n  timeout_s: 12:30:00\n  resources: {runtime: 30:00:00}\n"
        "  kwargs: {port: 0123, z: 1:20.5}\n"
    )

    assert spec.tasks[0].timeout_s == 45_000
    assert [(hint.line, hint.task, hint.message) for hint in spec.hints] == [
        (4, "a", "timeout_s: 12:30:00 is the number 45000 to YAML 1.1 (base 60). Quotes make it text"),
        (5, "a", "resources.runtime: 30:00:00 is the number 108000 to YAML 1.1 (base 60). Quotes make it text"),
        (6, "a", "kwargs.port: 0123 is the number 83 to YAML 1.1 (octal). Quotes make it text"),
        (6, "a", "kwargs.z: 1:20.5 is the number 80.5 to YAML 1.1 (base 60). Quotes make it text"),
    ]
    assert WorkflowSpec.from_yaml(spec.to_yaml()).hints == []


def test_a_date_is_built_as_pyyaml_builds_it_before_it_is_refused() -> None:
    assert read_yaml("x: 2024-01-31").data == {"x": datetime.date(2024, 1, 31)}


# --- aliases and merges


def test_aliases_and_merges_mean_what_they_do_in_yaml() -> None:
    text = """\
    base: &base {cmd: run, env: &env {A: "1"}}
    one: *base
    two: {<<: *base, cmd: other}
    three: {<<: [{x: 1}, {x: 2, y: 3}], z: *env}
    four: {cmd: own, <<: *base}
    """

    assert kwargs_of(text) == yaml.safe_load(text)


def test_what_an_alias_brings_is_a_copy() -> None:
    found = kwargs_of("a: &x {k: [1]}\nb: *x")

    assert found["a"] == found["b"]
    assert found["a"]["k"] is not found["b"]["k"]


def test_an_anchor_may_be_used_again_and_then_problems_have_no_lines() -> None:
    problems = refused("name: w\ntasks: [&x {name: a}, &x {name: b}]\nother: *x\n")

    assert [(problem.field, problem.line) for problem in problems] == [("other", None)]


def test_an_alias_may_be_a_key() -> None:
    assert kwargs_of("cmd: &x run\n*x : 1") == {"cmd": "run", "run": 1}


def test_a_merge_of_no_mapping_is_a_problem() -> None:
    (problem,) = refused("name: w\ntasks:\n- name: a\n  kwargs: {<<: 3}\n")

    assert "<< takes a mapping" in problem.message


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_bomb_of_aliases_is_refused_before_it_goes_off() -> None:
    tracemalloc.start()

    problems = refused("name: w\n" + bomb(12))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "counting what aliases expand to" in problems[0].message
    assert peak < 200 << 20


def test_a_bomb_of_merges_is_refused_too() -> None:
    lines = ["m0: &m0 {" + ", ".join(f"k{n}: x" for n in range(1000)) + "}"]
    lines += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 10)]

    assert "counting what aliases expand to" in refused("name: w\n" + "\n".join(lines))[0].message


def test_honest_aliases_are_enough_for_many_tasks() -> None:
    tasks = "\n".join(f"- {{name: t{n}, kwargs: {{cmd: x, env: *env}}}}" for n in range(2_000))

    spec = WorkflowSpec.from_yaml(
        f"name: w\ntasks:\n- {{name: first, kwargs: {{env: &env {{A: '1', B: '2'}}}}}}\n{tasks}\n"
    )

    assert spec.tasks[-1].kwargs["env"] == {"A": "1", "B": "2"}


# --- bounds


@pytest.mark.parametrize(
    "text",
    ["x: " + "[" * 5_000, "x: " + "{a: " * 5_000, "- " * 5_000 + "x", "x: " + "[" * 300 + "]" * 300],
    ids=lambda text: text[:8],
)
def test_depth_is_bounded(text: str) -> None:
    (problem,) = refused(text)

    assert "deep" in problem.message or "depth" in problem.message


def test_a_file_over_the_limit_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_YAML_BYTES", 1 << 20)

    (problem,) = refused("x" * (2 << 20))

    assert problem.message == "has 2 MiB, over the 1 that are read; write a definition of that size as JSON"


def test_a_file_over_every_limit_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_JSON_BYTES", 3 << 20)
    (tmp_path / "flow.json").write_bytes(b" " * (4 << 20))

    with pytest.raises(DefinitionError, match="has 4 MiB, over the 3 that are read"):
        WorkflowSpec.from_file(tmp_path / "flow.json")


def test_fifty_megabytes_of_yaml_fail_fast() -> None:
    (problem,) = refused(b"- x\n" * (50 << 18))

    assert "over the 32 that are read" in problem.message


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_YAML_VALUES", 1_000)

    (problem,) = refused("- " + "x\n- " * 1_001)

    assert "more than 1,000 values" in problem.message


# --- JSON


def test_duplicate_keys_of_json_are_problems() -> None:
    with pytest.raises(DefinitionError) as caught:
        WorkflowSpec.from_json('{"name": "w", "name": "v", "tasks": [{"name": "a", "kwargs": {"x": 1, "x": 2}}]}')

    assert [problem.message for problem in caught.value.problems] == [
        'the key "x" occurs twice in one object',
        'the key "name" occurs twice in one object',
    ]


@pytest.mark.parametrize(
    ("text", "mentions"),
    [("[" * 100_000, "deep"), ("9" * 10_000, "not JSON"), ('{"a": 1,}', "not JSON"), ("\n\n{x", "not JSON")],
)
def test_text_that_is_no_json_is_refused(text: str, mentions: str) -> None:
    with pytest.raises(DefinitionError, match=mentions):
        WorkflowSpec.from_json(text)


def test_a_json_error_has_its_line() -> None:
    with pytest.raises(DefinitionError) as caught:
        read_json('{\n"a": 1,\n!}')

    assert caught.value.problems[0].line == 3


def test_a_number_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match="nan is not a JSON number"):
        WorkflowSpec.from_json('{"name": "w", "tasks": [{"name": "a", "kwargs": {"x": NaN}}]}')
