"""What is written down of the jobs of one run: its ledger, on a local disk, and its spool, where nodes can reach it."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dagkit.executors.ledger import Ledger
from dagkit.executors.spool import Spool
from dagkit.model.names import path_name
from dagkit.stores.file_systems import NETWORK, file_system_of

__all__ = ["Books", "Library"]

_TTL_S: Final = 120.0


class Books:
    """The ledger and the spool of one run. Whoever drives the run drives them: the run's lease says who that is."""

    def __init__(self, ledger: Path, spool: Path, owner: str, clock: Callable[[], float] = time.time) -> None:
        self._owner = owner
        self.ledger = Ledger(ledger, clock=clock)
        self.renew()
        self.spool = Spool(spool)

    def renew(self) -> None:
        """Stay the driver. A former one has lost the lease of the run, and so this; `LeaseLost` if that is this one."""
        self.ledger.claim(self._owner, _TTL_S, lambda owner: True)

    def close(self) -> None:
        self.ledger.close()


class Library:
    """The books of runs, opened when a run first needs them. One thread's.

    Args:
        folder: For spools, on a file system that nodes share; for ledgers too, if its locks can be relied on.
        ledgers: Folder for ledgers; default: `folder`, or one in /var/tmp where that is on a network.
        clock: Seconds since the epoch.
    """

    def __init__(self, folder: Path, ledgers: Path | None, owner: str, clock: Callable[[], float] = time.time) -> None:
        self._spools, self._owner, self._clock = folder, owner, clock
        self._ledgers = ledgers or _place_for_ledgers(folder)
        self.open: dict[str, Books] = {}

    def of(self, workflow_id: str) -> Books:
        """The books of a run."""
        books = self.open.get(workflow_id)
        if books is None:
            name = path_name(workflow_id)
            ledger = self._ledgers / name / "ledger.db"
            books = self.open[workflow_id] = Books(ledger, self._spools / name / "spool", self._owner, self._clock)
        return books

    def close_one(self, workflow_id: str) -> None:
        """Close the books of a run; they open again when it needs them."""
        self.open.pop(workflow_id).close()

    def close(self) -> None:
        """Close what is open; everything stays where it is for whoever goes on with the run."""
        while self.open:
            _, books = self.open.popitem()
            books.close()


def _place_for_ledgers(folder: Path) -> Path:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if file_system_of(there) not in NETWORK:
        return folder
    # SQLite's locks cannot be trusted there (sqlite.org/faq.html, question 5). Not $TMPDIR: it may go with a session.
    name = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]
    base = Path("/var/tmp") if Path("/var/tmp").is_dir() else Path(tempfile.gettempdir())
    return base / f"dagkit-{os.getuid()}" / name
