"""What can be said about a task besides its code: queue, retries, resources, names, order and conditions."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from dagkit.errors import TracingError, UsageError, WrongCall
from dagkit.model.resources import RESOURCES, parse_memory, parse_runtime
from dagkit.trace import Node, nodes_in
from dagkit.tracing.promise import Promise
from dagkit.tracing.when import Condition, as_condition

if TYPE_CHECKING:
    from typing_extensions import Unpack  # noqa: F401 - re-exported to the modules that annotate with it

__all__ = ["MAX_DELAYS", "Options", "TaskOptions", "changed"]

#: Delays that a backoff is written out as; the last one repeats.
MAX_DELAYS: Final = 32
MAX_DELAY_S: Final = 86_400.0


class TaskOptions(TypedDict, total=False):
    """Keywords of `@task(...)`, `shell(...)` and `.options(...)`; None takes an option back to its default."""

    name: str | None
    """Name in the workflow instead of the function's; may be a template over arguments: `fit-{seed}`."""
    queue: str | None
    retries: int | None
    """How often a failed task is tried again: 3 is up to 4 attempts."""
    retry_delay: float | str | Sequence[float | str] | None
    """Pause before a retry: seconds, `"10s"`, or one for each retry (the last repeats)."""
    backoff: float | None
    """Factor by which the pause grows with every retry."""
    timeout: float | str | None
    """Limit for one attempt: seconds, or `"2h"`."""
    cores: Any
    memory: Any
    """`"40G"` or bytes; like every resource also a ref to an upstream output."""
    runtime: Any
    gpus: Any
    nodes: Any
    resources: Mapping[str, Any] | Callable[..., Any] | None
    """The same as a mapping, the scheduler's own keys too; or a function of the task's arguments that returns it."""
    resource_scales: Mapping[str, Any] | None
    """How a resource grows after a failure for lack of it: a factor (0.5), a list, or a function of the last value."""
    fallback_queues: Sequence[str] | None
    cache: bool | None
    """Reuse the result of an earlier run that did the same."""
    outputs: int | None
    """The task returns this many values, and its node can be unpacked."""
    priority: int | None
    """Among ready tasks the higher goes first."""
    expected_outputs: Sequence[str] | None
    """Files that must exist when the task has succeeded."""
    strict: bool | None
    """An argument whose declared type does not fit is an error rather than a warning."""
    after: Any
    """Nodes to wait for without using their output."""
    when: Any
    """Condition on upstream outputs: `when=m["mae"] < 0.1`. The task is skipped if it does not hold."""
    dep_policy: Literal["all", "any", "all_settled"] | int | None
    """How many of the tasks it depends on must succeed."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options as they are kept: checked, with units resolved."""

    name: str | None = None
    queue: str | None = None
    retries: int = 0
    retry_delay: float | tuple[float, ...] | None = None
    backoff: float | None = None
    timeout: int | None = None
    resources: Any = None
    """A mapping by the names of `model.resources.RESOURCES`, or a function."""
    resource_scales: Mapping[str, Any] | None = None
    fallback_queues: tuple[str, ...] = ()
    cache: bool = False
    outputs: int | None = None
    priority: int = 0
    expected_outputs: tuple[str, ...] = ()
    strict: bool = False
    after: tuple[Node[Any], ...] = ()
    when: Condition | None = None
    dep_policy: str | int = "all"

    def retry_delay_s(self) -> float | tuple[float, ...] | None:
        """The pauses with the backoff written out."""
        if self.backoff is None or not isinstance(self.retry_delay, (int, float)):
            return self.retry_delay
        count = max(1, min(self.retries, MAX_DELAYS))
        delays = [min(self.retry_delay * self.backoff ** min(index, 64), MAX_DELAY_S) for index in range(count)]
        return tuple(delays) if len(set(delays)) > 1 else delays[0]


def changed(options: Options, task: str, changes: Mapping[str, Any]) -> Options:
    """Options with changes applied; `UsageError` naming task and option for what is wrong."""
    checked: dict[str, Any] = {}
    resources: dict[str, Any] = {}
    for key, value in changes.items():
        if key in _RESOURCE_OPTIONS:
            resources[key] = value
        elif key not in _CHECKS:
            raise WrongCall(f"{task}: there is no option {key!r}.{_meant(key)} Options: {', '.join(sorted(_ALL))}")
        else:
            checked[key] = _DEFAULTS[key] if value is None else _checked(task, key, value, _CHECKS[key])
    if resources:
        checked["resources"] = _merged(task, checked.get("resources", options.resources), resources)
    if isinstance(checked.get("resources"), dict) and isinstance(checked["resources"].get("queue"), str):
        checked.setdefault("queue", checked["resources"].pop("queue"))
    result = dataclasses.replace(options, **checked)
    _check_together(task, result)
    return result


def _checked(task: str, key: str, value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except TracingError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"{task}: {key}={value!r:.80}: {error}") from None


def _merged(task: str, known: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    if callable(known):
        raise UsageError(f"{task}: resources is a function; let it return {', '.join(named)} too, or drop the function")
    merged = dict(known or {})
    for key, value in named.items():
        merged.pop(key, None)
        if value is not None:
            merged[key] = _checked(task, key, value, _resource_check(key))
    return merged


def _check_together(task: str, options: Options) -> None:
    if options.backoff is not None and not isinstance(options.retry_delay, (int, float)):
        raise UsageError(
            f"{task}: backoff={options.backoff} multiplies a single retry_delay; give one, such as retry_delay='10s'"
        )


def _meant(key: str) -> str:
    close = difflib.get_close_matches(key, _ALL, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


# --- one check per option; each raises ValueError or TypeError with the second half of a sentence


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError("must be text that is not blank")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, Promise)):
        raise TypeError("must be a list of texts")
    return tuple(_text(item) for item in value)


def _whole(least: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise TypeError(f"must be an integer, {least} or more")
        return value

    return check


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("must be an integer")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be True or False")
    return value


def _timeout(value: Any) -> int:
    return math.ceil(parse_runtime(value))


def _delay(value: Any) -> float | tuple[float, ...]:
    if isinstance(value, (str, int, float)):
        return 0.0 if value in (0, "0") and value is not False else float(parse_runtime(value))
    delays = tuple(_delay(item) for item in value)
    if not delays or any(isinstance(item, tuple) for item in delays):
        raise TypeError("must be seconds, a text such as '10s', or a list of these")
    return delays  # type: ignore[return-value]


def _backoff(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < math.inf:
        raise TypeError("must be a factor, 1 or more")
    return float(value)


def _resources(value: Any) -> Any:
    if callable(value) and not isinstance(value, Promise):
        return value
    if not isinstance(value, Mapping):
        raise TypeError("must be a mapping such as {'memory': '40G'}, or a function that returns one")
    known: dict[str, Any] = {}
    extra: dict[str, Any] = dict(value.get("extra") or {})
    for key, item in value.items():
        if key == "extra" or item is None:
            continue
        if key in RESOURCES:
            known[key] = _resource(key, item)
        else:
            extra[_text(key)] = item
    return {**known, "extra": extra} if extra else known


def _resource_check(key: str) -> Callable[[Any], Any]:
    return lambda value: _resource(key, value)


def _resource(key: str, value: Any) -> Any:
    """One resource as it is, if it is right; a ref is checked when its value is known."""
    if isinstance(value, Promise):
        return value
    if key == "memory":
        parse_memory(value)
    elif key == "runtime":
        parse_runtime(value)
    elif key == "queue":
        _text(value)
    else:
        _whole(0 if key == "gpus" else 1)(value)
    return value


def _scales(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("must be a mapping such as {'memory': 0.5}")
    return {_text(key): list(item) if isinstance(item, (tuple, range)) else item for key, item in value.items()}


def _after(value: Any) -> tuple[Node[Any], ...]:
    is_one = isinstance(value, Promise) or hasattr(value, "fn") or not isinstance(value, Iterable)
    items = [value] if is_one else list(_flat(value))
    for item in items:
        if not isinstance(item, Promise):
            called = " Call the task to make one: task(...)." if hasattr(item, "fn") else ""
            raise TracingError(f"after= takes nodes, and {item!r:.60} is none.{called}")
    return tuple(dict.fromkeys(nodes_in(items, set())))[::-1] if len(items) > 1 else tuple(nodes_in(items, set()))


def _flat(value: Iterable[Any]) -> Iterator[Any]:
    """Items of a list, and of the lists in it (the result of `.map`)."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (list, tuple)):
            yield from item
        else:
            yield item


def _policy(value: Any) -> str | int:
    if value in ("all", "any", "all_settled") if isinstance(value, str) else type(value) is int and value >= 1:
        return value  # type: ignore[no-any-return]
    raise TypeError("must be 'all', 'any', 'all_settled' or an integer, 1 or more")


_RESOURCE_OPTIONS: Final = ("cores", "memory", "runtime", "gpus", "nodes")
_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": _text,
    "queue": _text,
    "retries": _whole(0),
    "retry_delay": _delay,
    "backoff": _backoff,
    "timeout": _timeout,
    "resources": _resources,
    "resource_scales": _scales,
    "fallback_queues": _texts,
    "cache": _flag,
    "outputs": _whole(1),
    "priority": _priority,
    "expected_outputs": _texts,
    "strict": _flag,
    "after": _after,
    "when": as_condition,
    "dep_policy": _policy,
}
_DEFAULTS: Final = {field.name: field.default for field in dataclasses.fields(Options)}
_ALL: Final = (*_CHECKS, *_RESOURCE_OPTIONS)
