"""Configuration files, found and read: `dagkit.toml`, `[tool.dagkit]` of a pyproject, and ai4s-jobq's `jobq.yaml`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from dagkit.errors import ConfigError
from dagkit.settings import CoordinatorSettings, GeneralSettings, WorkerSettings, options_of

__all__ = ["ConfigFile", "check_keys", "find_files", "project_root", "read_file", "split_location"]

_TOP_LEVEL = ("store", *options_of(GeneralSettings))
_SECTIONS = {"worker": tuple(options_of(WorkerSettings)), "coordinator": tuple(options_of(CoordinatorSettings))}
_CONNECTION = ("storage", "prefix", "queues", "blobs")


@dataclass(frozen=True)
class ConfigFile:
    """What one file says: `values` by dotted name (`store`, `worker.slots`) as they were written, and its targets.

    `logging` is its table of that name, with the file to log to relative to the folder of the configuration.
    """

    path: Path
    values: Mapping[str, Any]
    targets: Mapping[str, Any]
    logging: Mapping[str, Any] = field(default_factory=dict)


def project_root(start: Path) -> Path | None:
    """The nearest directory, from `start` upwards, with a `.dagkit` store or a configuration of dagkit."""
    for directory in (start, *start.parents):
        if (directory / ".dagkit").is_dir() or _config_in(directory):
            return directory
    return None


def find_files(start: Path, home: Path) -> list[ConfigFile]:
    """The files that apply in `start`, the one that wins first."""
    found = []
    directory = next((place for place in (start, *start.parents) if _config_in(place)), None)
    if directory is not None and (path := _config_in(directory)):
        found.append(read_file(path))
    jobq = (start / "jobq.yaml", start / ".jobq.yaml", home / ".config" / "ai4s-jobq" / "jobq.yaml")
    if path := next((path for path in jobq if path.is_file()), None):
        found.append(read_file(path))
    return found


def read_file(path: Path) -> ConfigFile:
    """A named file; `ConfigError` if it is missing, cannot be parsed, or holds keys that mean nothing."""
    if not path.is_file():
        raise ConfigError(f"no configuration file {path}")
    if path.suffix in (".yaml", ".yml"):
        return _from_jobq(path, _load_yaml(path))
    document = _load_toml(path)
    if path.name == "pyproject.toml":
        document = document.get("tool", {}).get("dagkit", {})
    return _from_dagkit(path, document)


def split_location(text: str, what: str) -> str:
    """Store url of the shorthand `<account>/<prefix>`, which is cut at the last `/`."""
    for mark in ("://", ";", "="):
        if mark in text:
            raise ConfigError(f"{what}: expected <account>/<prefix>, found {mark!r} in it")
    account, _, prefix = text.strip().rpartition("/")
    if not account or not prefix:
        raise ConfigError(f"{what}: {text!r} is not <account>/<prefix>; both halves are needed")
    return f"azure://{account}/{prefix}"


def check_keys(found: Collection[str], allowed: Collection[str], where: str) -> None:
    """`ConfigError` that names the keys nobody knows, the allowed ones, and the nearest."""
    unknown = [key for key in found if key not in allowed]
    if not unknown:
        return
    near = difflib.get_close_matches(str(unknown[0]), [*allowed], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    names = ", ".join(map(repr, unknown))
    raise ConfigError(
        f"{where}: unknown {'key' if len(unknown) == 1 else 'keys'} {names}; allowed: {', '.join(allowed)}.{hint}"
    )


def _config_in(directory: Path) -> Path | None:
    own, project = directory / "dagkit.toml", directory / "pyproject.toml"
    if own.is_file():
        return own
    # A pyproject that does not so much as mention the table is not worth parsing, broken or not.
    if project.is_file() and b"tool.dagkit" in project.read_bytes():
        return project if "dagkit" in _load_toml(project).get("tool", {}) else None
    return None


def _from_dagkit(path: Path, document: Mapping[str, Any]) -> ConfigFile:
    check_keys(document, (*_TOP_LEVEL, *_SECTIONS, "targets", "logging"), str(path))
    values = {key: document[key] for key in _TOP_LEVEL if key in document}
    if isinstance(values.get("store"), str) and ":" not in values["store"]:
        values["store"] = str((path.parent / values["store"]).absolute())
    values.update(_section_values(document, _SECTIONS, path))
    logging = dict(_table(document, "logging", path))
    if isinstance(logging.get("file"), str):
        logging["file"] = str((path.parent / Path(logging["file"]).expanduser()).absolute())
    return ConfigFile(path, values, _table(document, "targets", path), logging)


def _from_jobq(path: Path, document: Mapping[str, Any]) -> ConfigFile:
    sections = {"connection": _CONNECTION, "coordinator": _SECTIONS["coordinator"]}
    check_keys(document, tuple(sections), str(path))
    values = dict(_section_values(document, sections, path))
    connection = {key: values.pop(f"connection.{key}", None) for key in _CONNECTION}
    if connection["storage"] or connection["prefix"]:
        text = f"{connection['storage'] or ''}/{connection['prefix'] or ''}"
        values["store"] = split_location(text, f"{path}: connection.storage and connection.prefix")
    values.update({key: connection[key] for key in ("queues", "blobs") if connection[key]})
    return ConfigFile(path, values, {})


def _section_values(
    document: Mapping[str, Any], sections: Mapping[str, Collection[str]], path: Path
) -> Iterator[tuple[str, Any]]:
    for section, allowed in sections.items():
        table = _table(document, section, path)
        check_keys(table, allowed, f"{path}: [{section}]")
        yield from ((f"{section}.{key}", value) for key, value in table.items() if value is not None)


def _table(document: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    table = document.get(key)
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: {key} is not a table of settings")
    return table


def _load_toml(path: Path) -> dict[str, Any]:
    tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(tomllib.loads(_read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None


def _load_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected sections with settings, found {type(document).__name__}")
    return document


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
