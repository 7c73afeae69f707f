"""From YAML nodes to plain data: bounded in depth and in what aliases expand to, every fault with its place."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml.constructor import SafeConstructor

from dagkit.model.problems import MAX_DEPTH, Finding, Path, shown

__all__ = ["Builder", "line_in"]

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_BOOLS: Final = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}


class Builder:
    """Builds the data of one document; what is wrong or surprising is collected in `findings` and `hints`.

    Raises `yaml.MarkedYAMLError` where going on makes no sense: too deep, too large, or an alias inside its own anchor.
    """

    def __init__(self, max_nodes: int) -> None:
        self.findings: list[Finding] = []
        self.hints: list[Finding] = []
        self._nodes_left = max_nodes
        self._path: list[str | int] = []
        self._open: set[int] = set()
        self._scalars: dict[str, Callable[[str, yaml.ScalarNode], Any]] = {
            f"{_TAG}int": self._int,
            f"{_TAG}float": self._float,
            f"{_TAG}bool": lambda text, node: _BOOLS[text.lower()],
            f"{_TAG}null": lambda text, node: None,
            f"{_TAG}value": lambda text, node: text,
            _MERGE: lambda text, node: text,
            f"{_TAG}timestamp": _date,
        }

    def build(self, node: yaml.Node) -> Any:
        """The data of a node and everything below it."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise _stop(node, "aliases expand to more than a definition can need")
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag == f"{_TAG}str" else self._scalar(node)
        if id(node) in self._open:
            raise _stop(node, "an alias stands inside its own anchor")
        if len(self._open) > MAX_DEPTH + 10:
            raise _stop(node, f"is nested more than {MAX_DEPTH} deep")
        self._open.add(id(node))
        data = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._sequence(node)
        self._open.discard(id(node))
        return data

    def _find(self, message: str) -> None:
        path = tuple(self._path)
        field = path[2] if len(path) > 2 and path[0] == "tasks" else path[0] if path and path[0] != "tasks" else ""
        self.findings.append(Finding(path, f"{field}: {message}" if field else message))

    def _is_foreign(self, node: yaml.Node, kind: str) -> bool:
        if node.tag == f"{_TAG}{kind}":
            return False
        self._find(f"the tag {shown(node.tag.replace(_TAG, '!!'))} is not allowed; a definition is plain data")
        return True

    # --- scalars

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        construct = self._scalars.get(node.tag)
        if construct is None:
            self._is_foreign(node, "str")
            return node.value
        try:
            return construct(node.value, node)
        except (ValueError, KeyError, OverflowError):
            self._find(f"{shown(node.value)} is no {node.tag.removeprefix(_TAG)}")
            return node.value

    def _int(self, text: str, node: yaml.ScalarNode) -> int:
        digits = text.replace("_", "")
        unsigned = digits.lstrip("+-")
        if ":" in unsigned:
            value = int(_base_60(unsigned, int))
            self._hint(f"{text} is the number {value} to YAML 1.1 (base 60). Quotes make it text")
        elif len(unsigned) > 1 and unsigned[0] == "0" and unsigned.isdigit():
            value = int(unsigned, 8)
            self._hint(f"{text} is the number {value} to YAML 1.1 (octal). Quotes make it text")
        else:
            value = int(unsigned, 0)
        return -value if digits.startswith("-") else value

    def _float(self, text: str, node: yaml.ScalarNode) -> float:
        digits = text.replace("_", "").lower()
        unsigned = digits.lstrip("+-")
        if ":" in unsigned:
            value = float(_base_60(unsigned, float))
            self._hint(f"{text} is the number {value} to YAML 1.1 (base 60). Quotes make it text")
        else:
            value = float(unsigned.removeprefix(".") if unsigned in (".inf", ".nan") else unsigned)
        return -value if digits.startswith("-") else value

    def _hint(self, message: str) -> None:
        field = ".".join(map(str, self._path[2:] if self._path[:1] == ["tasks"] else self._path))
        self.hints.append(Finding(tuple(self._path), f"{field}: {message}"))

    # --- collections

    def _sequence(self, node: yaml.Node) -> list[Any]:
        if self._is_foreign(node, "seq"):
            return []
        items = []
        self._path.append(0)
        for position, item in enumerate(node.value):
            self._path[-1] = position
            items.append(self.build(item))
        self._path.pop()
        return items

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        if self._is_foreign(node, "map"):
            return {}
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merged(value_node), **merged}
                continue
            key = self._key(key_node)
            if key in data:
                self._path.append(key)
                self._find(f"the key {shown(key)} occurs twice; first on line {line_of_key(node, key)}")
                self._path.pop()
            self._path.append(key)
            data[key] = self.build(value_node)
            self._path.pop()
        return {**merged, **data} if merged else data

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._find("a list or a mapping cannot be a key")
            return "?"
        self._nodes_left -= 1
        if node.tag != f"{_TAG}str":
            value = self._scalar(node)
            if not isinstance(value, str):
                as_read = "" if shown(value) == node.value else f", which YAML reads as {shown(value)}"
                self._find(f"the key {node.value}{as_read} is not text. Quotes make it text")
        return str(node.value)

    def _merged(self, node: yaml.Node) -> dict[str, Any]:
        """What `<<` brings in: a mapping, or a list of mappings of which earlier ones win."""
        value = self.build(node)
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            self._find("<< takes a mapping, or a list of mappings")
            return {}
        return {key: item for part in reversed(parts) for key, item in part.items()}


def _base_60(text: str, number: Callable[[str], float]) -> float:
    value: float = 0
    for part in text.split(":"):
        value = value * 60 + number(part)
    return value


def _date(text: str, node: yaml.ScalarNode) -> datetime.date:
    date: datetime.date = SafeConstructor().construct_yaml_timestamp(node)
    return date


def _stop(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


# --- lines


def line_of_key(node: yaml.MappingNode, key: str) -> int:
    return 1 + next(int(key_node.start_mark.line) for key_node, _ in node.value if key_node.value == key)


def line_in(root: yaml.Node, path: Path) -> int:
    """The line on which a place of the document stands, or the nearest one around it that exists."""
    node, line = root, root.start_mark.line
    for step in path:
        child = _child(node, step)
        if child is None:
            break
        line, node = child
    return int(line) + 1


def _child(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if key.value == str(step):
                return key.start_mark.line, value
    return None
