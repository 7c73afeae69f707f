"""No message of ours is larger than a service takes, whatever is in it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagkit.model.messages import Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues.storage_queue import MAX_TEXT_BYTES

#: One to four bytes of UTF-8, XML's and JSON's own marks, what JSON writes in six characters.
ALPHABET = 'aZ ä漢😀"\\&<>\n\x00\x7f'
SIZES = st.integers(40_000, 70_000)


class Kept:
    """Stands for the store: what did not fit."""

    def __init__(self):
        self.objects = {}

    def put(self, path, data):
        self.objects[f"blob:w/{path}"] = data
        return f"blob:w/{path}"

    def get(self, ref):
        return self.objects[ref]


@settings(max_examples=60)
@given(size=SIZES, char=st.sampled_from(ALPHABET), parents=st.integers(0, 40), where=st.sampled_from(["cmd", "refs"]))
@example(size=65_000, char="a", parents=0, where="cmd")
def test_a_task_message_fits_and_comes_back_whole(size, char, parents, where):
    kept = Kept()
    text = (char * size).encode()[:size].decode(errors="ignore")
    cmd, ref = (text, "1") if where == "cmd" else ("true", json.dumps(text))
    upstream = {f"parent-{number}": ref if number == 0 else f"blob:w/parent-{number}.json" for number in range(parents)}
    message = TaskMessage("w", "t", 1, 0, "cpu", {"cmd": cmd}, upstream)

    sent = message.text_within(MAX_TEXT_BYTES, kept.put)

    assert sent.isascii()
    assert len(sent) <= MAX_TEXT_BYTES
    assert not {"&", "<", ">"} & set(sent)
    assert TaskMessage.from_text(sent, kept.get, "cpu") == message


@settings(max_examples=60)
@given(size=SIZES, char=st.sampled_from(ALPHABET), success=st.booleans(), usage=st.booleans())
def test_a_completion_fits_whatever_a_task_returned_or_raised(size, char, success, usage):
    kept, text = Kept(), char * (size // len(char.encode()))
    inline = json.dumps(text[: 32_768 // len(char.encode()) - 2], ensure_ascii=False)
    report = Completion("w", "t", success, output_ref=inline, attempt=1, generation=0)
    if not success:
        report = replace(report, error=text, kind=FailureKind.USER)
    if usage:
        report.usage = {"wall_s": 1.0, "host": "h"}

    sent = report.text_within(MAX_TEXT_BYTES, kept.put)

    read = Completion.from_text(sent)
    assert len(sent) <= MAX_TEXT_BYTES
    assert (read.success, read.attempt, read.generation, read.kind) == (success, 1, 0, report.kind)
    assert read.output_ref == inline or kept.get(read.output_ref).decode() == inline
    assert success or read.error[:1_000] == text[:1_000]


def test_what_fits_is_sent_as_it_is():
    kept = Kept()
    report = Completion("w", "t", True, output_ref='{"x": 1}', attempt=1, usage={"wall_s": 1.0})

    assert report.text_within(MAX_TEXT_BYTES, kept.put) == report.to_text()
    assert not kept.objects


def test_a_long_error_says_how_much_of_it_is_missing():
    report = Completion("w", "t", False, error="E" + "x" * 200_000 + "END", kind=FailureKind.USER)

    read = Completion.from_text(report.text_within(MAX_TEXT_BYTES, Kept().put))

    assert read.error.startswith("Exx")
    assert read.error.endswith("xEND")
    assert "characters left out" in read.error


@pytest.mark.parametrize("parents", [2_000, 5_000])
def test_a_wide_fan_in_travels_without_any_option(parents):
    kept = Kept()
    upstream = {f"measure-{number:05}": f"blob:w/measure-{number:05}.json" for number in range(parents)}
    message = TaskMessage("w", "t", 1, 0, "cpu", {"cmd": "true"}, upstream)

    sent = message.text_within(MAX_TEXT_BYTES, kept.put)

    assert len(sent) <= MAX_TEXT_BYTES
    assert TaskMessage.from_text(sent, kept.get, "cpu").upstream == upstream
