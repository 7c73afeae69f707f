"""From YAML events to plain data, without recursion: bounded in depth and in what aliases expand to.

Events rather than PyYAML's nodes: a quarter of the time and none of the garbage for a file of 10,000 tasks.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Final

import yaml
from yaml.constructor import SafeConstructor

from dagkit.model.problems import MAX_DEPTH, Finding, Path, shown

__all__ = ["Builder"]

_TAG: Final = "tag:yaml.org,2002:"
_TEXT: Final = f"{_TAG}str"
_MERGE: Final = f"{_TAG}merge"
_IMPLICIT: Final = yaml.SafeLoader.yaml_implicit_resolvers
_BOOLS: Final = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_NO_KEY: Final = object()
_MERGING: Final = object()


class _Frame:
    """A collection that is being filled; `key` is the key whose value comes next."""

    __slots__ = ("anchor", "data", "key", "merged", "nodes_before")

    def __init__(self, data: Any, anchor: str | None, nodes_before: int) -> None:
        self.data, self.anchor, self.nodes_before = data, anchor, nodes_before
        self.key: Any = _NO_KEY
        self.merged: dict[str, Any] | None = None


class Builder:
    """Builds the data of one document; what is wrong or surprising is collected in `findings` and `hints`.

    Raises `yaml.MarkedYAMLError` where going on makes no sense: too deep, too large, a second document.
    """

    def __init__(self, max_nodes: int) -> None:
        self.findings: list[Finding] = []
        self.hints: list[Finding] = []
        self.is_empty = True
        self._max_nodes = max_nodes
        self._nodes = 0
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._root: Any = None
        self._scalars: dict[str, Callable[[str], Any]] = {
            f"{_TAG}int": self._int,
            f"{_TAG}float": self._float,
            f"{_TAG}bool": lambda text: _BOOLS[text.lower()],
            f"{_TAG}null": lambda text: None,
            f"{_TAG}value": str,
            f"{_TAG}timestamp": _date,
            _MERGE: str,
        }

    def build(self, events: Iterable[yaml.Event]) -> Any:
        """The data of the one document in a stream of events."""
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._on_scalar,
            yaml.MappingStartEvent: self._on_start,
            yaml.SequenceStartEvent: self._on_start,
            yaml.MappingEndEvent: self._on_end,
            yaml.SequenceEndEvent: self._on_end,
            yaml.AliasEvent: self._on_alias,
            yaml.DocumentStartEvent: self._on_document,
        }
        for event in events:
            if handler := handlers.get(type(event)):
                handler(event)
        return self._root

    # --- events

    def _on_document(self, event: yaml.Event) -> None:
        if not self.is_empty:
            raise _stop(event, "there is a second document; a definition is one")
        self.is_empty = False

    def _on_scalar(self, event: Any) -> None:
        self._count(1, event)
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolve(event.value) if event.implicit[0] and tag is None else _TEXT
        frame = self._frames[-1] if self._frames else None
        if frame is not None and frame.key is _NO_KEY and type(frame.data) is dict:
            self._begin_pair(frame, tag, event.value)
        else:
            self._add(event.value if tag == _TEXT else self._scalar(tag, event.value), event.anchor, 1)

    def _on_start(self, event: Any) -> None:
        self._count(1, event)
        if len(self._frames) > MAX_DEPTH + 10:
            raise _stop(event, f"this is nested more than {MAX_DEPTH} deep")
        if self._frames and self._frames[-1].key is _NO_KEY and type(self._frames[-1].data) is dict:
            raise _stop(event, "a list or a mapping cannot be a key")
        is_mapping = type(event) is yaml.MappingStartEvent
        if event.tag not in (None, "!", f"{_TAG}map" if is_mapping else f"{_TAG}seq"):
            self._refuse_tag(event.tag)
        self._frames.append(_Frame({} if is_mapping else [], event.anchor, self._nodes))

    def _on_end(self, event: yaml.Event) -> None:
        frame = self._frames.pop()
        data = {**frame.merged, **frame.data} if frame.merged else frame.data
        self._add(data, frame.anchor, self._nodes - frame.nodes_before + 1)

    def _on_alias(self, event: Any) -> None:
        if any(frame.anchor == event.anchor for frame in self._frames):
            raise _stop(event, "an alias stands inside its own anchor")
        if event.anchor not in self._anchors:
            raise _stop(event, f"there is no anchor {shown(event.anchor)} before its alias")
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        frame = self._frames[-1] if self._frames else None
        if frame is not None and frame.key is _NO_KEY and type(frame.data) is dict:
            if not isinstance(value, str):
                raise _stop(event, "a key must be text")
            self._begin_pair(frame, _TEXT, value)
        else:
            self._add(_copy(value), None, size)

    def _count(self, nodes: int, event: yaml.Event) -> None:
        self._nodes += nodes
        if self._nodes > self._max_nodes:
            raise _stop(event, f"there are more than {self._max_nodes:,} values, counting what aliases expand to")

    # --- filling collections

    def _begin_pair(self, frame: _Frame, tag: str, text: str) -> None:
        if tag == _MERGE:
            frame.key = _MERGING
            return
        frame.key = text
        if text in frame.data:
            self._find(f"the key {shown(text)} occurs twice")
        if tag != _TEXT:
            value = self._scalar(tag, text)
            if not isinstance(value, str):
                as_read = "" if shown(value) == text else f", which YAML reads as {shown(value)},"
                self._find(f"the key {text}{as_read} is not text. Quotes make it text")

    def _add(self, value: Any, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._frames:
            self._root = value
            return
        frame = self._frames[-1]
        if type(frame.data) is list:
            frame.data.append(value)
            return
        if frame.key is _MERGING:
            self._merge(frame, value)
        else:
            frame.data[frame.key] = value
        frame.key = _NO_KEY

    def _merge(self, frame: _Frame, value: Any) -> None:
        """What `<<` brings in: a mapping, or a list of mappings of which earlier ones win."""
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            self._find("<< takes a mapping, or a list of mappings")
            return
        merged = {key: item for part in reversed(parts) for key, item in part.items()}
        frame.merged = {**merged, **(frame.merged or {})}

    # --- scalars

    @staticmethod
    def _resolve(text: str) -> str:
        """The tag of a plain scalar, by the rules of YAML 1.1."""
        for tag, pattern in _IMPLICIT.get(text[:1], ()):
            if pattern.match(text):
                return str(tag)
        return _TEXT

    def _scalar(self, tag: str, text: str) -> Any:
        construct = self._scalars.get(tag)
        if construct is None:
            self._refuse_tag(tag)
            return text
        try:
            return construct(text)
        except (ValueError, KeyError, OverflowError):
            self._find(f"{shown(text)} is no {tag.removeprefix(_TAG)}")
            return text

    def _int(self, text: str) -> int:
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

    def _float(self, text: str) -> float:
        digits = text.replace("_", "").lower()
        unsigned = digits.lstrip("+-")
        if ":" in unsigned:
            value = float(_base_60(unsigned, float))
            self._hint(f"{text} is the number {value} to YAML 1.1 (base 60). Quotes make it text")
        else:
            value = float(unsigned.removeprefix(".") if unsigned in (".inf", ".nan") else unsigned)
        return -value if digits.startswith("-") else value

    # --- saying what is wrong

    def _path(self) -> Path:
        keys = [len(frame.data) if type(frame.data) is list else frame.key for frame in self._frames]
        return tuple(key for key in keys if isinstance(key, (str, int)))

    def _find(self, message: str) -> None:
        self.findings.append(_finding(self._path(), message))

    def _hint(self, message: str) -> None:
        self.hints.append(_finding(self._path(), message))

    def _refuse_tag(self, tag: str) -> None:
        self._find(f"the tag {shown(tag.replace(_TAG, '!!'))} is not allowed; a definition is plain data")


def _finding(path: Path, message: str) -> Finding:
    field = ".".join(map(str, path[2:] if path[:1] == ("tasks",) else path))
    return Finding(path, f"{field}: {message}" if field else message)


def _copy(value: Any) -> Any:
    """The same data again, so that two places never share it; depth is bounded where data are built."""
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value


def _base_60(text: str, number: Callable[[str], float]) -> float:
    value: float = 0
    for part in text.split(":"):
        value = value * 60 + number(part)
    return value


def _date(text: str) -> datetime.date:
    if not SafeConstructor.timestamp_regexp.match(text):
        raise ValueError(text)
    date: datetime.date = SafeConstructor().construct_yaml_timestamp(yaml.ScalarNode(f"{_TAG}timestamp", text))
    return date


def _stop(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
