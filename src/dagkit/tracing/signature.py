"""What a task's function accepts: checks calls by their shape, and names the values of a call."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from dagkit.errors import WrongCall

__all__ = ["Signature"]

#: Calls of one task come in few shapes; a task with **kwargs could see any number of them.
MAX_SHAPES: Final = 256

_Places = dict[str, Any]


class Signature:
    """The parameters of a function; a function whose parameters cannot be known accepts any call.

    A call is described by its values in order and the names of the last ones (the keywords), so that a map shares the
    names. Whether a call fits depends on that shape alone, so each shape is bound once.
    """

    __slots__ = ("_hints", "_shapes", "_signature", "fn")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self._shapes: dict[tuple[int, tuple[str, ...]], _Places] = {}
        self._hints: dict[str, Any] | None = None
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (ValueError, TypeError):  # a builtin that does not say what it takes
            self._signature = None

    def __str__(self) -> str:
        if self._signature is None:
            return "(...)"
        bare = [each.replace(annotation=inspect.Parameter.empty) for each in self._signature.parameters.values()]
        return str(inspect.Signature(bare))

    def check(self, task: str, count: int, keywords: tuple[str, ...]) -> None:
        """`WrongCall` naming the task if a call with `count` values, the last of them named, does not fit."""
        if (count, keywords) not in self._shapes:
            self._places(task, count, keywords)

    def arguments(self, values: Sequence[Any], keywords: tuple[str, ...]) -> dict[str, Any]:
        """The values of a call that fits, by parameter name, with defaults; `args` is a tuple and `kwargs` a dict."""
        if self._signature is None:
            return dict(zip(keywords, values[len(values) - len(keywords) :], strict=True))
        places = self._places(self.fn.__name__, len(values), keywords)
        given = {name: _pick(place, values) for name, place in places.items()}
        defaults = {
            name: parameter.default
            for name, parameter in self._signature.parameters.items()
            if name not in given and parameter.default is not inspect.Parameter.empty
        }
        return {**given, **defaults}

    def parameters(self, count: int, keywords: tuple[str, ...]) -> list[str]:
        """The parameter that takes each value of a call that fits; `*args` and `**kwargs` by their own names."""
        names = [""] * count
        for name, place in self._places(self.fn.__name__, count, keywords).items():
            for index in _indexes(place):
                names[index] = name
        return names

    def annotation(self, parameter: str) -> Any:
        """The annotation of a parameter, or of the result for `return`; `typing.Any` where there is none to be had."""
        if self._hints is None:
            self._hints = _hints(self.fn)
        return self._hints.get(parameter, Any)

    def _places(self, task: str, count: int, keywords: tuple[str, ...]) -> _Places:
        shape = (count, keywords)
        places = self._shapes.get(shape)
        if places is not None:
            return places
        places = self._bind(task, count, keywords)
        if len(self._shapes) < MAX_SHAPES:
            self._shapes[shape] = places
        return places

    def _bind(self, task: str, count: int, keywords: tuple[str, ...]) -> _Places:
        positional = range(count - len(keywords))
        named = {name: index for index, name in enumerate(keywords, start=count - len(keywords))}
        if self._signature is None:
            return {**{str(index): index for index in positional}, **named}
        try:
            bound = dict(self._signature.bind(*positional, **named).arguments)
            self._check_positional(bound)
        except TypeError as error:
            raise WrongCall(f"{task}{self}: {error}") from None
        return bound

    def _check_positional(self, bound: _Places) -> None:
        # Signature.bind of Python 3.13.0 lets a positional-only argument go missing if a keyword has its name.
        assert self._signature is not None
        for name, parameter in self._signature.parameters.items():
            is_required = parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty
            if is_required and name not in bound:
                raise TypeError(f"missing a required positional-only argument: {name!r}")


def _pick(place: Any, values: Sequence[Any]) -> Any:
    if isinstance(place, tuple):
        return tuple(values[index] for index in place)
    if isinstance(place, dict):
        return {name: values[index] for name, index in place.items()}
    return values[place]


def _indexes(place: Any) -> tuple[int, ...]:
    if isinstance(place, dict):
        return tuple(place.values())
    return place if isinstance(place, tuple) else (place,)


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(fn))
    except (
        Exception
    ):  # annotations are the user's code: a name that is imported for type checkers only, or anything else
        return {}
