"""What functions and classes consist of, for fingerprints."""

from __future__ import annotations

import dis
import enum
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dagkit.engine._canonical import Digester, Undigestible, joined, plain, text_token

__all__ = ["content_of"]

_SILENT = frozenset(
    {"__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl"}
)
_GLOBAL_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def content_of(digester: Digester, code: Any) -> bytes:
    """Content of a function or class: by name and version where it is installed, else all of it."""
    is_inner = "<" in code.__qualname__
    if isinstance(code, types.FunctionType):
        return _function(digester, code) if is_inner or _is_followed(code.__module__) else _named(code)
    is_written_in_python = isinstance(vars(code).get("__module__"), str)
    return _class(digester, code) if is_written_in_python and _is_followed(code.__module__) else _named(code)


def _named(code: Any) -> bytes:
    return joined(b"named", [text_token(f"{code.__module__}:{code.__qualname__}"), _version(code.__module__)])


def _version(module: str | None) -> bytes:
    top = sys.modules.get((module or "").partition(".")[0])
    return text_token(str(getattr(top, "__version__", "")))


def _is_followed(module: str | None) -> bool:
    """True for code that may change from one run to the next: neither standard library nor site-packages nor dagkit."""
    if module is None or module in ("__main__", "__mp_main__"):
        return True
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "dagkit":
        return False
    file = str(getattr(sys.modules.get(module), "__file__", None) or "").replace("\\", "/")
    return "/site-packages/" not in file and "/dist-packages/" not in file


# --- functions


def _function(digester: Digester, function: types.FunctionType) -> bytes:
    names = _all_names(function.__code__)
    parts = [_code(digester, function.__code__, function.__doc__)]
    parts += [digester.token(function.__defaults__), digester.token(function.__kwdefaults__)]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        parts += [text_token(name), _cell(digester, cell, names)]
    if _is_followed(function.__module__):
        parts += _globals(digester, function, names)
    parts += digester.pairs({name: value for name, value in vars(function).items() if name[:2] != "__"})
    return joined(b"function", parts)


def _cell(digester: Digester, cell: Any, names: frozenset[str]) -> bytes:
    try:
        return _captured(digester, cell.cell_contents, names)
    except ValueError:  # not assigned yet
        return b"empty"


def _globals(digester: Digester, function: types.FunctionType, names: frozenset[str]) -> Iterator[bytes]:
    for name in _global_names(function.__code__):
        yield text_token(name)
        if name in function.__globals__:
            yield _captured(digester, function.__globals__[name], names)
    for name in _imports(function.__code__, function.__globals__.get("__package__")):
        yield text_token(name)
        if name in sys.modules:
            yield _captured(digester, sys.modules[name], names)


def _captured(digester: Digester, value: Any, names: frozenset[str]) -> bytes:
    """Token of a captured value; of a module that may change, with those of its attributes that the code may use."""
    if isinstance(value, types.ModuleType):
        return _module(digester, value, names, ())
    return digester.token(value)


def _module(digester: Digester, module: types.ModuleType, names: frozenset[str], outer: tuple[Any, ...]) -> bytes:
    name = text_token(module.__name__)
    if not _is_followed(module.__name__) or module in outer:
        return digester.digest_of(b"module", [name, _version(module.__name__)])
    parts = [name]
    for attribute in sorted(names & vars(module).keys()):
        if attribute[:2] == "__":
            continue
        value = vars(module)[attribute]
        is_module = isinstance(value, types.ModuleType)
        parts.append(text_token(attribute))
        parts.append(_module(digester, value, names, (*outer, module)) if is_module else digester.token(value))
    return digester.digest_of(b"module", parts)


def _code(digester: Digester, code: types.CodeType, docstring: str | None = None) -> bytes:
    """Bytecode, constants and names; without line numbers, file names and the docstring."""
    constants = [_constant(digester, constant) for constant in code.co_consts]
    if docstring is not None and code.co_consts and code.co_consts[0] is docstring:
        constants[0] = digester.token(None)
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOCSTRING)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    handlers = getattr(code, "co_exceptiontable", b"")
    return joined(
        b"code", [code.co_code, handlers, *map(digester.token, numbers), *map(digester.token, names), *constants]
    )


_HAS_DOCSTRING = 0x4000000  # set by Python 3.13 and later


def _constant(digester: Digester, constant: Any) -> bytes:
    if isinstance(constant, types.CodeType):
        return _code(digester, constant)
    return digester.token(constant)


@lru_cache(maxsize=2048)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """Globals that the code reads, nested functions included, each once."""
    names = {str(item.argval): None for item in dis.get_instructions(code) if item.opname in _GLOBAL_OPS}
    for inner in _inner_codes(code):
        names.update(dict.fromkeys(_global_names(inner)))
    return tuple(names)


@lru_cache(maxsize=2048)
def _all_names(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes, and texts that may be names (`getattr(module, "name")`)."""
    texts = {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}
    return frozenset(code.co_names) | texts | {name for inner in _inner_codes(code) for name in _all_names(inner)}


def _inner_codes(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _imports(code: types.CodeType, package: str | None) -> list[str]:
    """Modules that the code imports when it runs, relative ones resolved against `package`."""
    names, constants = [], [None, None]
    for item in dis.get_instructions(code):
        if item.opname == "IMPORT_NAME":
            names.append(_absolute(str(item.argval), constants[0], package))
        constants = [constants[1], item.argval]
    return names + [name for inner in _inner_codes(code) for name in _imports(inner, package)]


def _absolute(name: str, level: Any, package: str | None) -> str:
    if not level:
        return name
    parents = (package or "").split(".")
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


# --- classes


def _class(digester: Digester, cls: type) -> bytes:
    parts = [text_token(cls.__qualname__), digester.token(cls.__bases__), digester.token(type(cls))]
    parts.append(digester.token(list(vars(cls).get("__annotations__", ()))))
    if issubclass(cls, enum.Enum):
        parts += [part for name, member in cls.__members__.items() for part in _member(digester, name, member)]
    if "__pydantic_fields__" in vars(cls):
        parts += digester.pairs(vars(cls)["__pydantic_fields__"])
    for name in sorted(vars(cls)):
        if not _is_silent(cls, name):
            parts += [text_token(name), _attribute(digester, vars(cls)[name])]
    return joined(b"class", parts)


def _member(digester: Digester, name: str, member: Any) -> list[bytes]:
    return [text_token(name), digester.token(member.value)]


def _is_silent(cls: type, name: str) -> bool:
    value = vars(cls)[name]
    if issubclass(cls, enum.Enum) and (name in cls.__members__ or name[:1] == "_"):
        return not isinstance(value, types.FunctionType) or value.__module__ == "enum"
    is_machinery = name[:2] == "__" and not isinstance(value, (types.FunctionType, classmethod, staticmethod, property))
    return name in _SILENT or (is_machinery and name != "__slots__")


def _attribute(digester: Digester, value: Any) -> bytes:
    if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return text_token(value.__name__)
    if isinstance(plain(value), types.ModuleType):
        raise Undigestible("a module as class attribute")
    return digester.token(value)
