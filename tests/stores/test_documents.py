"""Definition and state as stores keep them (facts: jobq 7)."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import CorruptState, NewerFormat
from dagkit.model.records import Counts
from dagkit.model.states import RunStatus
from dagkit.stores import documents

trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(trees)
def test_a_packed_document_is_gzip_of_json_and_comes_back(tree):
    document = {"v": 1, "tree": tree}

    packed = documents.pack(document)

    assert packed[:2] == b"\x1f\x8b"
    assert json.loads(gzip.decompress(packed)) == document
    assert documents.unpack(packed, "x") == document


def test_plain_json_is_read_as_well():
    assert documents.unpack(b'{"v": 1}', "x") == {"v": 1}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptState),
        (b"{", CorruptState),
        (b"[1]", CorruptState),
        (b"\xff\xfe\x00", CorruptState),
        (b"\x1f\x8b\x08\x00", CorruptState),
        (documents.pack({"v": 1, "x": "y" * 500})[:-5], CorruptState),
        (b"{}", CorruptState),
        (b'{"v": "1"}', CorruptState),
        (b'{"v": true}', CorruptState),  # a bool is not an int
        (b'{"v": 0}', CorruptState),
        (b'{"v": 2}', NewerFormat),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(data, error):
    with pytest.raises(CorruptState, match="definition of run wf1") as caught:
        documents.unpack(data, "definition of run wf1")

    assert type(caught.value) is error


def test_numbers_that_json_does_not_have_become_null():
    assert json.loads(documents.encode({"usage": {"cpu_s": float("nan"), "wall_s": float("inf"), "n": 1.5}})) == {
        "usage": {"cpu_s": None, "wall_s": None, "n": 1.5}
    }


def test_a_task_state_that_dagkit_does_not_know_is_refused():
    with pytest.raises(CorruptState, match="'total'"):
        documents.count_tasks({"tasks": {"a": {}}}, {"tasks": {"a": {"state": "total"}}})


@given(st.builds(Counts, *[st.integers(0, 10**6)] * 8))
def test_counts_come_back_from_their_text(counts):
    assert documents.counts_from_text(documents.counts_to_text(counts)) == counts


@pytest.mark.parametrize("text", ["", "a,b", "1,2,3,4,5,6,7,8,9", "{}"])
def test_other_texts_are_no_counts(text):
    with pytest.raises(CorruptState):
        documents.counts_from_text(text)


@given(st.lists(st.text(), unique=True))
def test_queues_come_back_from_their_text(queues):
    assert documents.queues_from_text(documents.queues_to_text(tuple(queues))) == tuple(queues)


@pytest.mark.parametrize("text", ["", "cpu", "1"])
def test_other_texts_are_no_queues(text):
    with pytest.raises(CorruptState):
        documents.queues_from_text(text)


def test_a_status_is_known_or_shown_as_it_is():
    assert documents.status_of("failed") is RunStatus.FAILED
    assert documents.status_of("paused") == "paused"
