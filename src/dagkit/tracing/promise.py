"""What nodes and refs have in common: they are no values, and say so wherever Python would need one."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dagkit.errors import TracingError
from dagkit.tracing.when import Operand

if TYPE_CHECKING:
    # To a type checker a promise goes wherever its value may go: `train(featurize(path), lr)` is correct by design.
    _Anything = Any
else:
    _Anything = object

__all__ = ["Promise", "as_key", "placing", "source_line"]

#: Where a promise inside a value that is being fingerprinted comes from; None when nothing is.
placing: Final[ContextVar[Callable[[Promise], str] | None]] = ContextVar("dagkit_placing", default=None)

_LAZY = "Do this inside a task, whose argument is then the value"


class _NoSuchAttribute(TracingError, AttributeError):
    """A promise was asked for an attribute of its value; `hasattr` is false, so that libraries may probe."""


class Promise(Operand, _Anything):  # type: ignore[misc]
    """Base of `Node` and `Ref`: makes refs and conditions, and explains everything else."""

    __slots__ = ()

    def __getitem__(self, key: object) -> Promise:
        raise NotImplementedError

    def _refuse(self, what: str, instead: str = _LAZY) -> NoReturn:
        raise TracingError(self._misuse(what, instead))

    def _misuse(self, what: str, instead: str) -> str:
        node = self._node
        shown = _spelled(node._name, self._path)
        return (
            f"{shown}, made at {source_line(node._file, node._line)}, stands for a value that exists only when the "
            f"workflow runs; {what}. {instead}."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name[:1] == "_":  # probes of IPython, numpy, pickle, copy and the like
            raise AttributeError(name)
        raise _NoSuchAttribute(
            self._misuse(f"it has no attribute {name!r}", f'{_LAZY}; [...] makes a ref to an item: node["{name}"]')
        )

    def __bool__(self) -> NoReturn:
        self._refuse(
            "whether it is true is not known yet",
            "To run a task only if it is, say when=: task.options(when=node)(...), or when=node['ok'] == True",
        )

    def __len__(self) -> int:
        self._refuse("its length is not known yet", f"{_LAZY}, or declare @task(outputs=n) to unpack n results")

    def __iter__(self) -> Any:
        self._refuse(
            "it cannot be iterated",
            f"{_LAZY}; to unpack n results declare @task(outputs=n); for a task per item, make the list before tracing",
        )

    def __contains__(self, item: object) -> bool:
        self._refuse("what it contains is not known yet", f"{_LAZY}, or as a condition: when=node.is_in([...])")

    def __format__(self, spec: str) -> str:
        self._refuse("it cannot be part of a text", f"{_LAZY}, and format the text there")

    def __fspath__(self) -> str:
        self._refuse("it cannot be used as a path yet")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse("it cannot be called")

    def __reduce__(self) -> NoReturn:
        self._refuse("it cannot be pickled or captured by a function", "Pass it to the task as an argument")

    def __dagkit_fingerprint__(self) -> str | None:
        place = placing.get()
        return None if place is None else place(self)

    def __copy__(self) -> Promise:
        return self

    def __deepcopy__(self, memo: object) -> Promise:
        return self

    def is_in(self, values: object) -> Any:
        """Condition: the value is one of `values`, or part of the text or mapping `values` stands for."""
        from dagkit.tracing.when import Comparison

        return Comparison("in", self, values)


def _refuses_operator(symbol: str) -> Any:
    def refuse(self: Promise, *others: object) -> NoReturn:
        self._refuse(f"{symbol} cannot be applied to it")

    return refuse


def _refuses_conversion(kind: str) -> Any:
    def refuse(self: Promise, *others: object) -> NoReturn:
        self._refuse(f"it cannot be made {kind}")

    return refuse


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//", "mod": "%", "divmod": "divmod",
    "pow": "**", "lshift": "<<", "rshift": ">>", "xor": "^",
}  # fmt: skip
for _name, _symbol in _OPERATORS.items():
    setattr(Promise, f"__{_name}__", _refuses_operator(_symbol))
    setattr(Promise, f"__r{_name}__", _refuses_operator(_symbol))
for _name, _symbol in {"neg": "-", "pos": "+", "abs": "abs"}.items():
    setattr(Promise, f"__{_name}__", _refuses_operator(_symbol))
for _name, _kind in {"int": "an int", "float": "a float", "complex": "a complex", "round": "a round number"}.items():
    setattr(Promise, f"__{_name}__", _refuses_conversion(_kind))
# __index__ serves range(node), items[node] and slices.
Promise.__index__ = _refuses_conversion("an index")


def as_key(key: object) -> str | int | None:
    """The key of a ref: text or an integer (numpy's too); None for anything else."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, (bool, Promise)):
        return None
    try:
        return operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        return None


def _spelled(name: str, path: tuple[str | int, ...]) -> str:
    return name + "".join(f"[{key!r}]" for key in path)


def source_line(file: str, line: int) -> str:
    """`steps/sweep.py:12`, with the text of the line where Python can find it (in notebooks too)."""
    text = linecache.getline(file, line).strip()
    is_cell = "ipykernel" in file or "ipython-input" in file
    shown = f"line {line} of a cell" if is_cell else f"{'/'.join(file.replace(chr(92), '/').split('/')[-2:])}:{line}"
    return shown + (f" `{text:.100}`" if text else "")
