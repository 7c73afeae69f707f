"""How long attempts on a worker may run."""

from __future__ import annotations

from typing import Any

import pytest

from dagkit.model.messages import Started, TaskMessage
from dagkit.worker.overtime import Overtime


def message(resources: dict[str, Any] | None) -> TaskMessage:
    return TaskMessage("w", "a", 1, 0, "q", {"cmd": "true"}, resources=resources)


def begun(resources: dict[str, Any] | None) -> Overtime:
    overtime = Overtime()
    overtime.begin(message(resources), Started("w", "a", 0, 1, 100.0))
    return overtime


def test_its_time_counts_from_when_it_began_and_is_up_once() -> None:
    overtime = begun({"runtime": "1m"})

    assert overtime.take_due(159.9) == []
    assert overtime.take_due(160.0) == [message(None).key]
    assert overtime.take_due(161.0) == []


@pytest.mark.parametrize("resources", [None, {"memory": "1G"}, {"runtime": "a while"}])
def test_without_a_runtime_there_is_no_limit(resources: dict[str, Any] | None) -> None:
    assert begun(resources).take_due(1e12) == []


def test_what_has_ended_is_forgotten() -> None:
    overtime = begun({"runtime": 1})
    overtime.end(message(None).key)

    assert overtime.take_due(1e12) == []
