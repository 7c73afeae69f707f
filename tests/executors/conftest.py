from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagkit.executors.local import LocalExecutor
from dagkit.stores import open_store
from dagkit.stores.base import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def executor(store: Store) -> Iterator[LocalExecutor]:
    with LocalExecutor(store, slots=2, kill_timeout_s=1.0) as local:
        yield local
        local.close(0.0)


@pytest.fixture
def one_slot(store: Store) -> Iterator[LocalExecutor]:
    with LocalExecutor(store, slots=1, kill_timeout_s=1.0) as local:
        yield local
        local.close(0.0)
