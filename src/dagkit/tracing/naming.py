"""What the nodes of one workflow are called, and which template each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagkit.trace import Node
from dagkit.tracing.declaration import Declaration

__all__ = ["Names"]


class Names:
    """Names of nodes, decided by call order alone.

    The first call of `train` is `train`, the next `train-1`, `train-2`; items of a map or product are `train-0`,
    `train-1`, ..., and a second map goes on counting. A name the user gave is kept by the first node that has it, and
    generated names go around it. A number that is taken is passed over.
    """

    def __init__(self, nodes: Sequence[Node[Any]]) -> None:
        self._taken = {_full(node) for node in nodes if _is_given(node)}
        self._free = set(self._taken)
        self._next: dict[tuple[str, bool], int] = {}
        self._of: dict[Node[Any], str] = {}
        self._templates: dict[Declaration, str] = {}
        self._sizes: dict[Declaration, int] = {}
        self._labels: set[str] = set()
        for node in nodes:
            self.add(node)

    def __contains__(self, node: Node[Any]) -> bool:
        return node in self._of

    def __getitem__(self, node: Node[Any]) -> str:
        return self._of[node]

    def items(self) -> list[tuple[Node[Any], str]]:
        return list(self._of.items())

    def template(self, node: Node[Any]) -> str:
        """Label of the node's declaration: the function's name; a second function of the same name is `train-1`."""
        return self._templates[node._task.declaration]

    def is_shared(self, node: Node[Any]) -> bool:
        """Whether other nodes are made from the same declaration."""
        return self._sizes[node._task.declaration] > 1

    def add(self, node: Node[Any]) -> str:
        """Name a node; one that has a name keeps it."""
        if node in self._of:
            return self._of[node]
        self._add_template(node._task.declaration)
        base = _full(node)
        if _is_given(node) and base in self._free:
            self._free.discard(base)
            name = base
        else:
            name = self._numbered(base, node._is_item)
        self._taken.add(name)
        self._of[node] = name
        return name

    def _numbered(self, base: str, is_item: bool) -> str:
        if not is_item and base not in self._taken:
            return base
        key = (base, is_item)
        number = self._next.get(key, 0 if is_item else 1)
        while (name := f"{base}-{number}") in self._taken:
            number += 1
        self._next[key] = number + 1
        return name

    def _add_template(self, declaration: Declaration) -> None:
        self._sizes[declaration] = self._sizes.get(declaration, 0) + 1
        if declaration in self._templates:
            return
        label, number = declaration.name, 0
        while label in self._labels:
            number += 1
            label = f"{declaration.name}-{number}"
        self._labels.add(label)
        self._templates[declaration] = label


def _full(node: Node[Any]) -> str:
    return f"{node._scope.prefix}{node._name}"


def _is_given(node: Node[Any]) -> bool:
    """Whether the user chose exactly this name; for the items of a map the name is only what they start with."""
    return not node._is_item and node._task.given.name is not None
