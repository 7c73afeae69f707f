"""How resources grow after a failure for lack of them, written out (facts: resources, "Resource retry")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from typing import Any, Final

from dagkit.errors import UsageError
from dagkit.model.resources import format_memory, parse_memory, parse_runtime
from dagkit.tracing.options import Options
from dagkit.tracing.promise import Promise

__all__ = ["written_scales"]

#: Values of an endless iterator that are written out when the task has more retries than that.
MAX_VALUES: Final = 64


def written_scales(options: Options, task: str) -> dict[str, Any]:
    """`resource_scales` of the YAML model: factors as they are, lists, iterators and functions as lists.

    `UsageError` for a function without a value to start from and for values that do not grow.
    """
    assert options.resource_scales is not None
    return {key: _written(options, task, key, scale) for key, scale in options.resource_scales.items()}


def _written(options: Options, task: str, key: str, scale: Any) -> Any:
    if isinstance(scale, (int, float)) and not isinstance(scale, bool):
        return scale
    count = max(1, min(options.retries, MAX_VALUES))
    try:
        found = _called(options, key, scale, count) if callable(scale) else list(islice(_items(scale), count))
        amounts = [_amount(key, item) for item in found]
    except (ValueError, TypeError) as error:
        raise UsageError(f"{task}: resource_scales[{key!r}]: {error}") from None
    start = _start(options, key)
    known = amounts if start is None else [start, *amounts]
    if not amounts or any(later <= earlier for earlier, later in pairwise(known)):
        raise UsageError(
            f"{task}: resource_scales[{key!r}]: {found} does not grow"
            + ("" if start is None else f" from {start}, which the task asks for")
        )
    return [_text(key, item) for item in found]


def _items(scale: Any) -> Iterable[Any]:
    if isinstance(scale, str) or not isinstance(scale, Iterable):
        raise TypeError("must be a factor, a list of values, or a function of the previous value")
    return scale


def _called(options: Options, key: str, grow: Callable[[Any], Any], count: int) -> list[Any]:
    value: Any = _start(options, key)
    if value is None:
        raise TypeError(f"a function needs a fixed {key} to start from")
    found = []
    for _ in range(count):
        value = _amount(key, grow(value))
        found.append(value)
    return found


def _start(options: Options, key: str) -> float | None:
    value = options.resources.get(key) if isinstance(options.resources, dict) else None
    return None if value is None or isinstance(value, Promise) else _amount(key, value)


def _amount(key: str, value: Any) -> float:
    if key == "memory":
        return parse_memory(value)
    if key == "runtime":
        return parse_runtime(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.60} is not an integer")
    return value


def _text(key: str, value: Any) -> Any:
    exact = key == "memory" and isinstance(value, int) and parse_memory(format_memory(value)) == value
    return format_memory(value) if exact else value
