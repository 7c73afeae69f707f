"""Units of memory and time, and what a task may ask for (facts: resources, "Units")."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import UsageError
from dagkit.model.resources import (
    ResourceRequest,
    format_memory,
    format_runtime,
    parse_memory,
    parse_runtime,
    resource_faults,
    scale_faults,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 << 20),
        ("40G", 40 * GIB),
        ("40Gb", 40 * GIB),
        ("40GiB", 40 * GIB),
        ("40g", 40 * GIB),
        ("1.5G", 3 * GIB // 2),
        ("2T", 2048 * GIB),
        ("1024K", 1 << 20),
        ("100MB", 100 << 20),
        ("100 MB", 100 << 20),
        (" 1G ", GIB),
        ("0.0001G", 107_375),  # up to whole bytes
        ("123", 123),
        ("123B", 123),
        (4096, 4096),
    ],
)
def test_memory_is_read_in_binary_units(text: Any, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text", ["a", "10 M M", "1g1M", "-5G", "0", 0, -1, "", "1.G", "G", "1e3", "∞G", "١G", None, True, 1.5, "1" * 50]
)
def test_what_is_no_memory_is_refused_with_the_forms(text: Any) -> None:
    with pytest.raises(UsageError, match="Accepted: 512M, 40G"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("30min", 1800),
        ("2h", 7200),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("10h30m", 37_800),
        ("10h 30m", 37_800),
        ("1d2h3m4s", 93_784),
        ("24:30:10", 88_210),
        ("10:00:00", 36_000),
        ("01:30:00", 5400),
        ("1-00:00:00", 86_400),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        ("1.5s", 1.5),
        ("2H", 7200),
    ],
)
def test_runtime_is_read_as_seconds(text: Any, seconds: float) -> None:
    assert parse_runtime(text) == seconds
    assert type(parse_runtime(text)) is type(seconds)


@pytest.mark.parametrize(
    "text",
    ["x", "", "-5s", "0", 0, "0h", "1:60:00", "1h-", "1 2", "30m2h", None, True, float("nan"), float("inf"), "1e3s"],
)
def test_what_is_no_runtime_is_refused_with_the_forms(text: Any) -> None:
    with pytest.raises(UsageError, match="Accepted: 90s, 30m"):
        parse_runtime(text)


def test_two_numbers_with_a_colon_are_ambiguous() -> None:
    with pytest.raises(UsageError, match="write 1:30:00 or"):
        parse_runtime("1:30")


@given(st.integers(1, 1 << 53))
def test_memory_that_reads_well_reads_back(size: int) -> None:
    text = format_memory(size)

    assert len(text) <= 8
    assert abs(parse_memory(text) - size) <= size * 0.05
    if "." not in text and size < 10_000:
        assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (40 * GIB, "40G"),
        (3 * GIB // 2, "1536M"),
        (2048 * GIB, "2T"),
        (512, "512B"),
        (3_999_999_999, "3.7G"),
        (1 << 40, "1T"),
    ],
)
def test_memory_is_shown_shortly(size: int, text: str) -> None:
    assert format_memory(size) == text


@given(st.integers(1, 10**9))
def test_runtime_reads_back(seconds: int) -> None:
    assert parse_runtime(format_runtime(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90s"), (120, "2m"), (7200, "2h"), (37_800, "10h30m"), (93_600, "1d2h"), (1.5, "1.5s")]
)
def test_runtime_is_shown_shortly(seconds: float, text: str) -> None:
    assert format_runtime(seconds) == text


def test_a_request_has_its_units_resolved() -> None:
    asked = {"cores": 4, "memory": "40G", "runtime": "2h", "gpus": 0, "extra": {"constraint": "a100"}}

    assert ResourceRequest.of(asked) == ResourceRequest(4, 40 * GIB, 7200, 0, extra={"constraint": "a100"})
    assert ResourceRequest.of(None) == ResourceRequest()


def test_every_wrong_key_of_a_request_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        ResourceRequest.of({"cores": 0, "memory": "much", "mem": 1, "nodes": True, "queue": " ", "extra": []})

    message = str(caught.value)
    assert [word for word in ("cores", "memory", "'mem'", "nodes", "queue", "extra") if word not in message] == []


def test_refs_are_allowed_until_they_have_to_be_values() -> None:
    ref = {"$ref": "probe", "path": ["mem"]}

    assert resource_faults({"memory": ref, "cores": None}) == []
    assert resource_faults(ref) == []
    assert [key for key, _ in resource_faults({"memory": ref}, refs_allowed=False)] == ["memory"]


def test_scales_are_factors_or_growing_lists() -> None:
    assert scale_faults({"memory": 0.5, "runtime": ["1h", "2h"], "cores": [2, 4], "gpus": 1}) == []

    wrong = {"memory": 0, "runtime": ["2h", "1h"], "cores": [], "gpus": True, "nodes": ["x"], "disk": 1}
    assert [key for key, _ in scale_faults(wrong)] == list(wrong)
