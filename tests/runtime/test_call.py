from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagkit.runtime.call import Caller
from dagkit.runtime.outcome import Failure
from dagkit.runtime.payload import dump_function
from dagkit.runtime.storage import Storage
from dagkit.runtime.values import INLINE_LIMIT
from dagkit.stores import open_store


class Asked:
    """Stands for the executor of a store in memory; counts what it is asked."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, what: str, about: Any) -> Any:
        self.asked.append((what, about))
        if what == "put":
            workflow_id, path, data = about
            self.answers[f"blob:{workflow_id}/{path}"] = data
            return f"blob:{workflow_id}/{path}"
        return self.answers[about]


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def storage(asked: Asked) -> Storage:
    return Storage("memory:", asked)


@pytest.fixture
def guarded() -> list[bool]:
    return []


@pytest.fixture
def caller(storage: Storage, guarded: list[bool]) -> Caller:
    return Caller(storage, guarded.append)


def test_a_function_is_called_by_reference(caller: Caller, guarded: list[bool]) -> None:
    assert caller.run({"function": "builtins:divmod", "args": [7, 2]}, {}) == (3, 1)
    assert guarded == [True, False]


def test_a_function_by_value_is_loaded_once(caller: Caller, asked: Asked) -> None:
    def twice(x: int) -> int:
        return 2 * x

    data = dump_function(twice)[1]
    assert data is not None
    asked.answers["sha256:1"] = data

    results = [caller.run({"pickle": "sha256:1", "kwargs": {"x": x}}, {}) for x in range(3)]

    assert results == [0, 2, 4]
    assert asked.asked == [("payload", "sha256:1")]


def test_a_parent_is_read_once_for_all_arguments_of_a_task(caller: Caller, asked: Asked) -> None:
    asked.answers["blob:w/a.json"] = b'{"x": [1, 2]}'
    ref = {"$ref": "a", "path": ["x"]}

    value = caller.run({"function": "operator:is_", "args": [ref, ref]}, {"a": "blob:w/a.json"})

    assert value is True
    assert len(asked.asked) == 1


def test_a_task_gets_values_of_its_own(caller: Caller, asked: Asked) -> None:
    asked.answers["blob:w/a.json"] = b"[1]"
    call = {"function": "operator:iadd", "args": [{"$ref": "a"}, [2]]}

    first, second = (caller.run(call, {"a": "blob:w/a.json"}) for _ in range(2))

    assert (first, second) == ([1, 2], [1, 2])
    assert len(asked.asked) == 1


def test_a_call_without_a_function_is_a_config_failure(caller: Caller) -> None:
    with pytest.raises(Failure) as caught:
        caller.run({"args": []}, {})

    assert caught.value.kind == "config"


def test_the_guard_is_lifted_when_the_task_raises(caller: Caller, guarded: list[bool]) -> None:
    with pytest.raises(ZeroDivisionError):
        caller.run({"function": "operator:floordiv", "args": [1, 0]}, {})

    assert guarded == [True, False]


@pytest.mark.parametrize(
    ("value", "ref"),
    [
        (None, None),
        (1, "1"),
        ("x" * 32_766, '"' + "x" * 32_766 + '"'),
        ("x" * 32_767, "blob:w/t.json"),
        ({1}, "blob:w/t.pkl"),
    ],
)
def test_results_are_kept_inline_up_to_the_limit(storage: Storage, value: Any, ref: str | None) -> None:
    assert storage.keep("w", "t", value) == ref


def test_a_store_that_can_be_opened_is_used_directly(asked: Asked, tmp_path: Path) -> None:
    storage = Storage(f"sqlite:{tmp_path}", asked)

    ref = storage.keep("w", "t", "x" * 40_000)

    assert storage.output(ref) == "x" * 40_000
    assert asked.asked == []
    store = open_store(tmp_path)
    assert ref is not None
    assert len(store.get_output(ref)) == 40_002
    store.close()
    storage.store.close()


def test_the_cache_of_bytes_is_bounded(storage: Storage, asked: Asked) -> None:
    for i in range(5):
        asked.answers[f"blob:w/{i}.json"] = b'"' + b"x" * 20_000_000 + b'"'
        storage.output(f"blob:w/{i}.json")

    assert sum(map(len, storage._cache.values())) <= 64_000_000
    storage.output("blob:w/4.json")
    assert len(asked.asked) == 5


def test_the_limit_of_what_a_task_writes_is_that_of_what_it_returns(storage: Storage) -> None:
    """The number stands twice, so that workers need not import the encoding of values to know it."""
    assert storage.keep_text("w", "t", '"' + "x" * (INLINE_LIMIT - 2) + '"').startswith('"')
    assert storage.keep_text("w", "t", '"' + "x" * (INLINE_LIMIT - 1) + '"') == "blob:w/t.json"
