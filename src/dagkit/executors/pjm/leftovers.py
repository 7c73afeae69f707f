"""Jobs that nobody waits for any more but that PJM still has: they keep their slots until they are seen to be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor as Pool
from typing import Final

from dagkit.executors.pjm.client import Client
from dagkit.executors.pjm.ids import JobId
from dagkit.executors.pjm.watch import Look, Patience

__all__ = ["Leftovers"]

_GONE: Final = ("EXT", "CCL", "RJT")


class Leftovers:
    """Deletes them, and again after a while, until a listing shows that they are gone: pjdel may fail, and what it has
    accepted is not deleted yet. The coordinator's thread; pjdel itself runs in `pool`."""

    def __init__(self, client: Client, patience: Patience, clock: Callable[[], float], pool: Pool) -> None:
        self._client, self._patience, self._clock, self._pool = client, patience, clock, pool
        self._due_at: dict[JobId, float] = {}

    def __len__(self) -> int:
        return len(self._due_at)

    def add(self, ids: Iterable[JobId]) -> None:
        """PJM has these, and is not to have them."""
        self._due_at.update(dict.fromkeys(ids, self._clock()))

    def seen(self, look: Look) -> None:
        """Forget those that are gone."""
        if look.rows is None:
            return
        for one in list(self._due_at):
            row = look.rows.get(one)
            if row.st in _GONE if row is not None else look.is_whole:
                del self._due_at[one]

    def delete(self) -> None:
        """Ask for the deletion of those for which it is time."""
        now = self._clock()
        due = [one for one, at in self._due_at.items() if now >= at]
        if due:
            self._due_at.update(dict.fromkeys(due, now + self._patience.stop_s))
            self._pool.submit(self._client.pjdel, due)
