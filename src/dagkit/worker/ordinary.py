"""Messages of a queue: tasks of workflows, and ordinary jobs that belong to none (facts: jobq, section 12)."""

from __future__ import annotations

import json
import logging
from typing import Any

from dagkit.errors import BackendError
from dagkit.model.messages import Completion, PoisonMessage, TaskMessage
from dagkit.queues.base import Delivery, OutMessage, Queue, Transport
from dagkit.worker.locks import Held
from dagkit.worker.outbox import Outbox

__all__ = ["FailedJobs", "read"]

log = logging.getLogger(__name__)

_RUN = "jobs"


def read(delivery: Delivery, queue: str) -> Held:
    """The message as work to do; `PoisonMessage` if it cannot be read."""
    kwargs, _ = _parts(delivery.text)
    if "__workflow_id" in kwargs:
        message = TaskMessage.from_text(delivery.text)
        message.queue = queue
        return Held(message, delivery)
    message = TaskMessage(_RUN, delivery.id, attempt=1, generation=0, queue=queue, kwargs=kwargs)
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
        kwargs, envelope = _parts(held.delivery.text)
        retries = envelope.get("num_retries", 0)
        if retries > 0:
            envelope["num_retries"] = retries - 1
            self._queue.send_batch([OutMessage(f"{held.delivery.id}-{retries - 1}", json.dumps(envelope))])
            return
        if self._failed is None:
            self._failed = self._transport.open(f"{self._queue.name}-failed")
        envelope["kwargs"] = json.dumps({**kwargs, "__error": completion.error})
        self._failed.send_batch([OutMessage(held.delivery.id, json.dumps(envelope))])


def _parts(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The kwargs and the whole envelope of a message."""
    try:
        envelope = json.loads(text)
        if envelope["version"] not in (0, 1):
            raise PoisonMessage(f"version {envelope['version']!r} is unknown")
        kwargs = json.loads(envelope["kwargs"])
        retries = envelope.get("num_retries", 0)
        if not isinstance(kwargs, dict) or not isinstance(retries, int):
            raise PoisonMessage("kwargs or num_retries are of the wrong type")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PoisonMessage(f"not an envelope: {error}") from error
    return kwargs, envelope
