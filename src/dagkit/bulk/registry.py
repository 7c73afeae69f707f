"""The registry: one row for each job key, in an SQLite file. One process at a time drives it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dagkit.bulk.jobs import BulkStatus
from dagkit.database import Database
from dagkit.errors import ConfigError, RunBusy
from dagkit.stores.file_systems import NETWORK, file_system_of

__all__ = ["Record", "Registry"]

_SCHEMA: Final = """\
CREATE TABLE jobs (
    job_key TEXT PRIMARY KEY, status TEXT NOT NULL, stage TEXT, wave TEXT, body TEXT NOT NULL
) WITHOUT ROWID"""


@dataclass(slots=True)
class Record:
    """What is known of one job.

    Attributes:
        fingerprint: Of what was last registered to run.
        name: Of its task; legal everywhere, made from the key.
        attempt: The attempt that runs or ran last; 0 before the first. `generation` counts resets.
        submits: How often it was submitted since it was registered or reset.
        spared: Ends that cost no attempt, by kind.
        before: Modification time and size of expected outputs that were there before it was submitted.
        ended_at: When its command had ended, while its outputs are waited for.
    """

    job_key: str
    fingerprint: str
    name: str
    status: BulkStatus = BulkStatus.PENDING
    stage: str | None = None
    wave: str | None = None
    target: str | None = None
    priority: int = 0
    queue: str = "default"
    cmd: str = ""
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    max_submits: int = 5
    attempt: int = 0
    generation: int = 0
    submits: int = 0
    spared: dict[str, int] = field(default_factory=dict)
    before: dict[str, list[int]] = field(default_factory=dict)
    reason: str = ""
    ended_at: float | None = None


_FIELDS: Final = tuple(Record.__dataclass_fields__)


class Registry:
    """Records by key, in memory and in the file. `ConfigError` on a file system whose locks cannot be relied on."""

    def __init__(self, path: Path, file_system: Callable[[Path], str | None] = file_system_of) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = file_system(path.parent)
        if kind in NETWORK:
            raise ConfigError(
                f"the registry {path} would be on a network file system ({kind}), whose locks cannot be relied on. "
                f"Put it on a local disk of the machine that submits, such as /var/tmp"
            )
        self.path = path
        self._database = Database(path, _SCHEMA, 1)
        self._lock_fd: int | None = None
        self.records: dict[str, Record] = {}
        self.load()

    def load(self) -> None:
        """Read everything again."""
        with self._database.reading("reading the registry") as connection:
            rows = connection.execute("SELECT body, status FROM jobs ORDER BY job_key").fetchall()
        self.records = {}
        for body, status in rows:
            values = {key: value for key, value in json.loads(body).items() if key in _FIELDS}
            record = Record(**{**values, "status": BulkStatus(status)})
            self.records[record.job_key] = record

    def lock(self) -> None:
        """Become the driver; `RunBusy` if another process drives it."""
        if self._lock_fd is not None:
            return
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            import fcntl  # where there is none, there is no PJM and no Slurm either

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(fd, 200).decode(errors="replace")
            os.close(fd)
            raise RunBusy(
                f"the registry {self.path} is driven by {owner or 'another process'}; wait, or stop it"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"process {os.getpid()}".encode())
        self._lock_fd = fd
        self.load()

    def save(self, records: Iterable[Record]) -> None:
        """Write these; one commit."""
        rows = [(one.job_key, one.status.value, one.stage, one.wave, _body(one)) for one in records]
        if rows:
            with self._database.writing("writing the registry") as connection:
                connection.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        self._database.close()
        if self._lock_fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._lock_fd)
            self._lock_fd = None


def _body(record: Record) -> str:
    return json.dumps({name: getattr(record, name) for name in _FIELDS if name != "status"})
