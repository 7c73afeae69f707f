"""The executor port over Slurm: arrays out, completion files in, one look for all that is in flight.

Jobs live on when this process ends. Whoever drives the run next finds them by the ledger and goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from dagkit.errors import BackendError, ConfigError, UsageError
from dagkit.executors.books import Books, Library
from dagkit.executors.reports import failure, stop_text
from dagkit.executors.slurm.adoption import adopt
from dagkit.executors.slurm.commands import Commands
from dagkit.executors.slurm.elements import Elements
from dagkit.executors.slurm.outbox import Outbox
from dagkit.executors.slurm.probe import submit_limit
from dagkit.executors.slurm.quota import Quota
from dagkit.executors.slurm.request import Request, SlurmQueue, request_of
from dagkit.executors.slurm.submitter import Answer, Submitter
from dagkit.executors.slurm.tracker import Tracker
from dagkit.executors.slurm.watch import Patience, Watch
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store

__all__ = ["SlurmExecutor"]

log = logging.getLogger("dagkit.executors.slurm")

_MAX_ARRAY: Final = 1000
_RENEW_S: Final = 30.0
_KEEP_S: Final = 7 * 86_400.0


class SlurmExecutor:
    """Runs tasks as jobs of Slurm. Used by one thread, except `interrupt`.

    Args:
        store: Where outputs and logs go; jobs must be able to open it too.
        queues: Settings by queue; `default` for queues that are not named.
        folder: For spools and the logs of jobs, on a file system that the nodes share with this machine.
        ledgers: For the ledgers, on a local disk; default: beside the spools, or in /var/tmp if that is a network.
    """

    name = "slurm"
    reports_start = True
    lives_on = True

    def __init__(
        self,
        store: Store,
        *,
        folder: Path,
        queues: Mapping[str, SlurmQueue] | None = None,
        default: SlurmQueue | None = None,
        ledgers: Path | None = None,
        patience: Patience | None = None,
        commands: Commands | None = None,
        owner: str = "dagkit",
    ) -> None:
        self._store, self._queues, self._default = store, dict(queues or {}), default or SlurmQueue()
        self._patience = patience or Patience()
        self._commands = commands or Commands()
        self._library = Library(folder.absolute(), ledgers, owner)
        self._elements = Elements()
        self._outbox = Outbox(self._elements)
        self._submitter = Submitter(store.url, self._commands, self._elements)
        self._tracker = Tracker(store, self._library, self._elements, self._outbox, self._submitter, self._patience)
        self._bell, self._is_interrupted = threading.Event(), False
        self._watch = Watch(self._commands, self._patience, self._bell.set)
        self._quotas: dict[str, Quota] = {}
        self._requests: dict[tuple[str, str, str, int | None], Request] = {}
        self._again: list[TaskMessage] = []
        self._collecting_since: float | None = None
        self._next_renewal = 0.0

    # --- the port: out

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        """Take what the queues have room for, after a moment in which more may become ready; see the port."""
        fresh = [place for place, message in enumerate(messages) if not self._is_carried(message)]
        if not fresh:
            return len(messages)
        if self._is_collecting(len(fresh)):
            return fresh[0]
        taken = len(messages)
        for (_, request), places in self._grouped(messages, fresh).items():
            sent = self._send(request, [messages[place] for place in places], may_raise=taken == len(messages))
            if sent < len(places):
                taken = min(taken, places[sent])
        return taken

    def _is_carried(self, message: TaskMessage) -> bool:
        """Whether a job has it already, by this process or by one before."""
        self._books(message.workflow_id)
        attempt = self._elements.attempts.get(message.key)
        if attempt is not None:
            attempt.message = message
        return attempt is not None

    def _is_collecting(self, count: int) -> bool:
        now = time.monotonic()
        if self._collecting_since is None:
            self._collecting_since = now
        if count < _MAX_ARRAY and now - self._collecting_since < self._patience.collect_s:
            return True
        self._collecting_since = None
        return False

    def _grouped(self, messages: Sequence[TaskMessage], places: Iterable[int]) -> dict[tuple[str, Request], list[int]]:
        """Places by run and request; a task whose request cannot be made fails at once."""
        groups: dict[tuple[str, Request], list[int]] = {}
        for place in places:
            message = messages[place]
            try:
                request = self._request(message)
            except UsageError as error:
                self._outbox.add(failure(message, str(error), FailureKind.CONFIG))
                continue
            groups.setdefault((message.workflow_id, request), []).append(place)
        return groups

    def _request(self, message: TaskMessage) -> Request:
        key = (message.queue, message.template or message.task, repr(message.resources), message.timeout_s)
        request = self._requests.get(key)
        if request is None:
            if len(self._requests) > 10_000:
                self._requests.clear()
            settings = self._queues.get(message.queue, self._default)
            request = self._requests[key] = request_of(message, settings)
        return request

    def _send(self, request: Request, messages: Sequence[TaskMessage], *, may_raise: bool = False) -> int:
        """Submit from the front, in as few arrays as the limits allow; how many were dealt with."""
        sent, pack, quota = 0, request.pack, self._quota(request.queue)
        while sent < len(messages):
            active = self._elements.active.get(request.queue, 0)
            allowed = quota.allowed(-(-(len(messages) - sent) // pack), active)
            part = messages[sent : sent + allowed * pack]
            if not part:
                break
            try:
                answer = self._submitter.submit(self._books(part[0].workflow_id), request, part)
            except ConfigError as error:
                self._outbox.add(*(failure(message, str(error), FailureKind.CONFIG) for message in messages[sent:]))
                return len(messages)
            except BackendError as error:
                if may_raise and sent == 0:
                    raise
                log.warning("%s", error)
                break
            if answer is Answer.TAKEN:
                quota.accepted(-(-len(part) // pack))
                sent += len(part)
            elif not quota.refused(-(-len(part) // pack), active):
                break
        if sent:
            self._watch.hasten()
        return sent

    def _quota(self, queue: str) -> Quota:
        if queue not in self._quotas:
            settings = self._queues.get(queue, self._default)
            limit = settings.submit_limit or submit_limit(self._commands, settings.account, settings.qos)
            self._quotas[queue] = Quota(limit, settings.max_array or self._max_array)
        return self._quotas[queue]

    @cached_property
    def _max_array(self) -> int:
        """Most elements of an array, by the cluster's own limit."""
        try:
            found = self._commands.max_array_size()
        except BackendError as error:
            log.warning("the cluster's MaxArraySize is not known: %s", error)
            found = None
        return max(1, min(found - 1, 10 * _MAX_ARRAY)) if found else _MAX_ARRAY

    def capacity(self) -> int | None:
        """Room by the submit limits; None as long as a queue has none that is known."""
        if self._collecting_since is not None and not self._has_collected():
            return 0
        rooms = [quota.room(self._elements.active.get(queue, 0)) for queue, quota in self._quotas.items()]
        known = [room for room in rooms if room is not None]
        if not rooms or len(known) < len(rooms):
            return None
        pack = max([self._default.pack, *(queue.pack for queue in self._queues.values())])
        return sum(known) * pack

    # --- the port: back

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """What happened since the last poll; see the port."""
        deadline = time.monotonic() + wait_s
        while True:
            self._bell.clear()
            self._tend()
            left_s = deadline - time.monotonic()
            if self._outbox or left_s <= 0 or self._is_interrupted or self._has_collected():
                self._is_interrupted = False
                return self._outbox.take()
            self._bell.wait(min(left_s, self._pause_s()))

    def _has_collected(self) -> bool:
        """Whether tasks that wait for others to become ready have waited long enough."""
        since = self._collecting_since
        return since is not None and time.monotonic() - since >= self._patience.collect_s

    def _pause_s(self) -> float:
        """Until something is due."""
        now = time.monotonic()
        dues = [self._tracker.files_due - now, *(quota.opens_in_s for quota in self._quotas.values())]
        if self._collecting_since is not None:
            dues.append(self._collecting_since + self._patience.collect_s - now)
        return max(0.01, min(dues))

    def _tend(self) -> None:
        now = time.monotonic()
        if now >= self._next_renewal:
            self._next_renewal = now + _RENEW_S
            self._mind_books()
        if not self._elements.attempts and not self._again:
            return
        if now >= self._tracker.files_due:
            self._tracker.take_arrivals()
        look = self._watch.take()
        if look is not None:
            self._again += self._tracker.take_look(look)
        self._tracker.judge()
        self._cancel_stopped()
        self._send_again()
        self._watch.begin({element.number for element in self._elements.gone}, self._elements.unanswered.keys())

    def _mind_books(self) -> None:
        """Keep the books of runs in which something is going on; close the others, which open again when needed."""
        for workflow_id, books in list(self._library.open.items()):
            if self._elements.runs[workflow_id] > 0 or self._outbox.unsaved[workflow_id] > 0:
                books.renew()
            else:
                self._library.close_one(workflow_id)

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """These are saved; see the port."""
        self._outbox.acknowledge(completions)

    def _send_again(self) -> None:
        if not self._again:
            return
        messages, self._again = self._again, []
        for (_, request), places in self._grouped(messages, range(len(messages))).items():
            group = [messages[place] for place in places]
            self._again += group[self._send(request, group) :]

    # --- stopping

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        """Stop these attempts. A job of which others are still wanted goes on; what it says of these is ignored."""
        waiting = [message for message in self._again if message.key in keys]
        self._again = [message for message in self._again if message.key not in keys]
        self._outbox.add(*(failure(message, stop_text(message, kind), kind) for message in waiting))
        for key in keys:
            attempt = self._elements.attempts.get(key)
            if attempt is not None and attempt.stop is None:
                attempt.stop = kind
                self._elements.stopped.add(attempt)
        self._bell.set()

    def _cancel_stopped(self) -> None:
        if not self._elements.stopped:
            return
        now, due = time.monotonic(), []
        for element in {attempt.element for attempt in self._elements.stopped}:
            if not all(attempt.stop is not None for attempt in element.attempts.values()):
                self._tracker.drop_stopped(element)
            elif element.id is not None and now >= element.cancel_at:
                due.append(element)
        if not due:
            return
        again_s = self._patience.stop_s
        try:
            self._commands.scancel([element.id or "" for element in due])
        except BackendError as error:
            again_s = min(again_s, self._patience.look_s)
            log.warning("jobs could not be cancelled, trying again in %.0f s: %s", again_s, error)
        for element in due:
            element.is_cancelled, element.cancel_at = True, now + again_s
        self._watch.hasten()

    # --- after a restart

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """Adopt what the ledgers and the spools say Slurm has; what none knows was never submitted: it is lost."""
        lost = []
        for message in running:
            if not self._is_carried(message):
                text = "no Slurm job is known for this attempt, neither by the ledger nor by the spool"
                lost.append(failure(message, text, FailureKind.LOST))
        self._watch.hasten()
        return lost

    def _books(self, workflow_id: str) -> Books:
        """The books of a run; what they say is in flight is taken over when they are opened."""
        books = self._library.open.get(workflow_id)
        if books is not None:
            return books
        books = self._library.of(workflow_id)
        adopt(books, self._store, workflow_id)
        books.ledger.forget(_KEEP_S)
        for submission in books.ledger.open():
            pack = int(submission.detail.get("pack", 1))
            self._elements.add(submission, pack, [None] * (1 + max(m.position for m in submission.members)))
            if submission.job_id is not None:
                self._elements.answered(submission, submission.job_id)
        if self._store.cancel_requested([workflow_id]):
            self.cancel(
                [key for key in self._elements.attempts if key.workflow_id == workflow_id], FailureKind.CANCELLED
            )
        return books

    # --- the rest of the port

    def interrupt(self) -> None:
        """Make a waiting `poll` return. Thread-safe."""
        self._is_interrupted = True
        self._bell.set()

    def close(self, grace_s: float = 5.0) -> None:
        """Stop looking; jobs go on, but for those that were to be stopped."""
        self._cancel_stopped()
        self._watch.close()
        self._library.close()
