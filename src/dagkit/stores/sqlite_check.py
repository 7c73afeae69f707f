"""What `dagkit doctor` asks an SQLite store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagkit.errors import DagkitError
from dagkit.stores.file_systems import NETWORK, file_system_of

if TYPE_CHECKING:
    from dagkit.database import Database

__all__ = ["check"]

_LITTLE_BYTES: Final = 1 << 30
_NO_BYTES: Final = 50 << 20

Finding = tuple[str, str, str]


def check(root: Path, open_database: Callable[[], Database], mounts: str | None = None) -> list[Finding]:
    """(check, `pass` | `warn` | `fail`, message) of the store at `root`; never raises for what it finds."""
    if not root.exists():
        return [_place_for(root), _space(root), _file_system(root, mounts)]
    return [
        _ask("writable", lambda: _is_writable(open_database())),
        _ask("database", lambda: _is_sound(open_database())),
        _space(root),
        _file_system(root, mounts),
    ]


def _place_for(root: Path) -> Finding:
    """A store that is not there yet is not made by looking."""
    parent = _nearest(root)
    if parent.is_dir() and os.access(parent, os.W_OK):
        return ("writable", "pass", f"{root} is not there yet; the first run makes it")
    return ("writable", "fail", f"{root} cannot be made: {parent} is not a directory that you may write to (store=...)")


def _nearest(root: Path) -> Path:
    return next((one for one in (root, *root.parents) if one.exists()), root)


def _ask(name: str, question: Callable[[], Finding]) -> Finding:
    try:
        return question()
    except DagkitError as error:
        return (name, "fail", str(error))


def _is_writable(database: Database) -> Finding:
    with database.writing("checking the store") as connection:
        connection.execute("UPDATE leases SET owner = owner WHERE name = ''")
    return ("writable", "pass", f"{database.path.parent} can be written to")


def _is_sound(database: Database) -> Finding:
    with database.connection("checking the database") as connection:
        answers = [text for (text,) in connection.execute("PRAGMA quick_check(3)")]
    if answers == ["ok"]:
        return ("database", "pass", f"{database.path.name} is sound")
    return (
        "database",
        "fail",
        f"{database.path} is damaged ({'; '.join(answers)}). "
        f"Keep a copy; `sqlite3 {database.path} .recover` saves what can be read.",
    )


def _space(root: Path) -> Finding:
    place = _nearest(root)
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return ("space", "warn", f"cannot tell how much space is free at {place}: {error.strerror}")
    text = f"{free / 1e9:,.1f} GB free at {place}"
    if free < _NO_BYTES:
        return ("space", "fail", f"{text}. Saving state will fail soon; free some space.")
    return ("space", "warn", f"{text}. Large outputs may not fit.") if free < _LITTLE_BYTES else ("space", "pass", text)


def _file_system(root: Path, mounts: str | None) -> Finding:
    kind = file_system_of(root, mounts)
    if kind is None:
        return ("file system", "pass", f"the file system of {root} is not known here")
    if kind in NETWORK:
        return (
            "file system",
            "warn",
            f"{root} is on {kind}, a network file system: only processes of one machine may use the database at once. "
            f"Keep the coordinator and `dagkit status` on the same node, or choose a local disk (store=...).",
        )
    return ("file system", "pass", f"{root} is on {kind}")
