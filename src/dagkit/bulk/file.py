"""A campaign in a file, for `dagkit bulk`: what, how, where, and the jobs, which may be in a JSON Lines file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from dagkit.bulk.jobs import BulkJob, CommandProfile, ExecutionProfile, HpcProfile
from dagkit.errors import UsageError

__all__ = ["Campaign", "read_campaign"]

_KEYS: Final = ("command", "registry", "execution", "hpc", "jobs")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Campaign:
    """What a file says. Folders of jobs and the registry are relative to the file."""

    command: CommandProfile
    execution: ExecutionProfile
    hpc: HpcProfile
    registry: Path
    jobs: tuple[BulkJob, ...]


def read_campaign(path: Path) -> Campaign:
    """The campaign of a file. `UsageError` naming the file, the job and the field."""
    table = _table(_read(path), str(path), _KEYS)
    if "command" not in table or "jobs" not in table:
        raise UsageError(f"{path}: needs `command`, a list, and `jobs`, a list or the name of a .jsonl file")
    rows = table["jobs"]
    if isinstance(rows, str):
        rows = _read_lines(path.parent / rows)
    if not isinstance(rows, list):
        raise UsageError(f"{path}: jobs: expected a list, or the name of a .jsonl file")
    registry = path.parent / str(table.get("registry", path.with_suffix(".db").name))
    return Campaign(
        _guarded(f"{path}: command", lambda: CommandProfile(table["command"])),
        _made(ExecutionProfile, table.get("execution"), f"{path}: execution"),
        _made(HpcProfile, table.get("hpc"), f"{path}: hpc"),
        registry.absolute(),
        tuple(_job(row, path, number) for number, row in enumerate(rows)),
    )


def _job(row: Any, path: Path, number: int) -> BulkJob:
    where = f"{path}: jobs[{number}]"
    table = dict(_table(row, where, [field.name for field in fields(BulkJob)]))
    table.setdefault("work_dir", ".")
    for name, kind in (("execution_profile", ExecutionProfile), ("hpc_profile", HpcProfile)):
        if table.get(name) is not None:
            table[name] = _made(kind, table[name], f"{where}: {name}")
    if "job_key" not in table:
        raise UsageError(f"{where}: has no job_key")
    job = _guarded(where, lambda: BulkJob(**table))
    return replace(job, work_dir=path.absolute().parent / job.work_dir)


def _made(kind: type[T], table: Any, where: str) -> T:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return _guarded(where, lambda: kind(**_table(table or {}, where, names)))


def _guarded(where: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _table(value: Any, where: str, allowed: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: expected a table")
    for key in value:
        if key not in allowed:
            raise UsageError(f"{where}: no key {key!r}; allowed: {', '.join(allowed)}")
    return value


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no YAML: {error}") from error


def _read_lines(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: is no JSON Lines: {error}") from error
