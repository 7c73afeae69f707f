"""Completions on their way out: published first, then the task message is deleted; what fails is tried again later."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dagkit.errors import BackendError
from dagkit.model.messages import AttemptKey, Completion
from dagkit.queues.base import Delivery, OutMessage, Queue
from dagkit.worker.locks import Held, LockKeeper

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0
_REMEMBERED = 1000


@dataclass(slots=True)
class _Report:
    held: Held
    completion: Completion
    tries: int = 0
    due: float = 0.0


class Outbox:
    """Used by the worker's main thread alone.

    Args:
        max_tries: After so many the task message is left to come back; 0 = never give up.
        released: Called with every message that the worker no longer holds.
        put: `Store.put_output`.
    """

    def __init__(
        self,
        tasks: Queue,
        completions: Queue,
        keeper: LockKeeper,
        max_tries: int,
        released: Callable[[Held], None],
        counters: Counter[str],
        put: Callable[[str, str, bytes], str],
    ) -> None:
        self._put = put
        self._tasks, self._completions, self._keeper = tasks, completions, keeper
        self._max_tries, self._released, self._counters = max_tries, released, counters
        self._waiting: list[_Report] = []
        self._reported: deque[AttemptKey] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, held: Held, completion: Completion) -> None:
        self._waiting.append(_Report(held, completion))

    def flush(self) -> None:
        """Send what is due, in one batch."""
        now = time.monotonic()
        due = [report for report in self._waiting if report.due <= now]
        if not due:
            return
        self._waiting = [report for report in self._waiting if report.due > now]
        for report in due:
            if report.held.lost:
                self._release(report)
        due = [report for report in due if not report.held.lost]
        try:
            self._completions.send_batch([self._message(report.completion) for report in due])
        except BackendError as error:
            self._postpone(due, error, now)
        else:
            self._counters["reported"] += len(due)
            self._reported.extend([report.held.key for report in due])
            self.delete([report.held for report in due])

    def has_reported(self, held: Held) -> bool:
        """Whether this worker has reported the attempt, lately: the message came back because it was not deleted."""
        return not held.is_ordinary and held.key in self._reported

    def _message(self, completion: Completion) -> OutMessage:
        """The report; an output that makes it too large for the queue goes to the store."""
        put = partial(self._put, completion.workflow_id)
        text = completion.text_within(self._completions.max_text_bytes, put)
        return OutMessage(json.loads(text)["id"], text)

    def delete(self, done: Sequence[Held]) -> None:
        """Delete settled task messages. Failing is harmless: the task comes back and its completion is ignored."""
        try:
            self._tasks.complete([self._keeper.drop(held) for held in done])
        except BackendError as error:
            log.warning("messages that are done could not be deleted: %s", error)
        for held in done:
            self._released(held)

    def give_back(self, held: Held, delay_s: float = 0.0) -> None:
        """Make the task message visible to other workers, as the same attempt."""
        self.put_back([self._keeper.drop(held)], delay_s)
        self._counters["given_back"] += 1
        self._released(held)

    def put_back(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        """The same for messages that were not taken up. Where it fails they return when their lock ends."""
        try:
            self._tasks.abandon(deliveries, delay_s)
        except BackendError as error:
            log.warning("%d messages could not be given back: %s", len(deliveries), error)

    def discard(self, delivery: Delivery) -> None:
        """Delete a message that nobody can do anything with."""
        try:
            self._tasks.complete([delivery])
        except BackendError as error:
            log.warning("%s could not be deleted: %s", delivery.id, error)

    def _postpone(self, reports: Sequence[_Report], error: BackendError, now: float) -> None:
        log.warning("%d completions could not be reported: %s", len(reports), error)
        for report in reports:
            report.tries += 1
            if self._max_tries and report.tries >= self._max_tries:
                # The message comes back when its lock ends: at once would only be the same again.
                self._counters["unreported"] += 1
                self._release(report)
                continue
            report.due = now + min(_FIRST_BACKOFF_S * 2 ** (report.tries - 1), _LONGEST_BACKOFF_S)
            self._waiting.append(report)

    def _release(self, report: _Report) -> None:
        self._keeper.drop(report.held)
        self._released(report.held)
