"""What payloads call while they are loaded. Names in this module are part of the payload format: they may not move."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

from dagkit.runtime._source import register

__all__ = [
    "cached_property_of",
    "code_of",
    "fill_class",
    "fill_module",
    "function_at",
    "last",
    "local_class",
    "main_namespace",
    "make_module",
    "object_at",
    "plain",
]

_namespace: Mapping[str, Any] | None = None


def plain(obj: Any) -> Any:
    """The function behind a dagkit task; anything else as it is."""
    is_task = type(obj).__module__.partition(".")[0] == "dagkit" and hasattr(obj, "fn")
    return obj.fn if is_task else obj


def code_of(args: tuple[Any, ...], filename: str, first: int, text: str) -> CodeType:
    """A code object that knows its file and, through `linecache`, its lines."""
    if text:
        register(filename, first, text)
    return CodeType(*args).replace(co_filename=filename)


def object_at(reference: str) -> Any:
    """The object that `module:qualname` names, importing the module. Raises ImportError or AttributeError."""
    module, _, qualname = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def function_at(reference: str) -> Any:
    """Like `object_at`, but a task declared there gives its function."""
    return plain(object_at(reference))


@contextmanager
def main_namespace(function: Any) -> Iterator[None]:
    """While it is open, values that are loaded use the classes that `function` (loaded by value) knows by their name.

    A worker keeps this open while it decodes the arguments of a by-value function, so that `isinstance` inside the
    function holds for values that were pickled in another session. Not thread-safe; one task at a time per process.
    """
    global _namespace
    before, _namespace = _namespace, _globals_of(function)
    try:
        yield
    finally:
        _namespace = before


def _globals_of(function: Any) -> Mapping[str, Any] | None:
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__globals__") and callable(function):
        function = type(function).__call__
    found: Mapping[str, Any] | None = getattr(function, "__globals__", None)
    return found


def local_class(module: str, qualname: str, make: Callable[..., type], args: tuple[Any, ...]) -> type:
    """This process's own class of that name if it has one, else a new one to be filled by `fill_class`."""
    return _find_class(module, qualname) or make(*args)


def fill_class(cls: type, state: tuple[Callable[[type, Any], Any], Any]) -> None:
    """Give a class made by `local_class` its attributes; a class that was found is left alone."""
    if _find_class(cls.__module__, cls.__qualname__) is not cls:
        set_state, attributes = state
        set_state(cls, attributes)


def _find_class(module: str, qualname: str) -> type | None:
    owner = _namespace if _is_worker() else getattr(sys.modules.get(module), "__dict__", None)
    first, *rest = qualname.split(".")
    found: Any = owner.get(first) if owner is not None else None
    for part in rest:
        found = getattr(found, part, None)
    return found if isinstance(found, type) and found.__module__ == module and found.__qualname__ == qualname else None


def _is_worker() -> bool:
    """True in a process whose `__main__` is ours: its names are not the user's, and its modules may be out of date."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).partition(".")[0] == "dagkit"


def cached_property_of(function: Callable[[Any], Any], name: str | None) -> functools.cached_property[Any]:
    """A cached property that knows its name, as it does after the body of its class has run."""
    made = functools.cached_property(function)
    made.attrname = name
    return made


def make_module(name: str, package: str | None, is_importable: bool) -> ModuleType:
    """An empty module that travelled by value; `import name` finds it where the real one is not installed."""
    module = ModuleType(name)
    module.__package__ = package
    module.__dict__["__dagkit_by_value__"] = True
    present = sys.modules.get(name)
    if is_importable and (present is None or hasattr(present, "__dagkit_by_value__")):
        sys.modules[name] = module
    return module


def fill_module(module: ModuleType, attributes: dict[str, Any]) -> None:
    """Give a module made by `make_module` its attributes."""
    module.__dict__.update(attributes)


def last(_modules: list[ModuleType], obj: Any) -> Any:
    """`obj`; the modules have been loaded by now."""
    return obj
