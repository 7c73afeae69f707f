"""What can be said about a workflow besides its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from dagkit.errors import UsageError, WrongCall
from dagkit.model.resources import parse_runtime

__all__ = ["WorkflowOptions", "checked"]


class WorkflowOptions(TypedDict, total=False):
    """Keywords of `@workflow(...)` and `with workflow(...)`."""

    default_queue: str | None
    max_parallelism: int | None
    result_policy: str | None
    fail_fast: bool | None
    concurrency: Mapping[str, int] | None
    timeout: float | str | None
    strict: bool | None


def checked(name: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The fields of `WorkflowSpec`, and `strict`. Wrong values are found here, in the cell that has them."""
    given = {key: value for key, value in options.items() if value is not None}
    if unknown := given.keys() - WorkflowOptions.__annotations__.keys():
        allowed = ", ".join(WorkflowOptions.__annotations__)
        raise WrongCall(f"workflow {name}: there is no option {sorted(unknown)[0]!r}. Options: {allowed}")
    strict = bool(given.pop("strict", False))
    try:
        if "timeout" in given:
            given["default_task_timeout_s"] = -int(-parse_runtime(given.pop("timeout")) // 1)
        if "max_parallelism" in given:
            _count("max_parallelism", given["max_parallelism"])
        if "concurrency" in given:
            given["concurrency"] = {
                str(key): _count(f"concurrency[{key!r}]", limit) for key, limit in given["concurrency"].items()
            }
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"workflow {name}: {error}") from None
    return given, strict


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError(f"{what}={value!r:.60} must be an integer, 1 or more")
    return value
