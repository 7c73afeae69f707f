"""Messages of a queue: tasks of workflows, and ordinary jobs that belong to none (facts: jobq, section 12)."""

from __future__ import annotations

import logging

from dagkit.errors import BackendError
from dagkit.model.envelope import Get, envelope, open_envelope
from dagkit.model.messages import Completion, TaskMessage
from dagkit.queues.base import Delivery, OutMessage, Queue, Transport
from dagkit.worker.locks import Held
from dagkit.worker.outbox import Outbox

__all__ = ["FailedJobs", "read"]

log = logging.getLogger(__name__)

_RUN = "jobs"


def read(delivery: Delivery, queue: str, get: Get) -> Held:
    """The message as work to do. `PoisonMessage` if it can never be read, `BackendError` if a part of it cannot now."""
    opened = open_envelope(delivery.text)
    if "__workflow_id" in opened.kwargs:
        return Held(TaskMessage.from_text(delivery.text, get, queue), delivery)
    message = TaskMessage(_RUN, delivery.id, attempt=1, generation=0, queue=queue, kwargs=opened.kwargs)
    return Held(message, delivery, is_ordinary=True)


class FailedJobs:
    """Settles ordinary jobs: one that failed is sent again while it has retries, then kept in `<queue>-failed`."""

    def __init__(self, queue: Queue, transport: Transport, outbox: Outbox) -> None:
        self._queue, self._transport, self._outbox = queue, transport, outbox
        self._failed: Queue | None = None

    def settle(self, held: Held, completion: Completion) -> None:
        """Delete the message of a job that ended, after its successor was sent."""
        if not completion.success:
            try:
                self._send_on(held, completion)
            except BackendError as error:
                log.warning("%s: %s", held.delivery.id, error)
                self._outbox.give_back(held)
                return
        self._outbox.delete([held])

    def _send_on(self, held: Held, completion: Completion) -> None:
        opened = open_envelope(held.delivery.text)
        retries = opened.num_retries - 1
        if retries >= 0:
            text = envelope(opened.kwargs, opened.id, retries)
            self._queue.send_batch([OutMessage(f"{held.delivery.id}-{retries}", text)])
            return
        if self._failed is None:
            self._failed = self._transport.open(f"{self._queue.name}-failed")
        text = envelope({**opened.kwargs, "__error": completion.error}, opened.id)
        self._failed.send_batch([OutMessage(held.delivery.id, text)])
