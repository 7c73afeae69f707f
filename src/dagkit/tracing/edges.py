"""Type checks along edges: does what a task is declared to return fit the parameter that takes it?

Only what is certain is reported. Whatever cannot be decided from the two annotations alone (protocols, type variables,
abstract classes, a base class whose value may turn out to be of the derived one) counts as fitting.
"""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import TracingError
from dagkit.tracing.promise import Promise

if TYPE_CHECKING:
    from dagkit.trace import Node
    from dagkit.tracing.signature import Signature

__all__ = ["EdgeTypeWarning", "check", "is_mismatch"]

_HERE: Final = str(Path(__file__).parent.parent)

#: Where one declared type is the items of another.
_ITEMS_OF: Final = (
    list,
    set,
    frozenset,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)


class EdgeTypeWarning(UserWarning):
    """A task's argument comes from a task that is declared to return something else."""


def check(node: Node[Any]) -> None:
    """Check the arguments of a new node that are nodes, or lists of nodes. Warns; `TracingError` if strict."""
    signature = node._task.declaration.signature
    names: list[str] | None = None
    for index, value in enumerate(node._values):
        if not isinstance(value, (Promise, list, tuple)):
            continue
        if names is None:
            names = signature.parameters(len(node._values), node._keywords)
        _check_argument(node, signature, names[index], value)


def _check_argument(node: Node[Any], signature: Signature, parameter: str, value: Any) -> None:
    wanted = signature.annotation(parameter)
    if wanted is Any:
        return
    if isinstance(value, Promise):
        _check_edge(node, parameter, wanted, value)
        return
    args = typing.get_args(wanted)
    if typing.get_origin(wanted) in _ITEMS_OF and len(args) == 1:
        sources = {item._node._task.declaration: item for item in value if isinstance(item, Promise) and not item._path}
        for item in sources.values():
            _check_edge(node, parameter, args[0], item, " as items")


def _check_edge(node: Node[Any], parameter: str, wanted: Any, source: Promise, how: str = "") -> None:
    task, other = node._task, source._node._task
    if source._path:
        return
    found = other.declaration.signature.annotation("return")
    if not is_mismatch(found, wanted):
        return
    message = (
        f"{task.name} takes {parameter}: {_shown(wanted)}{how}, and {other.name} returns {_shown(found)} "
        f"({node._file.rpartition('/')[2]}:{node._line})"
    )
    if task.given.strict or other.given.strict or node._scope.strict:
        raise TracingError(message)
    warnings.warn(message, EdgeTypeWarning, stacklevel=_level())


def _level() -> int:
    """Stack level of the first frame outside dagkit, for a warning that is raised in `_check_edge`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    return level


def _shown(annotation: Any) -> str:
    return annotation.__name__ if type(annotation) is type else str(annotation).replace("typing.", "")


# --- types


def is_mismatch(found: Any, wanted: Any) -> bool:
    """Whether no value of type `found` can be one of type `wanted`, as far as that is certain."""
    found, wanted = _plain(found), _plain(wanted)
    if found is Any or wanted is Any:
        return False
    if _is_union(found):
        return all(is_mismatch(part, wanted) for part in typing.get_args(found))
    if _is_union(wanted):
        return all(is_mismatch(found, part) for part in typing.get_args(wanted))
    if typing.get_origin(found) is typing.Literal:
        return all(is_mismatch(type(value), wanted) for value in typing.get_args(found))
    if typing.get_origin(wanted) is typing.Literal:
        return all(is_mismatch(found, type(value)) for value in typing.get_args(wanted))
    return _classes_differ(_class_of(found), _class_of(wanted)) or _items_differ(found, wanted)


def _plain(annotation: Any) -> Any:
    """Without `Annotated` and `NewType`; None as its type."""
    while True:
        if annotation is None:
            return type(None)
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        else:
            return annotation


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _class_of(annotation: Any) -> type | None:
    """The class that values of the annotation have for certain; None if it does not say."""
    origin = typing.get_origin(annotation) or annotation
    return origin if isinstance(origin, type) and origin is not object else None


_WIDENS: Final[dict[type, tuple[type, ...]]] = {
    # By convention an int may stand for a float; and what is declared a float may turn out to be an int.
    int: (float, complex),
    float: (int, complex),
    complex: (int, float),
    bool: (float, complex),
    bytearray: (bytes,),
    memoryview: (bytes,),
}


def _classes_differ(found: type | None, wanted: type | None) -> bool:
    if found is None or wanted is None or not (_is_ordinary(found) and (_is_ordinary(wanted) or _is_builtin(found))):
        return False
    try:
        related = issubclass(found, wanted) or issubclass(wanted, found)
    except TypeError:  # a protocol with data members
        return False
    return not related and wanted not in _WIDENS.get(found, ())


def _is_ordinary(cls: type) -> bool:
    """A class whose instances are known by inheritance alone: no ABC, no protocol, no metaclass with views."""
    return type(cls) is type and not getattr(cls, "_is_protocol", False) and cls.__module__ != "typing"


def _is_builtin(cls: type) -> bool:
    """A builtin class, of which it is known which abstract classes of `collections.abc` it belongs to."""
    return cls.__module__ == "builtins"


def _items_differ(found: Any, wanted: Any) -> bool:
    """For two containers of the same builtin class, whether the declared items differ."""
    origin = typing.get_origin(found)
    if origin is not typing.get_origin(wanted) or origin not in (list, set, frozenset, dict):
        return False
    pairs = zip(typing.get_args(found), typing.get_args(wanted), strict=False)
    return any(is_mismatch(mine, theirs) for mine, theirs in pairs)
