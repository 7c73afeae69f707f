"""Names made from arguments: `fit-{seed}`, `fit-{seed:03d}`."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dagkit.errors import TracingError, UsageError
from dagkit.tracing.promise import Promise

__all__ = ["NameTemplate"]

#: Characters of one argument that go into a name.
MAX_PART: Final = 80

_CONVERSIONS: Final[dict[str | None, Callable[[Any], str]]] = {"r": repr, "s": str, "a": ascii}


class _Piece(NamedTuple):
    text: str
    field: str | None
    spec: str | None
    conversion: str | None


class NameTemplate:
    """A template over the arguments of a task. Only whole arguments: no attributes or items of them."""

    __slots__ = ("pieces", "task", "text")

    def __init__(self, text: str, task: str) -> None:
        self.text, self.task = text, task
        try:
            self.pieces = [_Piece(*piece) for piece in string.Formatter().parse(text)]
        except ValueError as error:
            raise UsageError(f"{task}: name {text!r}: {error}") from None
        for piece in self.pieces:
            if piece.field is not None and not piece.field.isidentifier():
                raise UsageError(
                    f"{task}: name {text!r}: {{{piece.field}}} is not the name of an argument, "
                    f"as in {{seed}} or {{seed:03d}}"
                )

    def fill(self, arguments: Mapping[str, Any]) -> str:
        """The name for these arguments. `UsageError` if one is missing, `TracingError` if one is a node."""
        return "".join(
            piece.text + ("" if piece.field is None else self._part(piece, arguments)) for piece in self.pieces
        )

    def _part(self, piece: _Piece, arguments: Mapping[str, Any]) -> str:
        assert piece.field is not None
        if piece.field not in arguments:
            there = ", ".join(arguments) or "none"
            raise UsageError(f"{self.task}: name {self.text!r}: there is no argument {piece.field!r}, only {there}")
        value = arguments[piece.field]
        if isinstance(value, Promise):
            raise TracingError(
                f"{self.task}: name {self.text!r}: {piece.field} is the output of {value._node._name}, "
                f"which is not known yet"
            )
        shown = _CONVERSIONS[piece.conversion](value) if piece.conversion in _CONVERSIONS else value
        try:
            text = format(shown, piece.spec or "")
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.task}: name {self.text!r}: {piece.field}={value!r:.60}: {error}") from None
        return " ".join(text.split())[:MAX_PART]
