"""Definition files: YAML and JSON text to plain data that remembers where in the text everything stood."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

import yaml

from dagkit.errors import DefinitionError, Problem
from dagkit.model.events import Builder
from dagkit.model.problems import Finding, LineOf, Path, no_lines, shown

__all__ = ["Document", "read_file", "read_json", "read_yaml"]

#: Above these sizes a file is refused at once: YAML of that size takes half a minute to read, and belongs in JSON.
MAX_YAML_BYTES: Final = 32 << 20
MAX_JSON_BYTES: Final = 256 << 20
MAX_YAML_VALUES: Final = 5_000_000

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Document:
    """Parsed data, with what is wrong (`findings`) or surprising (`hints`) about the text itself."""

    data: Any
    line_of: LineOf = no_lines
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)


def read_file(path: FilePath) -> Document:
    """Read by suffix. Whatever is wrong with the file is a `DefinitionError`."""
    readers: dict[str, Callable[[bytes, str], Document]] = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise _refused(f"the suffix is {shown(path.suffix)}; allowed: .yaml, .yml, .json", str(path))
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise _too_large(size, MAX_JSON_BYTES, str(path))
        content = path.read_bytes()
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror or error}", str(path)) from error
    return reader(content, str(path))


def _refused(message: str, source: str | None, line: int | None = None) -> DefinitionError:
    return DefinitionError([Problem(message, line=line)], source)


def _too_large(size: int, limit: int, source: str | None, way_out: str = "") -> DefinitionError:
    return _refused(f"has {size >> 20:,} MiB, over the {limit >> 20:,} that are read{way_out}", source)


def _decoded(content: str | bytes, source: str | None, limit: int, way_out: str = "") -> str:
    if len(content) > limit:
        raise _too_large(len(content), limit, source, way_out)
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(f"is not UTF-8 text: byte {content[error.start]:#04x}", source, line) from error


# --- JSON


def read_json(content: str | bytes, source: str | None = None) -> Document:
    """JSON; a key that occurs twice in one object is a finding."""
    text = _decoded(content, source, MAX_JSON_BYTES)
    findings: list[Finding] = []
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, findings))
    except json.JSONDecodeError as error:
        raise _refused(f"is not JSON: {error.msg} (column {error.colno})", source, error.lineno) from error
    except (RecursionError, ValueError) as error:
        what = "is nested too deep" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise _refused(what, source) from error
    return Document(data, findings=findings)


def _object(pairs: list[tuple[str, Any]], findings: list[Finding]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        repeated = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        findings += [Finding((), f"the key {shown(key)} occurs twice in one object") for key in repeated]
    return result


# --- YAML


def read_yaml(content: str | bytes, source: str | None = None) -> Document:
    """The safe subset of YAML 1.1. Duplicate keys, foreign tags and keys that are not text are findings."""
    text = _decoded(content, source, MAX_YAML_BYTES, "; write a definition of that size as JSON")
    builder = Builder(max_nodes=min(len(text) + 500_000, MAX_YAML_VALUES))
    try:
        data = builder.build(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, source) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _refused(f"is not YAML: {error.reason} (character {error.character!r})", source, line) from error
    except (yaml.YAMLError, ValueError) as error:
        raise _refused(f"is not YAML: {error}", source) from error
    if builder.is_empty:
        raise _refused("is empty", source)
    return Document(data, Lines(text), builder.findings, builder.hints)


class Lines:
    """The line on which a place of a document stands, or the nearest one around it that exists.

    Looks only when asked, because most files have nothing wrong: then it reads the text once more.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._root: yaml.Node | None = None

    def __call__(self, path: Path) -> int | None:
        if self._root is None:
            try:
                self._root = yaml.compose(self._text, Loader=_Loader)
            except yaml.YAMLError:  # two anchors of one name: legal, and not to PyYAML
                return None
        node, line = self._root, 0
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            line, node = child
        return line + 1


def _child(node: Any, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if key.value == str(step):
                return key.start_mark.line, value
    return None


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: str | None) -> DefinitionError:
    mark = error.problem_mark or error.context_mark
    line = None if mark is None else mark.line + 1
    said = ", ".join(part for part in (error.problem, error.context) if part)
    column = "" if mark is None else f" (column {mark.column + 1})"
    return _refused(f"is not YAML: {said}{column}{_tab_hint(text, line)}", source, line)


def _tab_hint(text: str, line: int | None) -> str:
    lines = text.split("\n", line)[line - 1 : line] if line else []
    return (
        ". Indent with spaces, not tabs" if lines and "\t" in lines[0][: len(lines[0]) - len(lines[0].lstrip())] else ""
    )
