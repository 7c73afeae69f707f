"""What tasks ask for, said beside the workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagkit import WorkflowSpec, task, workflow
from dagkit.errors import DefinitionError, UsageError
from dagkit.resource_settings import with_resources
from dagkit.stores.memory import MemoryStore


@task(memory="1G", cores=1)
def train(x: int) -> int:
    return x


@task
def compare(models: list[int]) -> int:
    return max(models)


@workflow
def sweep(n: int):
    return compare(train.map(x=range(n)))


def asked(spec: WorkflowSpec) -> dict[str, tuple[object, object]]:
    return {one.name: (one.resources, one.queue) for one in spec.tasks}


def test_settings_stand_above_what_a_task_says_and_leave_the_rest() -> None:
    found = asked(with_resources(sweep(2).spec, {"train": {"memory": "40G", "runtime": "2h", "queue": "long"}}))

    assert found["train-0"] == ({"memory": "40G", "cores": 1, "runtime": "2h"}, "long")
    assert found["compare"] == (None, None)


def test_what_is_named_without_a_value_is_left_as_it_is() -> None:
    assert asked(with_resources(sweep(1).spec, {"train": {"memory": None}, "compare": {"queue": "long"}})) == {
        "train-0": ({"memory": "1G", "cores": 1}, None),
        "compare": (None, "long"),
    }


def test_what_resources_suggests_is_a_setting_of_the_next_run(tmp_path: Path) -> None:
    first = sweep(3).run(store=tmp_path / "store", progress=False)
    suggested = first.resources()
    assert set(suggested["train"]) >= {"memory", "runtime"}

    second = sweep(3).run(store=tmp_path / "store", progress=False, resources=suggested)

    assert second.result() == 2
    assert second.task("train-0").resources["memory"] == suggested["train"]["memory"]
    assert second.task("train-0").resources["cores"] == 1


def test_submitted_runs_take_them_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "suggested.yaml"
    file.write_text("train: {memory: 2G, queue: long}\n")
    store = MemoryStore()

    run = sweep(1).submit(store=store, resources=file)

    kept = WorkflowSpec.from_definition(store.load_definition(run.id)).tasks[0]
    assert (kept.resources, kept.queue) == ({"memory": "2G", "cores": 1}, "long")


def test_a_template_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no template 'trian'\. Did you mean 'train'\?"):
        with_resources(sweep(1).spec, {"trian": {"memory": "1G"}})


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("train: {memory: 12 parsecs, colour: red}\ncompare: much\n")

    with pytest.raises(DefinitionError) as caught:
        with_resources(sweep(1).spec, file)

    said = str(caught.value)
    assert "wrong.yaml: 3 problems" in said
    for part in ("train: resources.memory: ", "'colour' is not one of", "compare: found 'much'; allowed: resources"):
        assert part in said


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("- 1\n")

    with pytest.raises(DefinitionError, match="resources by template"):
        with_resources(sweep(1).spec, file)
