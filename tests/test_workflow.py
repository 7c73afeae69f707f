"""Workflows and flows: collecting nodes, nesting, compiling, exporting, running."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from dagkit import WorkflowSpec, shell, task, workflow
from dagkit.errors import DefinitionError, TracingError, UsageError
from dagkit.flow import Flow, flow_of


@task
def featurize(path: str) -> Any:
    return path


@task(queue="gpu", retries=2)
def train(features: Any, lr: float) -> Any:
    return {"mae": lr}


@task
def compare(models: Any) -> Any:
    return models


@workflow(default_queue="cpu", max_parallelism=4)
def sweep(path: str, rates: list[float]) -> Any:
    features = featurize(path)
    return compare([train(features, lr) for lr in rates])


def names(flow: Flow) -> list[str]:
    return [task.name for task in flow.spec.tasks]


def test_a_workflow_function_is_traced_when_it_is_called() -> None:
    flow = sweep("raw.parquet", rates=[0.1, 0.01])

    assert isinstance(flow, Flow)
    assert names(flow) == ["featurize", "train", "train-1", "compare"]
    assert (flow.spec.name, flow.spec.default_queue, flow.spec.max_parallelism) == ("sweep", "cpu", 4)
    assert flow.spec.tasks[3].depends_on == ("train", "train-1")
    assert flow.spec.result == {"$ref": "compare"}
    assert flow.spec.tasks[1].kwargs["call"]["args"] == [{"$ref": "featurize"}, 0.1]


def test_a_block_is_a_workflow_too() -> None:
    with workflow("block", default_queue="cpu") as flow:
        model = train(featurize("x"), 0.1)
        flow.result = {"best": model["mae"], "note": "v1"}

    assert names(flow) == ["featurize", "train"]
    assert flow.spec.result == {"best": {"$ref": "train", "path": ["mae"]}, "note": "v1"}
    assert flow.name_of(model) == "train"


def test_a_node_is_a_workflow_of_its_ancestors() -> None:
    data = featurize("x")
    train(data, 1.0)
    flow = flow_of(compare([train(data, 2.0)]))

    assert names(flow) == ["featurize", "train", "compare"]
    assert (flow.name, flow.spec.result) == ("compare", {"$ref": "compare"})


def test_results_may_be_any_shape() -> None:
    @workflow
    def shaped() -> Any:
        a = featurize("a")
        return {"pair": (a, a["x"]), "list": [a, 1]}

    assert shaped().spec.result == {
        "pair": {"$tuple": [{"$ref": "featurize"}, {"$ref": "featurize", "path": ["x"]}]},
        "list": [{"$ref": "featurize"}, 1],
    }


def test_every_option_of_a_workflow_reaches_the_model() -> None:
    @workflow(
        name="other",
        result_policy="all_sinks_succeed",
        fail_fast=True,
        concurrency={"featurize": 2},
        timeout="2h",
    )
    def made() -> None:
        featurize("x")

    spec = made().spec

    assert (spec.name, spec.result_policy, spec.fail_fast) == ("other", "all_sinks_succeed", True)
    assert (spec.concurrency, spec.default_task_timeout_s) == ({"featurize": 2}, 7200)
    assert workflow("named")(made.fn)().spec.name == "named"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queue": "x"}, TypeError),
        ({"max_parallelism": 0}, UsageError),
        ({"timeout": "soon"}, UsageError),
        ({"concurrency": {"a": 0}}, UsageError),
        ({"concurrency": 3}, UsageError),
    ],
)
def test_wrong_options_are_found_where_they_are_said(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="workflow"):
        workflow(**options)(sweep.fn)
    with pytest.raises(error, match="workflow w"):
        workflow("w", **options)


@pytest.mark.parametrize("wrong", [3, sweep, int])
def test_a_workflow_is_made_from_a_plain_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match="workflow"):
        workflow(wrong)


def test_an_async_workflow_is_refused() -> None:
    async def later() -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        workflow(later)


# --- nesting


@workflow(default_queue="inner-queue", concurrency={"train": 1})
def inner(path: str) -> Any:
    return train.options(queue=None)(featurize(path), 0.1)


def test_a_workflow_called_inside_another_is_inlined_under_its_name() -> None:
    @workflow
    def outer() -> Any:
        first, second = inner("a"), inner("b")
        return compare([first["mae"], second])

    spec = outer().spec

    assert [task.name for task in spec.tasks] == [
        "inner/featurize",
        "inner/train",
        "inner-1/featurize",
        "inner-1/train",
        "compare",
    ]
    assert spec.tasks[-1].depends_on == ("inner/train", "inner-1/train")
    assert [task.queue for task in spec.tasks] == ["inner-queue"] * 4 + [None]
    assert spec.concurrency == {"train": 1}
    assert {task.template for task in spec.tasks[:4]} == {"featurize", "train"}


def test_inlining_goes_any_number_of_levels() -> None:
    @workflow
    def middle() -> Any:
        return inner("x")

    @workflow
    def outer() -> Any:
        return middle()

    assert names(outer()) == ["middle/inner/featurize", "middle/inner/train"]


def test_options_that_make_no_sense_inside_another_workflow_are_pointed_out() -> None:
    @workflow
    def outer() -> Any:
        return sweep("x", [0.1])

    with pytest.warns(UserWarning, match="max_parallelism do not apply"):
        outer()


def test_a_block_inside_a_workflow_is_refused() -> None:
    @workflow
    def outer() -> None:
        with workflow("block"):
            pass

    with pytest.raises(TracingError, match="inlined"):
        outer()


# --- mistakes


def test_an_empty_workflow_says_so() -> None:
    with workflow("empty") as flow:
        pass

    with pytest.raises(DefinitionError, match="no task was called"):
        _ = flow.spec


def test_a_block_must_be_left_before_it_is_used_and_cannot_be_opened_twice() -> None:
    with workflow("w") as flow:
        featurize("x")
        with pytest.raises(TracingError, match="leave the `with` block"):
            _ = flow.spec
        assert "1 nodes so far" in repr(flow)
    _ = flow.spec

    with pytest.raises(TracingError, match="traced already"), flow:
        pass


def test_a_workflow_function_is_no_block() -> None:
    with pytest.raises(TracingError, match="call it"), sweep:
        pass


def test_a_node_of_another_workflow_has_no_name_here() -> None:
    flow = sweep("x", [0.1])

    with pytest.raises(UsageError, match="not part of workflow sweep"):
        flow.name_of(featurize("y"))


def test_wrong_arguments_of_a_workflow_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="rates"):
        sweep("x")  # type: ignore[call-arg]


# --- files


def test_yaml_reads_back_to_the_same_text() -> None:
    flow = sweep("no", rates=[1e-7, 0.1])

    text = flow.to_yaml()

    assert WorkflowSpec.from_yaml(text).to_yaml() == text
    assert "fingerprint" not in text
    assert json.loads(flow.to_json())["name"] == "sweep"


@pytest.mark.parametrize("name", ["sweep.yaml", "sweep.json"])
def test_a_file_carries_its_payloads_beside_it(tmp_path: Path, name: str) -> None:
    flow = sweep("x", rates=[0.1])
    path = tmp_path / name

    (flow.to_yaml if name.endswith("yaml") else flow.to_json)(path)
    again = Flow.from_file(path)

    assert again.payloads == flow.payloads
    assert len(again.payloads) == 3
    assert names(again) == names(flow)
    assert (tmp_path / "sweep.payloads").is_dir()


def test_functions_of_installed_modules_are_named_and_need_no_payloads(tmp_path: Path) -> None:
    with workflow("w") as flow:
        task(json.dumps)({"a": 1})
    flow.to_yaml(tmp_path / "w.yaml")

    assert flow.spec.tasks[0].kwargs["call"]["function"] == "json:dumps"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "w.yaml"]


def test_a_workflow_of_commands_is_portable() -> None:
    with workflow("w") as flow:
        first = shell("echo a")()
        shell("echo b", name="second")(after=first)

    assert WorkflowSpec.from_yaml(flow.to_yaml(portable=True)).portable_problems() == []


# --- size


def test_a_chain_of_ten_thousand_compiles_plans_and_draws() -> None:
    node = featurize("x")
    for _ in range(10_000):
        node = train(node, 0.1)
    flow = flow_of(node)

    assert len(flow.spec.tasks) == 10_001
    assert flow.plan().depth == 10_001
    assert repr(flow)
    assert flow.to_yaml()


def test_a_lattice_is_walked_once_per_edge() -> None:
    with workflow("lattice") as flow:
        layer = featurize.map(f"{n}" for n in range(100))
        for _ in range(9):
            layer = [compare([layer[(column + k) % 100] for k in range(10)]) for column in range(100)]
        flow.result = compare(layer)
    node = flow.result

    assert len(flow_of(node).spec.tasks) == 1_001 == len(flow.spec.tasks)
    assert sum(len(task.depends_on) for task in flow.spec.tasks) == 9_100


def test_a_wide_fan_in_compiles() -> None:
    with workflow("w") as flow:
        compare(featurize.map(map(str, range(5_000))))

    assert len(flow.spec.tasks[-1].depends_on) == 5_000
    assert flow.spec.tasks[-1].kwargs["call"]["fingerprint"]


# --- drawing, running


def test_a_flow_draws_itself() -> None:
    flow = sweep("x", rates=[0.1])
    bundle = flow._repr_mimebundle_()

    assert "<svg" in bundle["text/html"]
    assert "featurize" in bundle["text/plain"]
    assert "featurize" in repr(flow)
    assert flow._repr_html_() == bundle["text/html"]


def test_a_flow_shows_as_text_without_the_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagkit.flow.DRAWING", "dagkit.notebook.not_there")

    assert repr(sweep("x", rates=[0.1])) == "<flow sweep: 3 tasks, nothing has run>"


def test_a_flow_runs_and_gives_its_result(tmp_path: Path) -> None:
    script = tmp_path / "pipeline.py"
    script.write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            from dagkit import task, workflow

            @dataclass
            class Config:
                lr: float
                data: object = None

            @task
            def load(n): return list(range(n))

            @task
            def fit(config, scale=1): return {"score": sum(config.data) * config.lr * scale}

            @task(outputs=2)
            async def best(models): return max(models), min(models)

            @workflow
            def sweep(n, rates):
                data = load(n)
                models = fit.partial(scale=2).map([Config(lr, data) for lr in rates])
                high, low = best([m["score"] for m in models])
                return {"high": high, "low": low, "config": Config(1.0, high)}

            run = sweep(4, [1, 2, 3]).run(store=".dagkit", progress=False)
            assert run.result() == {"high": 36, "low": 12, "config": Config(1.0, 36)}, run.result()
            assert load(3).run(store=".dagkit", progress=False).result() == [0, 1, 2]
            print("fine")
            """
        )
    )

    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "fine\n", done.stderr


def test_tracing_and_writing_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep("x", [0.1]).to_yaml()
