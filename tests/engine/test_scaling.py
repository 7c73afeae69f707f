"""What a task asks for after it ran out of something."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagkit.engine.scaling import Growth, QueueLimits, grow, over_limit
from dagkit.model.resources import parse_memory, parse_runtime
from dagkit.model.states import FailureKind

MEMORY, TIMEOUT = FailureKind.MEMORY, FailureKind.TIMEOUT


def series(value: Any, key: str, scale: Any, times: int) -> list[Any]:
    """The values of successive failures."""
    kind = MEMORY if key == "memory" else TIMEOUT
    found, request = [], {key: value}
    for _ in range(times):
        growth = grow(request, "q", None if scale is None else {key: scale}, kind, (), {})
        if growth is None:
            break
        request = growth.resources
        found.append(request[key])
    return found


@pytest.mark.parametrize(
    ("value", "key", "scale", "then"),
    [
        ("40G", "memory", None, ["60G", "90G", "135G"]),
        ("90s", "runtime", None, ["135s", "203s", "305s"]),
        (90, "runtime", 0.5, [135, 203, 305]),
        (100, "runtime", 0.1, [110]),  # not 111: decimal arithmetic
        ("1.5G", "memory", None, ["3G"]),
        ("2h", "runtime", None, ["3h", "5h"]),
        ("10h30m", "runtime", None, [56_700]),
        ("512M", "memory", 1, ["1024M"]),
        ("100s", "runtime", [100, 120], [120]),  # then it stays
        ("40G", "memory", ["50G", "1T"], ["50G", "1T"]),
    ],
)
def test_growth_in_the_unit_of_the_request(value: Any, key: str, scale: Any, then: list[Any]) -> None:
    assert series(value, key, scale, len(then)) == then


def test_a_list_that_is_used_up_grows_no_more() -> None:
    assert series(100, "runtime", [100, 120], 5) == [120]


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind not in (MEMORY, TIMEOUT)] + [None])
def test_other_failures_scale_nothing(kind: FailureKind | None) -> None:
    assert grow({"memory": "1G", "runtime": 60}, "q", {"memory": 1, "runtime": 1}, kind, (), {}) is None


def test_memory_does_not_grow_for_want_of_time() -> None:
    growth = grow({"memory": "1G", "runtime": 60, "cores": 2}, "q", None, TIMEOUT, (), {})
    assert growth == Growth({"memory": "1G", "runtime": 90, "cores": 2}, "q", ("runtime 60 -> 90",))


def test_cores_grow_along_where_they_are_named() -> None:
    growth = grow({"memory": "1G", "cores": 2, "nodes": 1}, "q", {"cores": 1.0}, MEMORY, (), {})
    assert growth is not None
    assert growth.resources == {"memory": "2G", "cores": 4, "nodes": 1}


def test_what_was_not_asked_for_does_not_grow() -> None:
    assert grow({"cores": 2}, "q", None, MEMORY, (), {}) is None


def test_the_example_of_the_rules() -> None:
    """Runtime 900 s, queue cap 1000 s, fallback `long` with a cap of 10000 s."""
    limits = {"short": QueueLimits(runtime_s=1000), "long": QueueLimits(runtime_s=10_000)}
    request, found = {"runtime": 900}, []
    for _ in range(7):
        growth = grow(request, "short", {"runtime": 0.5}, TIMEOUT, ["long"], limits)
        if growth is None:
            break
        request = growth.resources
        found.append((growth.queue, request["runtime"]))

    assert found[:6] == [("long", n) for n in (1350, 2025, 3038, 4557, 6836, 10_000)]
    assert "the most that queue long holds" in growth.notes
    assert found[6:] == [("long", 10_000)]  # it never shrinks


def test_the_first_queue_that_holds_the_whole_request_is_used() -> None:
    limits = {"a": QueueLimits(memory_bytes=parse_memory("2G")), "b": QueueLimits(runtime_s=10), "c": QueueLimits()}
    growth = grow({"memory": "2G", "runtime": 60}, "a", None, MEMORY, ["b", "c"], limits)
    assert growth is not None
    assert (growth.queue, growth.resources["memory"]) == ("c", "3G")


def test_a_queue_without_limits_holds_everything() -> None:
    growth = grow({"memory": "2G"}, "a", None, MEMORY, [], {"b": QueueLimits(memory_bytes=1)})
    assert growth is not None
    assert growth.queue == "a"


def test_where_every_queue_holds_less_than_before_nothing_changes() -> None:
    limits = {"a": QueueLimits(memory_bytes=parse_memory("1G"))}
    growth = grow({"memory": "2G"}, "a", None, MEMORY, [], limits)
    assert growth == Growth({"memory": "2G"}, "a", ("no queue holds more",))


def test_a_request_above_its_queue_names_the_resource_and_the_limit() -> None:
    limits = QueueLimits(memory_bytes=100, runtime_s=60, cores=4)
    assert over_limit({"memory": 100, "runtime": "1m", "cores": 4}, limits) is None
    assert over_limit({"cores": 5}, limits) == ("cores", 4)
    assert over_limit({"runtime": "2m"}, limits) == ("runtime", 60)
    assert over_limit({"memory": {"$ref": "probe"}}, limits) is None
    assert over_limit({"memory": "1T"}, None) is None


limits_ = st.builds(
    QueueLimits, st.none() | st.integers(1, 10_000), st.none() | st.integers(1, 10_000), st.none() | st.integers(1, 64)
)


@given(
    st.fixed_dictionaries({"memory": st.integers(1, 9_000), "runtime": st.integers(1, 9_000)}),
    st.sampled_from([MEMORY, TIMEOUT]),
    st.dictionaries(st.sampled_from(["memory", "runtime"]), st.floats(0.01, 5)),
    st.lists(st.sampled_from("abc"), max_size=3, unique=True),
    st.dictionaries(st.sampled_from("abc"), limits_),
)
def test_a_request_never_shrinks_and_fits_its_queue_if_it_changed(request, kind, scales, fallbacks, limits):
    growth = grow(request, "a", scales, kind, fallbacks, limits)

    assert growth is not None
    assert growth.queue in ("a", *fallbacks)
    after = growth.resources
    assert parse_memory(after["memory"]) >= request["memory"]
    assert parse_runtime(after["runtime"]) >= request["runtime"]
    if after != request:
        assert over_limit(after, limits.get(growth.queue)) is None
