"""Plain data to YAML and JSON text. What YAML 1.1 or 1.2 would read as something else than text is quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

__all__ = ["write_json", "write_yaml"]

_Dumper: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TAG: Final = "tag:yaml.org,2002:"
_UNLIMITED: Final = -1
_FLOW_LIST_CHARS: Final = 80

#: Looks like a number, a date, a special float or a lone sign to some reader.
_NUMBER_LIKE: Final = re.compile(r"[-+]?(?:[0-9_]|\.[0-9._eEiInN]|\.$|$)|=$|<<$|~")
_WORDS: Final = frozenset(["", "y", "yes", "n", "no", "true", "false", "on", "off", "null"])
#: Lines without blanks at either end of the text or at the end of a line: exact as a block literal.
_LITERAL: Final = re.compile(
    r"[^\s\x00-\x1f](?:[^\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]|\n)*\n?"
)


def write_json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def write_yaml(data: Any) -> str:
    """Block style, keys in the order given, no aliases; short lists of plain items on one line."""
    text: str = yaml.serialize(_node(data), Dumper=_Dumper, allow_unicode=True, width=_UNLIMITED)
    return text


def _node(value: Any) -> yaml.Node:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = [(_text(key), _node(item)) for key, item in value.items()]
        return yaml.MappingNode(f"{_TAG}map", pairs, flow_style=not pairs)
    if isinstance(value, (list, tuple)):
        return yaml.SequenceNode(f"{_TAG}seq", list(map(_node, value)), flow_style=_fits_one_line(value))
    if value is None:
        return yaml.ScalarNode(f"{_TAG}null", "null")
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{_TAG}bool", "true" if value else "false")
    if isinstance(value, int):
        return yaml.ScalarNode(f"{_TAG}int", str(value))
    return yaml.ScalarNode(f"{_TAG}float", _float(value))


def _float(value: float) -> str:
    """`1e-05` without a point would be text to YAML 1.1."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e", 1)


def _fits_one_line(items: Any) -> bool:
    if any(isinstance(item, (Mapping, list, tuple)) for item in items):
        return False
    return sum(len(str(item)) + 2 for item in items) <= _FLOW_LIST_CHARS


def _text(text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode(f"{_TAG}str", text, style=_style(text))


def _style(text: str) -> str | None:
    if "\n" in text:
        return "|" if _is_exact_literal(text) else '"'
    if text.lower() in _WORDS or _NUMBER_LIKE.match(text):
        return "'"
    return None if text.isprintable() else '"'


def _is_exact_literal(text: str) -> bool:
    if not _LITERAL.fullmatch(text) or text.endswith("\n\n"):
        return False
    return not any(line.endswith((" ", "\t")) for line in text.split("\n"))
