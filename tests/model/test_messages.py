"""Message texts: exactly those of the facts, whole after a round trip, and poison where nothing can be read."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import BackendError, PayloadTooLarge
from dagkit.model.envelope import (
    compact_refs,
    envelope,
    expand_refs,
    open_envelope,
    service_bus_id,
    stored_path,
    take_upstream,
)
from dagkit.model.messages import Completion, PoisonMessage, TaskMessage
from dagkit.model.names import ServiceNames
from dagkit.model.states import FailureKind
from model.cases import load_cases

STORAGE_QUEUE_BYTES = 49_152

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class Shelf(dict[str, bytes]):
    """Where large parts of messages are kept."""

    def put(self, path: str, data: bytes) -> str:
        self[f"blob:W/{path}"] = data
        return f"blob:W/{path}"


def task_message(**fields: Any) -> TaskMessage:
    values: dict[str, Any] = {
        "workflow_id": "W",
        "task": "t",
        "attempt": 1,
        "generation": 0,
        "queue": "q",
        "kwargs": {"cmd": "true"},
    }
    return TaskMessage(**values | fields)


# --- the cases of refs.yaml that are about messages


@pytest.mark.parametrize("case", load_cases("refs", "encode"))
def test_refs_have_the_compact_form_of_the_facts(case: dict[str, Any]) -> None:
    compact = compact_refs(case["workflow"], case["encode"])

    assert compact == case["compact"]
    assert {key: list(part) for key, part in compact.items()} == {key: list(p) for key, p in case["compact"].items()}
    assert expand_refs(case["workflow"], compact) == case["encode"]


@pytest.mark.parametrize("case", load_cases("refs", "decode"))
def test_a_compact_form_is_expanded(case: dict[str, Any]) -> None:
    assert expand_refs(case["workflow"], case["decode"]) == case["refs"]


@pytest.mark.parametrize("case", load_cases("refs", "kwargs"))
def test_refs_are_taken_out_of_kwargs(case: dict[str, Any]) -> None:
    assert take_upstream(case["workflow"], case["kwargs"]) == (case["refs"], case["rest"])


@pytest.mark.parametrize("case", load_cases("refs", "envelope"))
def test_an_envelope_is_exactly_this_text(case: dict[str, Any]) -> None:
    assert envelope(case["envelope"]["kwargs"], case["envelope"]["id"]) == case["text"]


@pytest.mark.parametrize("case", load_cases("refs", "completion"))
def test_a_completion_is_read(case: dict[str, Any]) -> None:
    if case.get("poison"):
        with pytest.raises(PoisonMessage):
            Completion.from_text(case["completion"])
        return

    completion = Completion.from_text(case["completion"])

    parsed = case["parsed"]
    assert completion == Completion(
        parsed["workflow_id"],
        parsed["task_name"],
        parsed["success"],
        parsed["output_ref"],
        parsed["error"],
        parsed["attempt_no"],
    )


@pytest.mark.parametrize("case", load_cases("refs", "fan_in"))
def test_a_wide_fan_in_fits_and_every_parent_is_delivered(case: dict[str, Any]) -> None:
    names = [case["fan_in"]["name"].format(number) for number in range(case["fan_in"]["parents"])]
    refs = {name: f"blob:W/{name}.json" for name in names}
    shelf = Shelf()

    text = task_message(upstream=refs).text_within(case["message_bytes_at_most"], shelf.put)

    assert len(text.encode()) <= case["message_bytes_at_most"]
    assert TaskMessage.from_text(text, shelf.__getitem__).upstream == refs


@pytest.mark.parametrize("case", load_cases("refs", "ref"))
def test_a_ref_names_its_place(case: dict[str, Any]) -> None:
    reads = case["reads"]

    assert stored_path(case["ref"]) == reads["blob"]
    assert ServiceNames(case["prefix"]).output_container == reads["container"]


# --- task messages


def test_the_worked_example_of_the_facts() -> None:
    message = TaskMessage("wf1", "b", 1, 0, "cpu", {"cmd": "echo b"}, {"a": '{"x": 1}'})

    assert message.to_text() == (
        r'{"version": 1, "reply_requested": false, "kwargs": "{\"cmd\": \"echo b\", \"__workflow_id\": \"wf1\", '
        r"\"__workflow_task\": \"b\", \"__attempt_no\": 1, \"__upstream_outputs_compact\": "
        r'{\"i\": {\"a\": \"{\\\"x\\\": 1}\"}}}", "num_retries": 0, "id": "wf1/b/1"}'
    )


def test_a_generation_is_in_the_id_and_in_the_kwargs_after_a_user_retry() -> None:
    text = task_message(generation=1, attempt=2).to_text()

    assert open_envelope(text).id == "W/t/1.2"
    assert open_envelope(text).kwargs["__generation"] == 1


@given(
    st.dictionaries(NAMES, JSON, max_size=4), st.dictionaries(NAMES, st.none() | NAMES, max_size=4), st.integers(0, 3)
)
def test_a_task_message_survives_its_text(kwargs: dict[str, Any], upstream: dict[str, Any], generation: int) -> None:
    kwargs = {key: value for key, value in kwargs.items() if not key.startswith("__")}
    message = task_message(kwargs=kwargs, upstream=upstream, generation=generation)

    assert TaskMessage.from_text(message.to_text(), queue="q") == message


def test_a_users_key_does_not_pass_for_the_coordinators() -> None:
    kwargs = {"cmd": "x", "__workflow_id": "other", "__generation": 7, "__kwargs_blob": "blob:x", "__attempt_no": 9}

    read = TaskMessage.from_text(task_message(kwargs=kwargs).to_text())

    assert (read.workflow_id, read.generation, read.attempt, read.kwargs) == ("W", 0, 1, {"cmd": "x"})


@pytest.mark.parametrize(
    ("cmd_bytes", "parents", "kept"),
    [
        (10, 10, set()),
        (10, 5_000, {"upstream"}),
        (60_000, 10, {"kwargs"}),
        (60_000, 5_000, {"kwargs", "upstream"}),
        (60_000, 0, {"kwargs"}),
        (49_000, 1, {"kwargs"}),  # fits alone, and not with the reference to the parents beside it
    ],
)
def test_only_what_does_not_fit_is_kept_elsewhere(cmd_bytes: int, parents: int, kept: set[str]) -> None:
    shelf = Shelf()
    upstream = {f"m-{number:07d}": f"blob:W/m-{number:07d}.json" for number in range(parents)}
    message = task_message(kwargs={"cmd": "x" * cmd_bytes}, upstream=upstream)

    text = message.text_within(STORAGE_QUEUE_BYTES, shelf.put)

    assert len(text.encode()) <= STORAGE_QUEUE_BYTES
    assert set(shelf) == {f"blob:W/__{kind}/t/1.json" for kind in kept}
    assert TaskMessage.from_text(text, shelf.__getitem__, queue="q") == message


def test_a_kept_key_of_the_users_does_not_become_the_coordinators() -> None:
    shelf = Shelf()
    text = task_message(kwargs={"cmd": "x" * 60_000}).text_within(STORAGE_QUEUE_BYTES, shelf.put)
    shelf["blob:W/__kwargs/t/1.json"] = json.dumps({"cmd": "y", "__generation": 3}).encode()

    assert TaskMessage.from_text(text, shelf.__getitem__).generation == 0


def test_a_kept_part_without_a_store_is_a_backend_error_and_not_poison() -> None:
    text = task_message(kwargs={"cmd": "x" * 60_000}).text_within(STORAGE_QUEUE_BYTES, Shelf().put)

    with pytest.raises(BackendError, match="no store"):
        TaskMessage.from_text(text)


def test_a_message_that_cannot_be_made_small_enough_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="t"):
        task_message(kwargs={"cmd": "x" * 5_000}).text_within(100, Shelf().put)


def test_the_older_form_of_refs_is_read_and_the_compact_one_wins_unless_it_is_empty() -> None:
    older = {"__upstream_output_refs": {"A": "42", "B": None}}

    assert take_upstream("W", older | {"__upstream_outputs_compact": {}}) == ({"A": "42", "B": None}, {})
    assert take_upstream("W", older | {"__upstream_outputs_compact": {"n": ["C"]}}) == ({"C": None}, {})


# --- completions


@given(
    st.booleans(),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(0, 9),
    st.none() | st.just({"wall_s": 1.5}),
)
def test_a_completion_survives_its_text(
    success: bool, text: str | None, attempt: int | None, generation: int | None, usage: dict[str, Any] | None
) -> None:
    kind = None if success else FailureKind.MEMORY
    completion = Completion("W", "t", success, text, text, attempt, generation, kind, usage)

    assert Completion.from_text(completion.to_text()) == completion


def test_the_default_id_of_a_completion_is_a_digest_of_its_text() -> None:
    text = Completion("wf1", "a", True, '{"x": 1}', None, 1).to_text()

    assert json.loads(text)["id"] == "856faddc7012b3d4f824e6aeb768d4a2"


def test_a_body_without_its_wrapper_and_with_unknown_keys_is_read() -> None:
    body = {
        "workflow_id": "W",
        "task_name": "t",
        "success": False,
        "task_etag": "e",
        "kind": "new-kind",
        "attempt_no": None,
    }

    assert Completion.from_text(envelope(body)) == Completion("W", "t", False)


def test_half_a_surrogate_pair_in_an_error_does_not_reach_a_store() -> None:
    completion = Completion.from_text(Completion("W", "t", False, "\ud800", "bad \udcff byte").to_text())

    assert (completion.output_ref, completion.error) == ("?", "bad ? byte")


# --- poison

BODY = {"workflow_id": "W", "task_name": "t", "success": True}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        b"\xff\xfe\x00",
        '{"version": 2, "kwargs": "{}"}',
        '{"version": true, "kwargs": "{}"}',
        '{"kwargs": "{}"}',
        '{"version": 1, "kwargs": {}}',
        '{"version": 1, "kwargs": "[]"}',
        '{"version": 1, "kwargs": "{}", "num_retries": "3"}',
        "[" * 100_000,
        envelope({"__completion_body": "nope"}),
        envelope({"__completion_body": 3}),
        *(envelope({key: value for key, value in BODY.items() if key != missing}) for missing in BODY),
        envelope(BODY | {"success": 1}),
        envelope(BODY | {"attempt_no": True}),
        envelope(BODY | {"task_name": 3}),
    ],
    ids=lambda text: str(text)[:40],
)
def test_what_is_no_completion_is_poison(text: str | bytes) -> None:
    with pytest.raises(PoisonMessage):
        Completion.from_text(text)


TASK = {"cmd": "x", "__workflow_id": "W", "__workflow_task": "t", "__attempt_no": 1}


@pytest.mark.parametrize(
    "kwargs",
    [
        {key: value for key, value in TASK.items() if key != "__workflow_task"},
        TASK | {"__attempt_no": "1"},
        TASK | {"__upstream_outputs_compact": [1]},
        TASK | {"__upstream_outputs_compact": {"s": "A"}},
        TASK | {"__upstream_outputs_compact": {"i": {"A": 1}}},
        TASK | {"__upstream_output_refs": {"A": 1}},
        TASK | {"__kwargs_blob": "no ref"},
        TASK | {"__upstream_outputs_blob": 5},
    ],
    ids=str,
)
def test_what_is_no_task_message_is_poison(kwargs: dict[str, Any]) -> None:
    with pytest.raises(PoisonMessage):
        TaskMessage.from_text(envelope(kwargs))


def test_version_0_is_read() -> None:
    text = json.dumps({"version": 0, "kwargs": json.dumps(TASK), "num_retries": 0, "id": "x"})

    assert TaskMessage.from_text(text).kwargs == {"cmd": "x"}


@given(st.text(max_size=40) | JSON.map(json.dumps) | JSON.map(lambda value: envelope({"__completion_body": value})))
def test_any_text_is_read_or_poison(text: str) -> None:
    for read in (Completion.from_text, TaskMessage.from_text):
        with contextlib.suppress(PoisonMessage):
            read(text)


def test_a_worker_needs_neither_pydantic_nor_yaml_to_read_a_message() -> None:
    program = (
        "import sys; import dagkit.model.messages, dagkit.model.condition, dagkit.model.resources; "
        "print([name for name in ('pydantic', 'yaml') if name in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert shown.strip() == "[]"


def test_a_long_id_is_a_digest_on_service_bus() -> None:
    assert service_bus_id("W/t/1") == "W/t/1"
    assert service_bus_id("x" * 128) == "x" * 128
    assert len(service_bus_id("x" * 129)) == 64


def test_what_a_worker_can_hold_a_task_to_travels_and_nothing_else() -> None:
    asked = {"memory": "2G", "runtime": 90, "cores": 4, "extra": {"a": 1}}
    message = TaskMessage("w", "a", 1, 0, "q", {"cmd": "true"}, resources=asked)

    read = TaskMessage.from_text(message.to_text(), queue="q")

    assert read.resources == {"memory": "2G", "runtime": 90}
    assert read.kwargs == {"cmd": "true"}


def test_what_an_upstream_task_decides_does_not_travel_as_a_value() -> None:
    message = TaskMessage("w", "a", 1, 0, "q", {"cmd": "true"}, resources={"memory": {"$ref": "probe"}})

    assert TaskMessage.from_text(message.to_text()).resources is None
    assert "__memory" not in message.to_text()
