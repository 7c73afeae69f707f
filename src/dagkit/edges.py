"""Type checks along edges: does what a task returns fit the parameter that takes it? (being written)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagkit.trace import Node


def check(node: Node[Any]) -> None:
    return None
