"""Digests of a task's own work: its function and its arguments (what is upstream is added by `engine.identity`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from dagkit.engine import fingerprint
from dagkit.trace import ATOMS
from dagkit.tracing.promise import Promise, placing

__all__ = ["OwnWork"]


class OwnWork:
    """Makes the digests of one workflow; a value that many tasks share is looked into once.

    `place` says where the value of a node or ref comes from, by the position of its task among the dependencies, so
    that renaming an upstream task changes nothing.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str | None]] = {}

    def digest(self, function: str, values: Sequence[Any], place: Callable[[Promise], str]) -> str | None:
        """Digest of a function, given by its fingerprint, and arguments; None if one of them has no fingerprint."""
        if all(type(value) in ATOMS for value in values):
            text = repr(values)
        else:
            contents = [self._content(value, place) for value in values]
            if None in contents:
                return None
            text = "\n".join(f"{len(content or '')} {content}" for content in contents)
        return hashlib.sha256(f"{function} {text}".encode("utf-8", "surrogatepass")).hexdigest()

    def _content(self, value: Any, place: Callable[[Promise], str]) -> str | None:
        if type(value) in ATOMS:
            return repr(value)
        if isinstance(value, Promise):
            return place(value)
        if type(value) is list and value and all(isinstance(item, Promise) for item in value):
            return f"[{','.join(map(place, value))}]"
        known = self._known.get(id(value))
        return known[1] if known is not None else self._looked_into(value, place)

    def _looked_into(self, value: Any, place: Callable[[Promise], str]) -> str | None:
        met = []

        def noting(promise: Promise) -> str:
            met.append(promise)
            return place(promise)

        token = placing.set(noting)
        try:
            digest = fingerprint.of_value(value)
        finally:
            placing.reset(token)
        if not met:
            self._known[id(value)] = (value, digest)
        return digest
