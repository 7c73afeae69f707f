"""What a task asks for after it ran out of something, and which queue holds it (facts: resources, "Resource retry").

A failure of kind `memory` grows memory, one of kind `timeout` grows runtime, each by half unless the task says
otherwise; cores, gpus and nodes grow along where they are named. The next request follows from the last one of the same
task alone, in the unit in which it was written: 40G, 60G, 90G, 135G.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from dagkit.model.resources import parse_memory, parse_runtime
from dagkit.model.states import FailureKind

__all__ = ["DEFAULT_SCALE", "Growth", "QueueLimits", "grow", "over_limit", "runtime_of"]

DEFAULT_SCALE: Final = 0.5
_SCALED_BY: Final = {FailureKind.MEMORY: "memory", FailureKind.TIMEOUT: "runtime"}
_ALONG: Final = ("cores", "gpus", "nodes")
_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s?([A-Za-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The most that one task may ask of a queue; None for no limit."""

    memory_bytes: int | None = None
    runtime_s: float | None = None
    cores: int | None = None

    def of(self, key: str) -> float | None:
        """The limit of one resource, in bytes, seconds or cores."""
        if key == "memory":
            return self.memory_bytes
        return self.runtime_s if key == "runtime" else self.cores if key == "cores" else None


@dataclass(frozen=True, slots=True)
class Growth:
    """The next request of a task.

    Attributes:
        resources: The whole request.
        queue: The queue that holds it.
        notes: What changed, for people: `memory 40G -> 60G`.
    """

    resources: dict[str, Any]
    queue: str
    notes: tuple[str, ...] = field(default=())


def grow(
    resources: Mapping[str, Any],
    queue: str,
    scales: Mapping[str, Any] | None,
    kind: FailureKind | None,
    fallbacks: Sequence[str],
    limits: Mapping[str, QueueLimits],
) -> Growth | None:
    """The request after a failure of this kind; None if nothing of it grows.

    Args:
        resources: The request of the attempt that failed, and `queue` the queue that the task names.
        scales: Factors, or lists of values of which the next larger one is taken and the last one stays.
        fallbacks: Queues that may be used beside its own, in order of preference.
        limits: By queue; a queue that is not there has none.
    """
    cause = _SCALED_BY.get(kind) if kind is not None else None
    if cause is None:
        return None
    scales = scales or {}
    keys = [cause, *(key for key in _ALONG if key in scales)]
    grown = {key: _next(key, resources[key], scales.get(key, DEFAULT_SCALE)) for key in keys if _has(resources, key)}
    grown = {key: value for key, value in grown.items() if _amount(key, value) > _amount(key, resources[key])}
    if not grown:
        return None
    candidates = list(dict.fromkeys((queue, *fallbacks)))
    return _placed({**resources, **grown}, resources, candidates, limits)


def _placed(
    wanted: dict[str, Any], before: Mapping[str, Any], candidates: Sequence[str], limits: Mapping[str, QueueLimits]
) -> Growth:
    """The first queue that holds the whole request; else the one that holds most of it, without asking for less."""
    for queue in candidates:
        if over_limit(wanted, limits.get(queue)) is None:
            return Growth(wanted, queue, _changes(before, wanted))
    capped = [(queue, _capped(wanted, limits.get(queue))) for queue in candidates]
    fitting = [(queue, request) for queue, request in capped if not _shrinks(before, request)]
    if not fitting:
        return Growth(dict(before), candidates[0], ("no queue holds more",))
    queue, request = max(fitting, key=lambda one: _sizes(one[1]))
    return Growth(request, queue, (*_changes(before, request), f"the most that queue {queue} holds"))


def over_limit(resources: Mapping[str, Any], limits: QueueLimits | None) -> tuple[str, float] | None:
    """The first resource that is above its limit, with the limit; None if all are within."""
    for key in ("memory", "runtime", "cores"):
        limit = None if limits is None else limits.of(key)
        if limit is not None and _has(resources, key) and _amount(key, resources[key]) > limit:
            return key, limit
    return None


def _capped(wanted: Mapping[str, Any], limits: QueueLimits | None) -> dict[str, Any]:
    capped = dict(wanted)
    for key in ("memory", "runtime", "cores"):
        limit = None if limits is None else limits.of(key)
        if limit is not None and _has(wanted, key) and _amount(key, wanted[key]) > limit:
            capped[key] = int(limit)
    return capped


def _shrinks(before: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    return any(_has(before, key) and _amount(key, request[key]) < _amount(key, before[key]) for key in request)


def _sizes(request: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(_amount(key, request[key]) if _has(request, key) else 0.0 for key in ("memory", "runtime", "cores"))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key} {before[key]} -> {after[key]}" for key in after if after[key] != before.get(key))


def _has(resources: Mapping[str, Any], key: str) -> bool:
    value = resources.get(key)
    return value is not None and not isinstance(value, Mapping)


def _next(key: str, value: Any, scale: Any) -> Any:
    """A factor makes the number larger and keeps the unit; a list gives its next larger value, or its last."""
    if isinstance(scale, (list, tuple)):
        return next((item for item in scale if _amount(key, item) > _amount(key, value)), value)
    factor = 1 + Decimal(repr(scale))
    if isinstance(value, str) and (match := _UNIT.fullmatch(value.strip())) is not None:
        return f"{math.ceil(Decimal(match[1]) * factor)}{match[2]}"
    number = parse_runtime(value) if key == "runtime" else value  # 10h30m, 24:30:10
    return math.ceil(Decimal(repr(number)) * factor)


def runtime_of(resources: Mapping[str, Any] | None) -> float:
    """Seconds that a request asks for; 0 where it does not, or an upstream task decides."""
    return _amount("runtime", resources["runtime"]) if resources and _has(resources, "runtime") else 0.0


def _amount(key: str, value: Any) -> float:
    """Bytes, seconds, or a count."""
    if key == "memory":
        return float(parse_memory(value))
    return float(parse_runtime(value)) if key == "runtime" else float(value)
