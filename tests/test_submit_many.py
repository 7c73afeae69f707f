"""Many workflows stored at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import dagkit
from dagkit import WorkflowSpec, task, workflow
from dagkit.errors import UnknownRun, UsageError, WorkflowExists
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore


class Counting(MemoryStore):
    """Counts what is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads = 0

    def put_payload(self, data: bytes) -> str:
        self.payloads += 1
        return super().put_payload(data)


@task
def double(number: int) -> int:
    return 2 * number


@workflow
def pipeline(number: int):
    return double(double(number))


@pytest.fixture(params=["memory", "sqlite", pytest.param("azure", marks=pytest.mark.xdist_group("azurite"))])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "azure":
        url = f"azure://{request.getfixturevalue('azurite_account').name}/many"
    else:
        url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"
    opened = open_store(url)
    yield opened
    opened.close()


def test_handles_come_in_the_order_of_the_flows(store: Store) -> None:
    runs = dagkit.submit_many([pipeline(number) for number in range(20)], store=store)

    assert [store.row(run.id).counts.total for run in runs] == [2] * 20
    assert [run.spec.tasks[0].kwargs for run in runs] == [pipeline(number).spec.tasks[0].kwargs for number in range(20)]
    assert {row.workflow_id for row in store.rows()} == {run.id for run in runs}
    assert {str(run.status) for run in runs} == {"pending"}


def test_flows_and_definitions_with_ids_of_ones_own(store: Store) -> None:
    spec = WorkflowSpec.from_dict({"name": "shell", "tasks": [{"name": "a", "kwargs": {"cmd": "true"}}]})

    first, second = dagkit.submit_many([pipeline(1), spec], store=store, ids=["one", "two"])

    assert (first.id, second.id) == ("one", "two")
    assert store.row("two").name == "shell"


def test_what_they_share_is_stored_once() -> None:
    store = Counting()

    dagkit.submit_many([pipeline(number) for number in range(10)], store=store)

    assert store.payloads == len(pipeline(1).payloads)


def test_an_id_that_is_taken_is_said_and_the_others_stay(store: Store) -> None:
    dagkit.submit_many([pipeline(1)], store=store, ids=["b"])

    with pytest.raises(WorkflowExists, match="b"):
        dagkit.submit_many([pipeline(1), pipeline(2), pipeline(3)], store=store, ids=["a", "b", "c"])

    assert {row.workflow_id for row in store.rows()} == {"a", "b", "c"}


@pytest.mark.parametrize("ids", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_ids_that_do_not_fit_are_refused_before_anything_is_stored(store: Store, ids: list[str]) -> None:
    with pytest.raises(UsageError, match="2 flows need as many ids"):
        dagkit.submit_many([pipeline(1), pipeline(2)], store=store, ids=ids)

    assert not store.rows()
    with pytest.raises(UnknownRun):
        store.row("a")


def test_nothing_is_nothing(store: Store) -> None:
    assert dagkit.submit_many([], store=store) == []


def test_dependencies_are_cut_as_with_one(store: Store) -> None:
    names = [f"t{number}" for number in range(30)]
    tasks = [{"name": name, "kwargs": {"cmd": "true"}} for name in names]
    spec = WorkflowSpec.from_dict(
        {"name": "wide", "tasks": [*tasks, {"name": "end", "depends_on": names, "kwargs": {}}]}
    )

    (run,) = dagkit.submit_many([spec], store=store, max_fan_in=10)

    assert any(one.name.startswith("__merge_") for one in run.spec.tasks)
