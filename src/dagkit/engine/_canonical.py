"""Canonical tokens of values: equal values have equal tokens in every process, and no two tokens run together.

A token is self-delimiting: a tag, the length, the bytes. The token of a container is the digest of its parts, so that
a part that occurs many times is digested once.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import pickle
import re
import struct
import types
import uuid
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

__all__ = ["Digester", "Undigestible", "joined", "plain", "token_of"]

_MAX_NESTING = 8
_CODE_TYPES = (types.FunctionType, type)
_BY_REPR: tuple[type, ...] = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    slice,
    complex,
    type(Ellipsis),
    type(NotImplemented),
)


_CACHED = type(functools.cache(lambda: None))


class Undigestible(Exception):
    """The value has no fingerprint."""


def token_of(tag: bytes, data: bytes) -> bytes:
    """Tag, length and bytes."""
    return b"%s%d:%s" % (tag, len(data), data)


def joined(tag: bytes, parts: Iterable[bytes]) -> bytes:
    """Bytes that tell where each part begins and ends, and of what kind the whole is."""
    return tag + b"(" + b"".join([token_of(b"", part) for part in parts]) + b")"


def text_token(text: str) -> bytes:
    return token_of(b"s", text.encode("utf-8", "surrogatepass"))


def float_token(value: float) -> bytes:
    return b"f" + struct.pack(">d", math.nan if value != value else value)


def plain(value: Any) -> Any:
    """The function behind a dagkit task; anything else as it is."""
    is_task = str(type(value).__module__).partition(".")[0] == "dagkit" and hasattr(value, "fn")
    return value.fn if is_task else value


class Digester:
    """Makes one fingerprint. Functions and classes are numbered in the order in which they are met, and digested once
    each: code may refer to itself in circles.

    Args:
        content_of: Gives the content of a function or class, asking this digester for the tokens of what it refers to.
    """

    def __init__(self, content_of: Callable[[Digester, Any], bytes], nesting: int = 0) -> None:
        self._content_of, self._nesting = content_of, nesting
        self._numbers: dict[int, int] = {}
        self._queue: list[Any] = []
        self._known: dict[int, tuple[Any, bytes]] = {}  # keeps the objects, so that no id is used twice
        self._open: set[int] = set()

    def digest(self, value: Any) -> str:
        """Hex digest of a value with all code that it leads to. Raises `Undigestible`."""
        contents = [self.token(value)]
        position = 0
        while position < len(self._queue):
            contents.append(self._content_of(self, self._queue[position]))
            position += 1
        return sha256(joined(b"whole", contents)).hexdigest()

    def token(self, value: Any) -> bytes:
        """Token of any value. Raises `Undigestible`."""
        simple = _SIMPLE.get(type(value))
        if simple is not None:
            return simple(value)
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._open:
            raise Undigestible("a value that contains itself")
        self._open.add(id(value))
        token = self._compound(value)
        self._open.discard(id(value))
        self._known[id(value)] = (value, token)
        return token

    def digest_of(self, tag: bytes, parts: Iterable[bytes]) -> bytes:
        """Token of a container: its tag and the digest of its parts."""
        return tag + sha256(joined(tag, parts)).digest()

    def alone(self, value: Any) -> bytes:
        """Token that does not depend on what this digester met before: for things without an order."""
        simple = _SIMPLE.get(type(value))
        if simple is not None:
            return simple(value)
        if self._nesting >= _MAX_NESTING:
            raise Undigestible("sets within sets")
        return token_of(b"a", Digester(self._content_of, self._nesting + 1).digest(value).encode())

    def pairs(self, mapping: Any) -> list[bytes]:
        """Key and value tokens, ordered by key."""
        keyed = sorted(((self.alone(key), value) for key, value in mapping.items()), key=lambda pair: pair[0])
        return [part for key, value in keyed for part in (key, self.token(value))]

    def _number(self, code: Any) -> bytes:
        number = self._numbers.get(id(code))
        if number is None:
            number = self._numbers[id(code)] = len(self._queue)
            self._queue.append(code)
        return b"#%d;" % number

    def _compound(self, value: Any) -> bytes:
        kind = type(value)
        if kind is list or kind is tuple:
            return self.digest_of(b"l" if kind is list else b"t", [self.token(item) for item in value])
        if kind is dict:
            return self.digest_of(b"d", self.pairs(value))
        if kind is set or kind is frozenset:
            return self.digest_of(b"u" if kind is set else b"z", sorted(self.alone(item) for item in value))
        if isinstance(value, _CODE_TYPES):
            return self._number(value)
        return self._object(value)

    def _object(self, value: Any) -> bytes:
        value, own = plain(value), getattr(type(value), "__dagkit_fingerprint__", None)
        if isinstance(value, types.FunctionType):
            return self._number(value)
        if own is not None:
            text = own(value)
            if text is None:
                raise Undigestible(repr(type(value)))
            return self.digest_of(b"own", [self.token(type(value)), text_token(text)])
        for matches, tokens in _KINDS:
            if matches(value):
                return self.digest_of(b"o", [self.token(type(value)), *tokens(self, value)])
        return self._reduced(value)

    def _reduced(self, value: Any) -> bytes:
        """From what the object says it is rebuilt from: complete by the contract of pickling."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            reduced = registered(value) if registered is not None else value.__reduce_ex__(4)
        except Exception as error:  # objects run their own code here and may raise anything
            raise Undigestible(repr(type(value))) from error
        if isinstance(reduced, str):
            package = pickle.whichmodule(value, reduced).partition(".")[0]  # type: ignore[attr-defined]
            owner = getattr(value, "__module__", None) or package
            # A compiled function (Cython's, in NumPy) is known by its name; its type belongs to no module.
            kind = b"" if callable(value) else self.token(type(value))
            return self.digest_of(b"g", [kind, text_token(f"{owner}:{reduced}")])
        make, args, state, items, pairs = (*reduced, None, None, None, None)[:5]
        if make is copyreg.__newobj__ or make is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
            make = None
        rest = [list(items) if items is not None else None, list(pairs) if pairs is not None else None]
        return self.digest_of(b"r", [self.token(part) for part in (make, type(value), tuple(args), state, *rest)])


_SIMPLE: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: lambda value: token_of(b"i", b"%x" % value),
    float: float_token,
    str: text_token,
    bytes: lambda value: token_of(b"b", value),
    bytearray: lambda value: token_of(b"B", bytes(value)),
}


def _repr_tokens(_digester: Digester, value: Any) -> list[bytes]:
    text = repr(value)
    if " at 0x" in text:
        raise Undigestible(text)
    return [text_token(text)]


def _array_tokens(digester: Digester, array: Any) -> list[bytes]:
    head = [text_token(repr(array.dtype.descr) if array.dtype.fields else array.dtype.str), digester.token(array.shape)]
    if array.dtype.hasobject:
        return [*head, digester.token(array.ravel().tolist())]
    return [*head, sha256(array.tobytes()).digest()]


def _frame_tokens(digester: Digester, frame: Any) -> list[bytes]:
    columns = [digester.token(frame.iloc[:, position]) for position in range(frame.shape[1])]
    return [digester.token(frame.columns), digester.token(frame.index), *columns]


def _series_tokens(digester: Digester, series: Any) -> list[bytes]:
    index = [digester.token(series.index)] if hasattr(series, "index") else []
    values = series.to_numpy()
    return [text_token(str(series.dtype)), digester.token(series.name), digester.token(values), *index]


def _is_from(package: str, *names: str) -> Callable[[Any], bool]:
    """Tells objects of a package's classes without importing the package."""

    def matches(value: Any) -> bool:
        return any(
            str(cls.__module__).partition(".")[0] == package and (cls.__name__ in names) for cls in type(value).__mro__
        )

    return matches


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Digester, Any], list[bytes]]]] = [
    (lambda value: isinstance(value, enum.Enum), lambda d, value: [text_token(value.name or ""), d.token(value.value)]),
    (_is_from("numpy", "ndarray"), _array_tokens),
    (_is_from("numpy", "generic"), _array_tokens),
    (_is_from("numpy", "dtype"), _repr_tokens),
    (_is_from("pandas", "DataFrame"), _frame_tokens),
    (_is_from("pandas", "Series", "Index"), _series_tokens),
    (_is_from("pandas", "NAType", "NaTType"), lambda d, value: []),
    (lambda value: isinstance(value, pathlib.PurePath), lambda d, value: [text_token(str(value))]),
    (lambda value: isinstance(value, re.Pattern), lambda d, value: [d.token(value.pattern), d.token(value.flags)]),
    (lambda value: isinstance(value, _BY_REPR), _repr_tokens),
    (
        lambda value: isinstance(value, functools.partial),
        lambda d, value: [d.token(value.func), d.token(value.args), d.token(value.keywords)],
    ),
    (
        lambda value: isinstance(value, types.MethodType),
        lambda d, value: [d.token(value.__func__), d.token(value.__self__)],
    ),
    (lambda value: isinstance(value, (staticmethod, classmethod)), lambda d, value: [d.token(value.__func__)]),
    (
        lambda value: isinstance(value, property),
        lambda d, value: [d.token(value.fget), d.token(value.fset), d.token(value.fdel)],
    ),
    (lambda value: isinstance(value, functools.cached_property), lambda d, value: [d.token(value.func)]),
    (
        lambda value: isinstance(value, _CACHED),
        lambda d, value: [d.token(value.__wrapped__)],
    ),
]
