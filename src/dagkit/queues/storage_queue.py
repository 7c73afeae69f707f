"""Queues in an Azure storage account. The text is the message, as ai4s-jobq has it (facts: jobq 8.1)."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceExistsError

from dagkit.azure.account import find_account
from dagkit.azure.connection import Connection
from dagkit.azure.faults import code_of, speaking
from dagkit.azure.place import Place
from dagkit.errors import ConfigError
from dagkit.queues import message_text
from dagkit.queues.base import Delivery, OutMessage, Queue, QueueStats
from dagkit.queues.limits import check_sizes

__all__ = ["StorageQueue", "StorageQueueTransport"]

#: Put Message: "up to 64 KiB"; Get Messages: 32 at a time (Microsoft's Queue Storage REST reference).
MAX_TEXT_BYTES: Final = 65_536
MAX_PER_CALL: Final = 32

_NAME: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_LOST: Final = ("MessageNotFound", "PopReceiptMismatch")
_EXISTS: Final = ("QueueAlreadyExists",)
_FOR_EVER: Final = -1
_IN_ORDER: Final = 3
_THREADS: Final = 8
_SHORTEST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_PATIENCE: Final = 0.1


class StorageQueueTransport:
    """Queues of one storage account. Thread-safe; owns a few threads for calls that a service takes one by one.

    The service neither detects duplicates nor keeps the order, and has no place for workers.
    """

    def __init__(self, place: Place) -> None:
        self.url = place.url
        self._connection = Connection(find_account(place.account))
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="dagkit-queues")
        self._known: set[str] = set()

    def __repr__(self) -> str:
        return f"StorageQueueTransport({self.url!r})"

    def open(self, name: str) -> Queue:
        """As in `Transport`; `ConfigError` for a name that the service does not take."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"queue {name!r}: a storage queue is called by 3 to 63 lower-case letters, digits and single dashes"
            )
        if name not in self._known:
            self._create(name)
            self._known.add(name)
        return StorageQueue(name, self._connection, self._threads, self._closing)

    def _create(self, name: str) -> None:
        with speaking(self._connection.account, f"opening the queue {name}"):
            try:
                self._connection.queues.create_queue(name)
            except ResourceExistsError as error:
                if code_of(error) not in _EXISTS:
                    raise
            except HttpResponseError as error:
                if error.status_code != 403:  # whoever may only use queues finds out below whether this one is there
                    raise

    def names(self) -> list[str]:
        with speaking(self._connection.account, "listing queues"):
            return sorted(queue.name for queue in self._connection.queues.list_queues())

    def register_worker(self, queue: str, owner: str, ttl_s: float) -> None:
        """Nothing: the service has no place for it."""

    def workers(self, queue: str) -> list[str] | None:
        """None: the service does not know."""
        return None

    def check(self) -> list[tuple[str, str, str]]:
        """Nothing: the check of the store says it."""
        return []

    def close(self) -> None:
        """Wake whoever is waiting for a message, let calls in flight end. Repeatable."""
        self._closing.set()
        self._threads.shutdown()
        self._connection.close()


class StorageQueue:
    """One queue of a `StorageQueueTransport`."""

    max_text_bytes = MAX_TEXT_BYTES

    def __init__(
        self, name: str, connection: Connection, threads: ThreadPoolExecutor, closing: threading.Event
    ) -> None:
        self.name = name
        self._connection, self._threads, self._closing = connection, threads, closing
        self._client: Any = connection.queues.get_queue_client(name)
        self._last_message = self._next_look = time.monotonic()

    def __repr__(self) -> str:
        return f"StorageQueue({self.name!r})"

    def send_batch(self, messages: Sequence[OutMessage]) -> None:
        """As in `Queue`, several at a time where there are many: then their order is not kept."""
        check_sizes(messages, self.max_text_bytes)
        texts = [message_text.pack(message.text) for message in messages]
        check_sizes([OutMessage(m.id, text) for m, text in zip(messages, texts, strict=True)], self.max_text_bytes)
        self._all(self._send, texts, f"sending to {self.name}")

    def _send(self, text: str) -> None:
        self._client.send_message(text, time_to_live=_FOR_EVER)

    def receive(self, max_messages: int, wait_s: float, lock_s: float) -> list[Delivery]:
        """As in `Queue`. The service does not wait, so it is asked again and again, the less often the longer nothing
        has come."""
        deadline = time.monotonic() + wait_s
        while True:
            self._closing.wait(max(0.0, min(self._next_look, deadline) - time.monotonic()))
            if self._closing.is_set():
                return []
            if taken := self._take(max_messages, lock_s):
                self._last_message = self._next_look = time.monotonic()
                return taken
            now = time.monotonic()
            pause = _PATIENCE * (now - self._last_message)
            self._next_look = now + min(max(pause, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
            if now >= deadline:
                return []

    def _take(self, max_messages: int, lock_s: float) -> list[Delivery]:
        taken: list[Delivery] = []
        while (room := min(max_messages - len(taken), MAX_PER_CALL)) > 0:
            locked_until = time.monotonic() + lock_s
            with speaking(self._connection.account, f"receiving from {self.name}"):
                pages = self._client.receive_messages(messages_per_page=room, visibility_timeout=_seconds(lock_s))
                found = list(next(pages.by_page(), ()))
            taken += [_delivery(message, locked_until) for message in found]
            if len(found) < room:
                break
        return taken

    def complete(self, deliveries: Sequence[Delivery]) -> None:
        self._all(self._delete, deliveries, f"deleting from {self.name}")

    def _delete(self, delivery: Delivery) -> None:
        _unless_lost(lambda: self._client.delete_message(*delivery.receipt))

    def abandon(self, deliveries: Sequence[Delivery], delay_s: float = 0.0) -> None:
        delay = math.ceil(max(delay_s, 0.0))

        def give_back(delivery: Delivery) -> None:
            _unless_lost(lambda: self._client.update_message(*delivery.receipt, visibility_timeout=delay))

        self._all(give_back, deliveries, f"giving back to {self.name}")

    def extend(self, delivery: Delivery, lock_s: float) -> Delivery | None:
        """As in `Queue`. Also None if an answer was lost on the way: the receipt in it was the only one that holds."""
        locked_until = time.monotonic() + lock_s
        with speaking(self._connection.account, f"keeping a message of {self.name}"):
            renewed = _unless_lost(
                lambda: self._client.update_message(*delivery.receipt, visibility_timeout=_seconds(lock_s))
            )
        if renewed is None:
            return None
        receipt = (delivery.receipt[0], renewed.pop_receipt)
        return Delivery(delivery.id, delivery.text, receipt, locked_until, delivery.count)

    def stats(self) -> QueueStats:
        """As in `Queue`. The service counts all messages and shows the first 32 that wait: with more, those that are
        locked cannot be told from those that wait, and count as waiting."""
        with speaking(self._connection.account, f"looking at {self.name}"):
            total = self._client.get_queue_properties().approximate_message_count or 0
            seen = self._client.peek_messages(max_messages=MAX_PER_CALL)
        waiting = len(seen) if len(seen) < MAX_PER_CALL else total
        sent = [message.inserted_on.timestamp() for message in seen if message.inserted_on]
        age = max(0.0, self._connection.clock.now() - min(sent)) if sent else None
        return QueueStats(self.name, waiting, max(0, total - waiting), age)

    def close(self) -> None:
        """Nothing of its own to close: connections and threads belong to the transport."""

    def _all(self, call: Callable[[Any], None], items: Iterable[Any], doing: str) -> None:
        """The call for each item; the first failure, after all have been tried."""
        todo = list(items)
        if len(todo) <= _IN_ORDER:
            with speaking(self._connection.account, doing):
                for item in todo:
                    call(item)
            return
        futures = [self._threads.submit(call, item) for item in todo]
        failures = [error for future in futures if (error := future.exception()) is not None]
        with speaking(self._connection.account, doing):
            if failures:
                raise failures[0]


def _delivery(message: Any, locked_until: float) -> Delivery:
    text = message_text.unpack(message.content)
    receipt = (message.id, message.pop_receipt)
    return Delivery(message_text.id_in(text) or message.id, text, receipt, locked_until, message.dequeue_count)


def _unless_lost(call: Callable[[], Any]) -> Any:
    """What the call returns, or None if the message is gone or somebody else's."""
    try:
        return call()
    except HttpResponseError as error:
        if code_of(error) not in _LOST:
            raise
        return None


def _seconds(lock_s: float) -> int:
    return max(1, math.ceil(lock_s))
