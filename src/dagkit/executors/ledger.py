"""The ledger: what was submitted to a scheduler, written down before the scheduler is called.

A submission is first an intent, with a job name that no other has and the attempts that it carries; the job's id is
added when the scheduler has answered. After a crash, a timeout or an answer that cannot be read, the scheduler's
listing says under that name whether the job exists. So nothing is submitted twice, and no job is left alone.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dagkit.database import Database
from dagkit.errors import ConfigError, LeaseLost, RunBusy
from dagkit.model.messages import AttemptKey
from dagkit.stores.file_systems import NETWORK, file_system_of

__all__ = ["Ledger", "Member", "Phase", "Submission"]

_VERSION: Final = 1
_SCHEMA: Final = """\
CREATE TABLE driver (
    one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL, fence INTEGER NOT NULL, expires_at REAL NOT NULL
)

CREATE TABLE submissions (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, profile TEXT NOT NULL, phase TEXT NOT NULL, job_id TEXT,
    intended_at REAL NOT NULL, answered_at REAL, seen_at REAL, scheduler_state TEXT, detail TEXT NOT NULL
)

CREATE INDEX submissions_open ON submissions (phase) WHERE phase IN ('intended', 'accepted')

CREATE TABLE members (
    submission INTEGER NOT NULL REFERENCES submissions (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    workflow_id TEXT NOT NULL, task TEXT NOT NULL, generation INTEGER NOT NULL, attempt INTEGER NOT NULL,
    is_open INTEGER NOT NULL, PRIMARY KEY (submission, position)
) WITHOUT ROWID

CREATE INDEX members_open ON members (workflow_id, task) WHERE is_open"""


class Phase(str, Enum):
    """How far a submission is."""

    INTENDED = "intended"
    """Written down; whether the scheduler has it is not known yet."""
    ACCEPTED = "accepted"
    """The scheduler has it, under an id."""
    REFUSED = "refused"
    """The scheduler certainly does not have it."""
    ENDED = "ended"
    """Nothing of it is awaited any more."""


@dataclass(frozen=True, slots=True)
class Member:
    """One attempt within a submission; `position` is its index in an array or in a pack."""

    position: int
    key: AttemptKey
    is_open: bool = True
    """Its end has not been reported."""


@dataclass(slots=True)
class Submission:
    """One call of a scheduler's submit command: a job, an array, a bulk job.

    Attributes:
        name: The job's name in the scheduler, which no other submission has.
        profile: What was submitted how: the queue, say. Failures are counted by it.
        job_id: Of the job, or of the array's or bulk job's parent.
        intended_at, answered_at, seen_at: Seconds since the epoch; `seen_at` when a listing last had it.
        scheduler_state: The scheduler's word when it was last seen.
        detail: What the executor wants to find again, as JSON values.
    """

    id: int
    name: str
    profile: str
    phase: Phase
    job_id: str | None
    intended_at: float
    answered_at: float | None = None
    seen_at: float | None = None
    scheduler_state: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)

    @property
    def open_members(self) -> list[Member]:
        """Attempts whose end has not been reported."""
        return [member for member in self.members if member.is_open]


class Ledger:
    """Submissions of one executor, in an SQLite file. One process at a time drives it; others may look.

    Every write is durable before it returns, and refused (`LeaseLost`) once another driver has taken over.

    Args:
        path: The file; its folder is made.
        clock: Seconds since the epoch.
        file_system: Tells the type of the file system that holds a path.

    Raises `ConfigError` for a file system whose locks cannot be relied on.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        file_system: Callable[[Path], str | None] = file_system_of,
    ) -> None:
        _check_file_system(path, file_system)
        self.path, self._clock = path, clock
        self._database = Database(path, _SCHEMA, _VERSION)
        self._fence: int | None = None

    def close(self) -> None:
        """Give the lease up and close the file."""
        if self._fence is not None:
            with self._database.writing("leaving the ledger") as connection:
                connection.execute("UPDATE driver SET expires_at = 0 WHERE fence = ?", (self._fence,))
            self._fence = None
        self._database.close()

    # --- who drives

    def claim(self, owner: str, ttl_s: float, is_gone: Callable[[str], bool] = lambda owner: False) -> None:
        """Become the driver, or stay it for another `ttl_s`.

        Args:
            is_gone: Whether an owner is certainly dead, so that its lease need not run out first.

        Raises `RunBusy` naming the driver if there is another, `LeaseLost` if this one was deposed meanwhile.
        """
        now = self._clock()
        with self._database.writing("claiming the ledger") as connection:
            row = connection.execute("SELECT owner, fence, expires_at FROM driver").fetchone()
            if self._fence is not None and row is not None and row[1] != self._fence:
                raise LeaseLost(f"the ledger {self.path} is driven by {row[0]} now")
            if self._fence is None:
                if row is not None and row[2] > now and not is_gone(row[0]):
                    raise RunBusy(f"the ledger {self.path} is driven by {row[0]}; wait for its end, or stop it")
                self._fence = (row[1] if row is not None else 0) + 1
            connection.execute(
                "INSERT INTO driver VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE "
                "SET owner = excluded.owner, fence = excluded.fence, expires_at = excluded.expires_at",
                (owner, self._fence, now + ttl_s),
            )

    # --- submitting

    def intend(
        self, name: str, profile: str, keys: Sequence[AttemptKey], detail: Mapping[str, Any] | None = None
    ) -> Submission:
        """Write down what is about to be submitted; positions are those of `keys`."""
        now, text = self._clock(), json.dumps(detail or {})
        with self._writing("writing down a submission") as connection:
            cursor = connection.execute(
                "INSERT INTO submissions (name, profile, phase, intended_at, detail) VALUES (?, ?, ?, ?, ?)",
                (name, profile, Phase.INTENDED.value, now, text),
            )
            number = cursor.lastrowid or 0
            connection.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, 1)",
                [(number, position, *key) for position, key in enumerate(keys)],
            )
        members = [Member(position, key) for position, key in enumerate(keys)]
        return Submission(number, name, profile, Phase.INTENDED, None, now, detail=json.loads(text), members=members)

    def accepted(self, submission: Submission, job_id: str) -> None:
        """The scheduler has it under this id; told by its answer or by a listing."""
        now = self._clock()
        with self._writing("noting a job's id") as connection:
            connection.execute(
                "UPDATE submissions SET phase = ?, job_id = ?, answered_at = ? WHERE id = ? AND phase = ?",
                (Phase.ACCEPTED.value, job_id, now, submission.id, Phase.INTENDED.value),
            )
        submission.phase, submission.job_id, submission.answered_at = Phase.ACCEPTED, job_id, now

    def refused(self, submission: Submission, why: str) -> None:
        """The scheduler certainly does not have it; its attempts may be submitted again."""
        self._over(submission, Phase.REFUSED, why)

    # --- watching

    def seen(self, states: Mapping[int, str]) -> None:
        """A listing had these submissions (by their number here), in these states. One commit for all."""
        now = self._clock()
        with self._writing("noting what was seen") as connection:
            connection.executemany(
                "UPDATE submissions SET seen_at = ?, scheduler_state = ? WHERE id = ?",
                [(now, state, number) for number, state in states.items()],
            )

    def member_ended(self, ends: Iterable[tuple[Submission, int]]) -> None:
        """The ends of these attempts (by position) were reported; a submission with none left is over.

        One commit for all.
        """
        ends = list(ends)
        positions: dict[int, set[int]] = {}
        for submission, position in ends:
            positions.setdefault(submission.id, set()).add(position)
        concerned = {submission.id: submission for submission, _ in ends}
        for submission in concerned.values():
            gone = positions[submission.id]
            submission.members = [
                Member(member.position, member.key, False) if member.position in gone else member
                for member in submission.members
            ]
        over = {number: submission for number, submission in concerned.items() if not submission.open_members}
        with self._writing("noting ends") as connection:
            connection.executemany(
                "UPDATE members SET is_open = 0 WHERE submission = ? AND position = ?",
                [(submission.id, position) for submission, position in ends],
            )
            connection.executemany(
                "UPDATE submissions SET phase = ? WHERE id = ?", [(Phase.ENDED.value, number) for number in over]
            )
        for submission in over.values():
            submission.phase = Phase.ENDED

    def forget(self, older_than_s: float) -> int:
        """Remove submissions that are over and older than this; returns how many."""
        with self._writing("forgetting what is over") as connection:
            cursor = connection.execute(
                "DELETE FROM submissions WHERE phase IN (?, ?) AND intended_at < ?",
                (Phase.REFUSED.value, Phase.ENDED.value, self._clock() - older_than_s),
            )
            connection.execute("DELETE FROM members WHERE submission NOT IN (SELECT id FROM submissions)")
            return cursor.rowcount

    # --- looking

    def unanswered(self) -> list[Submission]:
        """Intents of which it is not known whether the scheduler has them: to be looked for by name."""
        return self._select("WHERE phase = 'intended'")

    def open(self) -> list[Submission]:
        """Everything that the scheduler has or may have, oldest first."""
        return self._select("WHERE phase IN ('intended', 'accepted')")

    def carrying(self, keys: Iterable[AttemptKey]) -> dict[AttemptKey, Submission]:
        """Which open submission carries each of these attempts; those that none carries are left out."""
        wanted = set(keys)
        return {
            member.key: submission
            for submission in self.open()
            for member in submission.open_members
            if member.key in wanted
        }

    def known(self, names: Iterable[str]) -> set[str]:
        """Which of these names were ever written down here, and not forgotten."""
        wanted = set(names)
        with self._database.reading("reading the ledger") as connection:
            return {name for (name,) in connection.execute("SELECT name FROM submissions") if name in wanted}

    def was_put_off(self, key: AttemptKey) -> bool:
        """Whether every submission of this attempt was refused: it has certainly never run, and waits to be tried."""
        with self._database.reading("reading the ledger") as connection:
            phases = connection.execute(
                "SELECT phase FROM submissions WHERE id IN (SELECT submission FROM members WHERE workflow_id = ? "
                "AND task = ? AND generation = ? AND attempt = ?)",
                key,
            ).fetchall()
        return bool(phases) and all(phase == Phase.REFUSED.value for (phase,) in phases)

    def _select(self, where: str) -> list[Submission]:
        with self._database.reading("reading the ledger") as connection:
            rows = connection.execute(
                "SELECT id, name, profile, phase, job_id, intended_at, answered_at, seen_at, scheduler_state, detail "
                f"FROM submissions {where} ORDER BY id"
            ).fetchall()
            members = connection.execute(
                "SELECT submission, position, workflow_id, task, generation, attempt, is_open FROM members "
                f"WHERE submission IN (SELECT id FROM submissions {where}) ORDER BY submission, position"
            ).fetchall()
        found = {row[0]: _submission(row) for row in rows}
        for number, position, *key, is_open in members:
            found[number].members.append(Member(position, AttemptKey(*key), bool(is_open)))
        return list(found.values())

    # --- inside

    def _over(self, submission: Submission, phase: Phase, why: str) -> None:
        with self._writing("closing a submission") as connection:
            connection.execute(
                "UPDATE submissions SET phase = ?, answered_at = ?, scheduler_state = ? WHERE id = ?",
                (phase.value, self._clock(), why, submission.id),
            )
            connection.execute("UPDATE members SET is_open = 0 WHERE submission = ?", (submission.id,))
        submission.phase, submission.scheduler_state = phase, why
        submission.members = [Member(member.position, member.key, False) for member in submission.members]

    @contextmanager
    def _writing(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A transaction of the driver."""
        with self._database.writing(doing) as connection:
            self._check_fence(connection)
            yield connection

    def _check_fence(self, connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT owner, fence FROM driver").fetchone()
        if self._fence is None or row is None or row[1] != self._fence:
            by = f"{row[0]} drives it" if row is not None and self._fence is not None else "claim() comes first"
            raise LeaseLost(f"the ledger {self.path} is not driven by this process: {by}")


def _submission(row: Sequence[Any]) -> Submission:
    number, name, profile, phase, job_id, intended_at, answered_at, seen_at, state, detail = row
    return Submission(
        number, name, profile, Phase(phase), job_id, intended_at, answered_at, seen_at, state, json.loads(detail)
    )


def _check_file_system(path: Path, file_system: Callable[[Path], str | None]) -> None:
    place = next((folder for folder in path.parents if folder.exists()), path.parent)
    kind = file_system(place)
    if kind in NETWORK:
        raise ConfigError(
            f"the ledger {path} would be on a network file system ({kind}), whose locks cannot be relied on. "
            f'Put it on a local disk of the machine that submits: ledger = "/var/tmp/..." in dagkit.toml.'
        )
