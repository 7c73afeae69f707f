"""Plain data to YAML and JSON text. What YAML 1.1 or 1.2 would read as something else than text is quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

__all__ = ["write_json", "write_yaml"]

_Dumper: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_UNLIMITED: Final = -1
_FLOW_LIST_CHARS: Final = 80

#: Looks like a number, a date, a special float or a lone sign to some reader; besides, what YAML 1.1 resolves.
_NUMBER_LIKE: Final = re.compile(r"[-+]?(?:[0-9_]|\.[0-9._eEiInN]|\.$|$)|=$|<<$|~")
_IMPLICIT: Final = yaml.SafeLoader.yaml_implicit_resolvers
_WORDS: Final = frozenset(["", "y", "yes", "n", "no", "true", "false", "on", "off", "null"])

#: Several lines that a block literal keeps exactly: no blank at the start or at the end of a line, nothing unprintable.
_LITERAL: Final = re.compile(r"(?:[^\s]|[^\S\n](?!\n|\Z)|\n(?!\n?\Z))+\n?")
_UNPRINTABLE: Final = re.compile(
    "[^\\n\\x20-\\x7e\\xa1-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)


def write_json(data: Any) -> str:
    """Indented, in the order given, with a newline at the end."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def write_yaml(data: Any) -> str:
    """Block style, keys in the order given, no aliases; short lists of plain items on one line."""
    events: list[yaml.Event] = [yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False)]
    _append(data, events)
    events += [yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent()]
    text: str = yaml.emit(events, Dumper=_Dumper, allow_unicode=True, width=_UNLIMITED)
    return text


def _append(value: Any, events: list[yaml.Event]) -> None:
    if isinstance(value, str):
        events.append(_text(value))
    elif isinstance(value, Mapping):
        events.append(yaml.MappingStartEvent(None, None, True, flow_style=not value))
        for key, item in value.items():
            events.append(_text(key))
            _append(item, events)
        events.append(yaml.MappingEndEvent())
    elif isinstance(value, (list, tuple)):
        events.append(yaml.SequenceStartEvent(None, None, True, flow_style=_fits_one_line(value)))
        for item in value:
            _append(item, events)
        events.append(yaml.SequenceEndEvent())
    else:
        events.append(_scalar(_plain(value)))


def _plain(value: float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)  # `1e-05` without a point would be text to YAML 1.1
    return text if isinstance(value, int) or "." in text else text.replace("e", ".0e", 1)


def _fits_one_line(items: Any) -> bool:
    if any(isinstance(item, (Mapping, list, tuple)) for item in items):
        return False
    return sum(len(str(item)) + 2 for item in items) <= _FLOW_LIST_CHARS


def _scalar(text: str, style: str | None = None) -> yaml.ScalarEvent:
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)


def _text(text: str) -> yaml.ScalarEvent:
    return _scalar(text, _style(text))


def _style(text: str) -> str | None:
    """Plain where every reader takes it for text; a block for several lines; quotes otherwise."""
    if _UNPRINTABLE.search(text):
        return '"'
    if "\n" in text:
        return "|" if _LITERAL.fullmatch(text) and not text.startswith(" ") else '"'
    if text.lower() in _WORDS or _NUMBER_LIKE.match(text):
        return "'"
    return "'" if any(pattern.match(text) for _, pattern in _IMPLICIT.get(text[:1], ())) else None
