"""Every store behind one fixture; what a new implementation has to add is one line in `STORES`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagkit.model.records import Counts, StateChanges
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore
from dagkit.stores.sqlite import SQLiteStore


@dataclass
class Clock:
    """The store's clock, in the hands of the test."""

    time: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


STORES: dict[str, Callable[[Path, Clock], Store]] = {
    "memory": lambda root, clock: MemoryStore(clock=clock),
    "sqlite": lambda root, clock: SQLiteStore(root / "store", clock=clock),
    "azure": lambda root, clock: _azure_store(clock),
}


def _azure_store(clock: Clock) -> Store:
    from dagkit.azure.account import parse_connection_string
    from dagkit.azure.place import Place
    from dagkit.stores.azure import AzureStore

    account = parse_connection_string(os.environ["JOBQ_CONNECTION_STRING"], "JOBQ_CONNECTION_STRING")
    return AzureStore(Place(account.name, "Proj"), clock=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("azure", marks=pytest.mark.xdist_group("azurite"))],
)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    if request.param == "azure":
        request.getfixturevalue("azurite_account")
    opened = STORES[request.param](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(tmp_path / "store", clock=clock, busy_s=0.2)
    yield opened
    opened.close()


def definition(workflow_id: str = "wf1", tasks: int = 2, name: str = "demo") -> dict[str, object]:
    """A definition document with tasks t0, t1, ... in the queues cpu and gpu in turn."""
    return {
        "v": 1,
        "workflow_id": workflow_id,
        "name": name,
        "default_queue": "cpu",
        "result_policy": "all_tasks_succeed",
        "max_parallelism": None,
        "created_at": "2026-05-05T00:00:00+00:00",
        "tasks": {
            f"t{number}": {
                "parents": [],
                "children": [],
                "queue": ("cpu", "gpu")[number % 2],
                "kwargs": {"cmd": "true"},
            }
            for number in range(tasks)
        },
    }


def head(workflow_id: str = "wf1", status: str = "pending", **keys: object) -> dict[str, object]:
    return {
        "v": 1,
        "workflow_id": workflow_id,
        "workflow_state": status,
        "cancel_requested": False,
        "updated_at": "2026-05-05T00:00:00+00:00",
        "error": None,
        **keys,
    }


def state(
    workflow_id: str = "wf1", tasks: dict[str, dict[str, object]] | None = None, **keys: object
) -> dict[str, object]:
    return {**head(workflow_id, **keys), "tasks": {"t0": {"state": "ready"}} if tasks is None else tasks}  # type: ignore[arg-type]


def changes(
    tasks: dict[str, dict[str, object]],
    status: str = "running",
    counts: Counts | None = None,
    before: dict[str, dict[str, object]] | None = None,
    **keys: object,
) -> StateChanges:
    """What a save is given, for tasks named t0, t1, ...; `before` are the entries of earlier saves."""
    rows = [(int(name[1:]), name, entry) for name, entry in tasks.items()]

    def document() -> dict[str, object]:
        entries = {**(before or {}), **{name: entry for _, name, entry in rows}}
        return {**head(status=status, **keys), "tasks": {name: entry for name, entry in entries.items() if entry}}

    return StateChanges(head(status=status, **keys), rows, counts or Counts(running=1, pending=1), document)


@pytest.fixture
def make() -> type[Documents]:
    return Documents


class Documents:
    """The documents that the tests store."""

    definition = staticmethod(definition)
    state = staticmethod(state)
    head = staticmethod(head)
    changes = staticmethod(changes)
