"""Type checks along edges: certain mismatches are reported, everything else is left alone."""

from __future__ import annotations

import collections.abc
import pathlib
import typing
import warnings
from typing import Annotated, Any, Literal, NewType, Optional, Protocol, TypeVar, Union

import numpy as np
import pytest

from dagkit import task, workflow
from dagkit.errors import TracingError
from dagkit.tracing.edges import EdgeTypeWarning, is_mismatch

T = TypeVar("T")
UserId = NewType("UserId", int)


class Animal: ...


class Dog(Animal): ...


class Stone: ...


class Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Anything(metaclass=Meta): ...


class Sized(Protocol):
    size: int


class Shape(typing.TypedDict):
    sides: int


class Point(typing.NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (str, int),
        (int, str),
        (None, int),
        (list[int], dict),
        (list[int], dict[str, int]),
        (list[int], list[str]),
        (dict[str, int], dict[str, str]),
        (str, Optional[int]),  # noqa: UP045
        (str, int | float),
        (str | bytes, int),
        (Literal["a", "b"], int),
        (int, Literal["a", "b"]),
        (Annotated[str, "unit"], int),
        (UserId, str),
        (Stone, Animal),
        (str, pathlib.Path),
        (int, collections.abc.Sequence),
        (bool, str),
        (np.ndarray, dict),
    ],
)
def test_certain_mismatches(found: Any, wanted: Any) -> None:
    assert is_mismatch(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (Any, int),
        (int, Any),
        (object, int),
        (int, object),
        (T, int),
        (int, T),
        (list[T], list[int]),
        (int, float),
        (float, int),
        (bool, int),
        (bool, float),
        (int, int),
        (Optional[int], int),  # noqa: UP045
        (Union[int, str], str),  # noqa: UP007
        (int, int | None),
        (None, None),
        (Dog, Animal),
        (Animal, Dog),
        (Dog, Sized),
        (Stone, Anything),
        (list, list[int]),
        (list[int], list),
        (list[int], collections.abc.Sequence[int]),
        (collections.abc.Iterable[int], list[int]),
        (dict, Shape),
        (Shape, dict),
        (Point, tuple),
        (tuple[int, ...], tuple[str, str]),
        (Literal["a"], str),
        (Stone, collections.abc.Sequence),
        (Stone, collections.abc.Callable),
        (type[int], type),
        ("Forward", int),
        (UserId, int),
        (list[Dog], list[Animal]),
        (bytearray, bytes),
        (typing.Callable[[int], int], int),
    ],
)
def test_what_is_not_certain_is_left_alone(found: Any, wanted: Any) -> None:
    assert not is_mismatch(found, wanted)


@task
def number() -> int:
    return 1


@task
def text() -> str:
    return ""


@task
def nothing_said():  # type: ignore[no-untyped-def]
    return 1


@task
def takes_number(x: int, y: int = 0) -> int:
    return x


@task
def takes_numbers(items: list[int]) -> int:
    return 0


def test_a_mismatch_is_a_warning_that_names_both_tasks_and_points_at_the_call() -> None:
    with pytest.warns(EdgeTypeWarning, match=r"takes_number takes x: int, and text returns str") as caught:
        takes_number(text())

    assert caught[0].filename == __file__


def test_keywords_lists_and_maps_are_checked_too() -> None:
    for make in (
        lambda: takes_number(1, y=text()),
        lambda: takes_numbers([number(), text()]),
        lambda: takes_number.map([text()]),
        lambda: takes_number.partial(y=text()).map([1]),
    ):
        with pytest.warns(EdgeTypeWarning, match="text returns str") as caught:
            make()
        assert caught[0].filename == __file__


def test_strict_makes_it_an_error() -> None:
    @workflow(strict=True)
    def checked() -> None:
        takes_number(text())

    with pytest.raises(TracingError, match="takes_number takes x: int, and text returns str"):
        takes_number.options(strict=True)(text())
    with pytest.raises(TracingError, match="text returns str"):
        checked()


def test_what_fits_and_what_says_nothing_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        takes_number(number(), y=nothing_said())
        takes_number(text()["part"])
        takes_numbers([number(), nothing_said(), 3])
        takes_numbers([])


def test_annotations_that_cannot_be_resolved_are_no_annotations() -> None:
    @task
    def odd(x: "Missing") -> "AlsoMissing":  # type: ignore[name-defined]  # noqa: F821, UP037
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        takes_number(odd(text()))
