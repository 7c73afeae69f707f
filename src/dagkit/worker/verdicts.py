"""What the store says about attempts that a worker holds: their run was cancelled, or they have ended already."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable

from dagkit.errors import BackendError, DagkitError
from dagkit.model.states import TERMINAL, TaskState
from dagkit.stores.base import Store
from dagkit.worker.locks import Held

__all__ = ["Verdicts"]

log = logging.getLogger(__name__)


class Verdicts:
    """Asks a store; one that does not answer has said nothing.

    Args:
        interval_s: Between two looks; each worker looks at times of its own, so that many do not ask at once.
    """

    def __init__(self, store: Store, interval_s: float) -> None:
        self._store, self._interval_s = store, interval_s
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether it is time to look; then the next time is set."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s * random.uniform(0.8, 1.2)
        return True

    def cancelled(self, held: Iterable[Held]) -> set[str]:
        """Ids of their runs that are to be cancelled."""
        runs = {one.message.workflow_id for one in held if not one.is_ordinary}
        try:
            return self._store.cancel_requested(runs) if runs else set()
        except BackendError as error:
            log.warning("cannot look for cancel requests: %s", error)
            return set()

    def is_given_up(self, held: Held) -> bool:
        """Whether this attempt has ended by the state: it timed out, or its worker died after reporting."""
        if held.is_ordinary:
            return False
        key = held.key
        try:
            entry = self._store.task_entries(key.workflow_id, [key.task]).get(key.task, {})
        except DagkitError as error:  # the run may have been deleted; its completion will be an orphan
            log.debug("%s: %s", held.message.id, error)
            return False
        latest = (entry.get("generation", 0), entry.get("attempt_no", 0))
        ended = TaskState(entry.get("state", "pending")) in TERMINAL
        return latest > (key.generation, key.attempt) or (ended and latest == (key.generation, key.attempt))
