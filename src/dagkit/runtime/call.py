"""Running a Python task in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import CoroutineType
from typing import Any, Final

from dagkit.runtime import values
from dagkit.runtime.outcome import Failure
from dagkit.runtime.storage import Storage

__all__ = ["Caller"]

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_MISSING: Final = object()
_NO_CLASSES: Final = nullcontext()


class Caller:
    """Runs calls, each function loaded once.

    `guard(True)` is called right before the task's own code begins and `guard(False)` right after it ends.
    """

    def __init__(self, storage: Storage, guard: Callable[[bool], None]) -> None:
        self._storage, self._guard = storage, guard
        self._functions: dict[str, Callable[..., Any]] = {}

    def run(self, call: Mapping[str, Any], upstream: Mapping[str, str | None]) -> Any:
        """What the task returns; whatever it raises passes through. `Failure` if the call itself is not in order."""
        function = self._functions.get(call.get("function") or call.get("pickle") or "")
        if function is None:
            function = self._load(call)
        args, kwargs = call.get("args"), call.get("kwargs")
        self._storage.expect(upstream.values())
        decode = _decoder(upstream, self._storage)
        with _classes_of(call, function):
            positional = [arg if type(arg) in _PLAIN else decode(arg) for arg in args] if args else ()
            named = {key: arg if type(arg) in _PLAIN else decode(arg) for key, arg in kwargs.items()} if kwargs else {}
        process = os.getpid()
        self._guard(True)
        try:
            value = function(*positional, **named)
            if type(value) is CoroutineType:
                value = _awaited(value)
        finally:
            self._guard(False)
            if os.getpid() != process:  # the task forked and the copy came back: it is not the worker
                os._exit(0)
        return value

    def _load(self, call: Mapping[str, Any]) -> Callable[..., Any]:
        from dagkit.runtime.payload import load_function

        reference, digest = call.get("function"), call.get("pickle")
        if isinstance(digest, str):
            function = load_function(data=self._storage.payload(digest))
        elif isinstance(reference, str):
            function = load_function(reference)
        else:
            raise Failure("the task's `call` has neither `function` nor `pickle`", "config")
        self._functions[reference or digest or ""] = function
        return function


def _classes_of(call: Mapping[str, Any], function: Callable[..., Any]) -> AbstractContextManager[None]:
    """Values that are decoded for a function that travelled by value are of the classes that it knows by their name."""
    if "pickle" not in call:
        return _NO_CLASSES
    from dagkit.runtime.payload import main_namespace

    return main_namespace(function)


def _decoder(upstream: Mapping[str, str | None], storage: Storage) -> Callable[[Any], Any]:
    """Decodes the arguments of one task; each parent's output is read once for all of them."""
    found: dict[str, Any] = {}

    def resolve(task: str) -> Any:
        value = found.get(task, _MISSING)
        if value is _MISSING:
            if task not in upstream:
                raise Failure(
                    f"an argument refers to the output of {task!r}, which is no parent of this task", "config"
                )
            value = found[task] = storage.output(upstream[task])
        return value

    return lambda tree: values.decode(tree, resolve=resolve, get=storage.payload)


def _awaited(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(coroutine)
