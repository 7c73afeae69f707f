"""Arguments of tasks by the names of their parameters, to choose tasks by: `lr=0.1`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dagkit.model.spec import TaskSpec

__all__ = ["Arguments", "matches"]


class Arguments:
    """What the tasks of a run are called with. A function is loaded only where an argument was given by position.

    Args:
        payload: The bytes of pickled code, by the name that a call has for it.
    """

    def __init__(self, payload: Callable[[str], bytes]) -> None:
        self._payload = payload
        self._names: dict[str, tuple[str, ...]] = {}

    def of(self, task: TaskSpec) -> dict[str, Any]:
        """By name; of a command, its variables. An argument whose name cannot be found out has its number."""
        call = task.kwargs.get("call")
        if not isinstance(call, Mapping):
            return dict(task.kwargs.get("env") or {})
        positional = call.get("args", ())
        names = self._names_of(call) if positional else ()
        given: dict[str, Any] = dict(zip(names, positional, strict=False))
        given.update({str(at): value for at, value in enumerate(positional) if at >= len(names)})
        return {**given, **call.get("kwargs", {})}

    def _names_of(self, call: Mapping[str, Any]) -> tuple[str, ...]:
        key = str(call.get("function") or call.get("pickle"))
        if key not in self._names:
            self._names[key] = self._found_names(call)
        return self._names[key]

    def _found_names(self, call: Mapping[str, Any]) -> tuple[str, ...]:
        from dagkit.runtime.payload import load_function

        try:
            reference = call.get("function")
            code = None if reference is not None else self._payload(call["pickle"])
            parameters = inspect.signature(load_function(reference, code)).parameters.values()
        except Exception:  # users' modules may raise anything when they are imported, where they are not at home
            return ()
        return tuple(one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))


def matches(arguments: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether every argument has the wanted value: an equal one, one that is written so, or the output of that task."""
    return all(name in arguments and _is(arguments[name], wanted) for name, wanted in where.items())


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(value, Mapping) and "$ref" in value:
        return bool(value["$ref"] == wanted)
    is_same_type = isinstance(value, bool) == isinstance(wanted, bool)
    return (is_same_type and bool(value == wanted)) or str(value) == str(wanted)
