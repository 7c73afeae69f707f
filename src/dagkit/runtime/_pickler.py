"""The pickler behind payloads: cloudpickle, with local modules by value and classes that find home by name."""

from __future__ import annotations

import dis
import functools
import importlib
import importlib.util
import io
import pickle
import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _internals

from dagkit.engine import fingerprint
from dagkit.runtime import _rebuild
from dagkit.runtime._installed import is_installed, is_local
from dagkit.runtime._source import source_of

__all__ = ["Pickled", "pickle_object", "reference_of"]

_lock = threading.RLock()
"""Held while modules are registered with cloudpickle, whose registry is one for the process."""


class Pickled:
    """A pickle, and whether code (functions or classes by value) is in it."""

    __slots__ = ("data", "has_code")

    def __init__(self, data: bytes, has_code: bool) -> None:
        self.data, self.has_code = data, has_code


def reference_of(obj: Any) -> str | None:
    """`module:qualname` if a worker that imports the module finds `obj`, or a task around it, under that name."""
    module, qualname = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or "<" in qualname or not is_installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualname}" if found is obj or _rebuild.plain(found) is obj else None


def pickle_object(obj: Any, persistent_id: Callable[[Any], str | None] | None = None) -> Pickled:
    """Pickle `obj` with everything local that it needs. Whatever the objects raise while pickled comes out as it is.

    A local module travels with only those attributes whose names occur in code that travels, so that a lock elsewhere
    in it does no harm. Which code that is shows while pickling: it is repeated until no new name turns up.
    """
    names: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    while True:
        buffer = io.BytesIO()
        pickler = _pickler(buffer, persistent_id)
        pickler.names, pickler.imports = names, imports
        with _lock:
            try:
                pickler.dump(_with_imports(obj, imports))
            finally:
                pickler.forget_modules()
        found_names, found_imports = names | pickler.seen_names, imports | pickler.seen_imports
        is_settled = found_imports == imports and (not pickler.met_module or found_names == names)
        if is_settled:
            return Pickled(buffer.getvalue(), pickler.has_code)
        names, imports = found_names, found_imports


def _with_imports(obj: Any, imports: frozenset[str]) -> Any:
    """`obj`, preceded by the local modules that its code imports inside functions."""
    if not imports:
        return obj
    return _Preceded([importlib.import_module(name) for name in sorted(imports)], obj)


class _Preceded:
    """Loads as `obj`, after the modules were loaded."""

    def __init__(self, modules: list[ModuleType], obj: Any) -> None:
        self.modules, self.obj = modules, obj

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild.last, (self.modules, self.obj)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    names: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    has_code = False
    met_module = False

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.seen_names: set[str] = set()
        self.seen_imports: set[str] = set()
        self._registered: set[str] = set()
        self._codes: set[CodeType] = set()
        self._inner_codes: set[CodeType] = set()

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is FunctionType:
            return self._function(obj)
        if kind is CodeType:
            return self._code(obj)
        if issubclass(kind, type):
            return self._class(obj)
        if isinstance(obj, ModuleType):
            if not is_installed(obj.__name__):
                return self._module(obj)
            if kind is not ModuleType:  # one that loads lazily, say; cloudpickle knows the plain kind only
                return importlib.import_module, (obj.__name__,)
        if kind is functools.cached_property:  # holds a lock before Python 3.12
            return _rebuild.cached_property_of, (obj.func, obj.attrname)
        if isinstance(obj, io.TextIOWrapper) and obj is not sys.stdout and obj is not sys.stderr:
            raise pickle.PicklingError("cannot pickle an open file")  # cloudpickle would send its content
        return NotImplemented

    def _function(self, function: FunctionType) -> Any:
        self._register(function.__module__)
        reference = reference_of(function)
        if reference is not None and _rebuild.object_at(reference) is not function:
            return _rebuild.function_at, (reference,)
        reduced = super().reducer_override(function)
        if reduced is not NotImplemented:
            self.has_code = True
            self._note_code(function.__code__, function.__globals__.get("__package__"))
        return reduced

    def _code(self, code: CodeType) -> Any:
        _, args = _internals._code_reduce(code)
        filename, first, text = source_of(code)
        if code in self._inner_codes:
            text = ""  # it is part of the text around it
        self._inner_codes.update(const for const in code.co_consts if isinstance(const, CodeType))
        return _rebuild.code_of, (args, filename, first, text)

    def _class(self, cls: type) -> Any:
        self._register(cls.__module__)
        is_inner = "<locals>" in cls.__qualname__
        if not is_inner and not is_installed(str(cls.__module__)):
            _track(cls)
        reduced = super().reducer_override(cls)
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        self.has_code = True
        if is_inner:
            return reduced
        make, args, state, _, _, set_state = reduced
        whole = (cls.__module__, cls.__qualname__, make, args)
        return _rebuild.local_class, whole, (set_state, state), None, None, _rebuild.fill_class

    def _module(self, module: ModuleType) -> Any:
        self.met_module = True
        attributes = {name: value for name, value in vars(module).items() if name in self.names and name[:2] != "__"}
        whole = (module.__name__, module.__package__, module.__name__ in self.imports)
        return _rebuild.make_module, whole, attributes, None, None, _rebuild.fill_module

    def _register(self, name: Any) -> None:
        """Have cloudpickle take the functions and classes of a local module by value."""
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or name in self._registered or name == "__main__" or is_installed(name):
            return
        if name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._registered.add(name)

    def forget_modules(self) -> None:
        """Leave cloudpickle's registry as it was found."""
        for name in self._registered:
            if name in sys.modules:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])

    def _note_code(self, code: CodeType, package: str | None) -> None:
        if code in self._codes:
            return
        self._codes.add(code)
        self.seen_names.update(code.co_names)
        self.seen_names.update(const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
        self.seen_imports.update(name for name in imported_names(code, package) if is_local(name) and _imports(name))
        for const in code.co_consts:
            if isinstance(const, CodeType):
                self._note_code(const, package)


def imported_names(code: CodeType, package: str | None) -> list[str]:
    """Modules that the code imports when it runs; with `from package import name`, `package.name` is one of them."""
    names: list[str] = []
    constants: list[Any] = [None, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            names += _import_targets(str(instruction.argval), constants[0], constants[1], package)
        constants = [constants[1], instruction.argval]
    return names


def _imports(name: str) -> bool:
    """Whether the module can be imported here. One that cannot is left to the worker, which will say so."""
    try:
        importlib.import_module(name)
    except Exception:  # the module's own code runs and may raise anything
        return False
    return True


def _import_targets(name: str, level: Any, wanted: Any, package: str | None) -> list[str]:
    """What `IMPORT_NAME` with these operands reaches; nothing for a relative import outside a package."""
    if level and not package:
        return []
    try:
        base = importlib.util.resolve_name("." * (level or 0) + name, package) if level else name
    except ImportError:
        return []
    parts = base.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))] + [f"{base}.{part}" for part in wanted or ()]


def _pickler(buffer: io.BytesIO, persistent_id: Callable[[Any], str | None] | None) -> _Pickler:
    if persistent_id is None:
        return _Pickler(buffer)
    pickler = _PicklerWithRefs(buffer)
    pickler.id_of = persistent_id
    return pickler


class _PicklerWithRefs(_Pickler):
    id_of: Callable[[Any], str | None]

    def persistent_id(self, obj: Any) -> str | None:
        return self.id_of(obj)


def _track(cls: type) -> None:
    """Give cloudpickle an identity for `cls` that follows from its content, so that payloads do not vary by session."""
    by_class = getattr(_internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", None)
    by_id = getattr(_internals, "_DYNAMIC_CLASS_TRACKER_BY_ID", None)
    if by_class is None or by_id is None or cls in by_class:
        return
    digest = fingerprint.combine([str(cls.__module__), fingerprint.of_value(cls)])
    if digest is not None:
        by_class[cls] = digest
        by_id[digest] = cls
