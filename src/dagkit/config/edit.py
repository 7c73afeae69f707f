"""Changing one setting in a TOML file, with everything else of the file, comments included, left as it is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dagkit.config.files import check_keys
from dagkit.errors import ConfigError
from dagkit.settings import CoordinatorSettings, GeneralSettings, Option, WorkerSettings, options_of

__all__ = ["settable", "with_setting", "write"]

_HEADER: Final = re.compile(r"\s*\[")
_NUMBER: Final = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?", re.ASCII)


def settable() -> dict[str, Option | None]:
    """Every setting that can be set, by its dotted name; None for those that are any text."""
    sections = {"": GeneralSettings, "worker.": WorkerSettings, "coordinator.": CoordinatorSettings}
    options = {prefix + name: option for prefix, kind in sections.items() for name, option in options_of(kind).items()}
    return {"store": None, **options, "logging.level": None, "logging.file": None}


def with_setting(text: str, key: str, value: str, *, table: str = "", where: str = "the file") -> str:
    """The text of a TOML file with this setting in it.

    Args:
        key: Its dotted name (`worker.slots`); `value` as somebody types it.
        table: The table of the file that holds the settings, `tool.dagkit` in a pyproject.
        where: The file's name, for errors.

    `ConfigError` for a name that is none, a value that it cannot have, and a file in which the place is not plain.
    """
    check_keys([key], tuple(settable()), where)
    option = settable()[key]
    if option is not None:
        option.read(value, f"{where}: {key}")
    elif not value.strip():
        raise ConfigError(f"{where}: {key}: {value!r} is not a text")
    before = _parsed(text, where)
    literal = _literal(value, option)
    section, _, name = key.rpartition(".")
    changed = _put(text.splitlines(), ".".join(filter(None, (table, section))), name, literal)
    expected = _merged(
        before, [*filter(None, table.split(".")), *key.split(".")], _parsed(f"x = {literal}", where)["x"]
    )
    try:
        is_right = _parsed(changed, where) == expected
    except ConfigError:
        is_right = False
    if not is_right:
        raise ConfigError(
            f"{where}: {key} is written in a way that cannot be changed without you; set it there to {literal}"
        )
    return changed


def _literal(value: str, option: Option | None) -> str:
    """A switch or a number as such, all else as a text."""
    parsed = None if option is None else option.parse(value)
    if isinstance(parsed, bool):
        return str(parsed).lower()
    if isinstance(parsed, (int, float)) and _NUMBER.fullmatch(value.strip()):
        return value.strip().lstrip("+")
    return json.dumps(value.strip(), ensure_ascii=False)


def _put(lines: list[str], section: str, name: str, literal: str) -> str:
    begin, end = _section(lines, section)
    if begin is None:
        gap = [""] if lines and lines[-1].strip() else []
        return "\n".join([*lines, *gap, f"[{section}]", f"{name} = {literal}", ""])
    pattern = re.compile(rf"(\s*{re.escape(name)}\s*=\s*)(.*)")
    for at in range(begin, end):
        if match := pattern.fullmatch(lines[at]):
            lines[at] = f"{match[1]}{literal}{_comment_after(match[2])}"
            return "\n".join([*lines, ""])
    lines.insert(_place(lines, begin, end, name), f"{name} = {literal}")
    return "\n".join([*lines, ""])


def _section(lines: list[str], section: str) -> tuple[int | None, int]:
    """First and last line (exclusive) below a header, None if there is none; of the top of the file for ''."""
    headers = [at for at, line in enumerate(lines) if _HEADER.match(line)]
    if not section:
        return 0, headers[0] if headers else len(lines)
    wanted = re.compile(rf"\s*\[\s*{re.escape(section)}\s*\]\s*(#.*)?")
    found = next((at for at in headers if wanted.fullmatch(lines[at])), None)
    if found is None:
        return None, len(lines)
    return found + 1, next((at for at in headers if at > found), len(lines))


def _place(lines: list[str], begin: int, end: int, name: str) -> int:
    """Below an example of it in a comment; else below the last setting of its section."""
    example = re.compile(rf"\s*#\s*{re.escape(name)}\s*=.*")
    for at in range(begin, end):
        if example.fullmatch(lines[at]):
            return at + 1
    settings = [at for at in range(begin, end) if "=" in lines[at] and not lines[at].lstrip().startswith("#")]
    return settings[-1] + 1 if settings else begin


def _comment_after(value: str) -> str:
    """The comment behind a value on one line, with the blanks before it."""
    in_text = ""
    for at, letter in enumerate(value):
        if in_text:
            in_text = "" if letter == in_text and value[at - 1] != "\\" else in_text
        elif letter in "\"'":
            in_text = letter
        elif letter == "#":
            return value[len(value[:at].rstrip()) :]
    return ""


def _merged(document: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    inner = document.get(path[0])
    if len(path) == 1:
        return {**document, path[0]: value}
    return {**document, path[0]: _merged(inner if isinstance(inner, Mapping) else {}, path[1:], value)}


def _parsed(text: str, where: str) -> dict[str, Any]:
    tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}") from None


def write(path: Path, key: str, value: str) -> None:
    """Change a setting of a file, which is made if there is none. `ConfigError`."""
    table = "tool.dagkit" if path.name == "pyproject.toml" else ""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(with_setting(text, key, value, table=table, where=str(path)), encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}") from None
