"""The worker's loop: feeds an executor with the messages of one queue and reports what became of them."""

from __future__ import annotations

import logging
import os
import platform
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dagkit.errors import BackendError
from dagkit.executors.base import Executor
from dagkit.executors.queued import completion_queue_name
from dagkit.model.messages import AttemptKey, Completion, PoisonMessage, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.queues.base import Delivery, Transport
from dagkit.settings import WorkerSettings
from dagkit.stores.base import Store
from dagkit.worker import ordinary, signals
from dagkit.worker.evictions import Evictions
from dagkit.worker.intake import Intake
from dagkit.worker.locks import Held, LockKeeper
from dagkit.worker.outbox import Outbox
from dagkit.worker.overtime import Overtime
from dagkit.worker.verdicts import Verdicts

__all__ = ["Outcome", "Worker"]

log = logging.getLogger(__name__)

_POLL_S = 0.25
_STOP_S = 10.0
_NEVER_S = 1e9
_LATER_S = 1.0
_REMOTE = ("azure:", "sb:")
_REMOTE_IDLE_BACKOFF_S = 30.0
_REMOTE_CANCEL_POLL_S = 30.0
_LOCAL_CANCEL_POLL_S = 2.0
_ORDINARY_MAX_FAILURES = 2


@dataclass(frozen=True)
class Outcome:
    """Why a worker stopped. `failed` if it did so because its tasks failed one after the other."""

    reason: str
    failed: bool
    counters: Counter[str]


class _Phase(Enum):
    SERVING = "serving"
    FINISHING = "finishing what runs"
    DRAINING = "waiting for what runs"
    STOPPING = "stopping what runs"
    KILLING = "killing what runs"
    RESTING = "waiting for this machine to go away"


class Worker:
    """Serves one queue until it is told to stop, has been idle for too long, or fails every task it touches.

    SIGTERM takes no new work, gives running tasks the grace to finish and returns the rest to the queue as the same
    attempt. SIGINT does that without the grace. A second one kills. SIGUSR1 finishes what runs, however long it takes.

    Args:
        executor: Runs the tasks; a `LocalExecutor` with `settings.slots` slots if None. Closed by `run`.
    """

    def __init__(
        self,
        queue: str,
        store: Store,
        transport: Transport,
        settings: WorkerSettings | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.counters: Counter[str] = Counter()
        self.name = f"{platform.node()}:{os.getpid()}"
        self._store, self._queue = store, transport.open(queue)
        self._executor = executor or _local_executor(store, self.settings)
        self._held: dict[AttemptKey, Held] = {}
        self._backlog: list[TaskMessage] = []
        self._lost: list[Held] = []
        self._overtime = Overtime()
        self._returning: set[AttemptKey] = set()
        self._phase, self._deadline, self._reason = _Phase.SERVING, 0.0, ""
        self._signals: list[int] = []
        self._failures, self._failed = 0, False
        self._began = self._idle_since = time.monotonic()
        self._rest_until: float | None = None
        self._verdicts = Verdicts(store, _cancel_poll(self.settings, store))
        self._keeper = LockKeeper(
            self._queue,
            self.settings.lock_s,
            self._lock_lost,
            lambda ttl_s: transport.register_worker(queue, self.name, ttl_s),
        )
        self._outbox = Outbox(
            self._queue,
            transport.open(completion_queue_name(store.url)),
            self._keeper,
            self.settings.completion_attempts,
            self._released,
            self.counters,
            store.put_output,
        )
        self._is_remote = transport.url.startswith(_REMOTE)
        self._jobs = ordinary.FailedJobs(self._queue, transport, self._outbox)
        self._intake = Intake(
            self._queue, self.settings.lock_s, self._executor.interrupt, _idle_backoff(self.settings, transport)
        )

    # --- the loop

    def run(self) -> Outcome:
        """Serve until there is a reason to stop. In the main thread, signals are handled meanwhile."""
        with signals.collected(self._signals):
            evictions = self._watch_for_eviction()
            self._keeper.start()
            self._intake.start()
            try:
                while not self._is_done():
                    self._step()
            finally:
                if evictions is not None:
                    evictions.close()
                self._close()
        return Outcome(self._reason, self._failed, self.counters)

    @property
    def is_finishing(self) -> bool:
        """Whether it takes nothing new and ends with what it has."""
        return self._phase not in (_Phase.SERVING, _Phase.RESTING)

    def stop(self) -> None:
        """What SIGTERM does, for callers in another thread."""
        self._signals.append(signal.SIGTERM)
        self._executor.interrupt()

    def _watch_for_eviction(self) -> Evictions | None:
        if not self._is_remote or self.settings.disable_scheduled_events:
            return None

        def drain(notice: str) -> None:
            log.warning("%s", notice)
            self.stop()

        return Evictions(drain)

    def _step(self) -> None:
        self._mind_signals()
        self._take()
        self._submit()
        self._outbox.flush()
        for report in self._executor.poll(_POLL_S):
            self._note(report)
        self._stop_lost()
        self._stop_overdue()
        self._watch()
        self._outbox.flush()
        self._open_room()
        self._mind_the_time()

    def _is_done(self) -> bool:
        if self._phase in (_Phase.SERVING, _Phase.RESTING):
            return False
        # After the stop has taken too long, or on a second signal, what is left is killed by closing the executor.
        return (not self._held and not self._intake.waiting) or self._phase is _Phase.KILLING

    def _mind_the_time(self) -> None:
        now = time.monotonic()
        if self._held or self._intake.waiting:
            self._idle_since = now
        idle_s = self.settings.idle_timeout_s
        if self._phase is _Phase.SERVING and idle_s is not None and now - self._idle_since >= idle_s:
            self._finish(f"no task for {idle_s:g} s")
        limit_s = self.settings.time_limit_s
        if self._phase is _Phase.SERVING and limit_s is not None and now - self._began >= limit_s:
            self._finish(f"the time limit of {limit_s:g} s")
        if self._rest_until is not None and not self._held:
            self._rest(now, self._rest_until)
        elif self._phase is _Phase.DRAINING and now >= self._deadline:
            self._stop_tasks()
        elif self._phase is _Phase.STOPPING and now >= self._deadline:
            self._phase = _Phase.KILLING

    def _close(self) -> None:
        self._intake.close()
        self._give_back_unread()
        for report in self._executor.poll(0.0):
            self._note(report)
        self._executor.close(0.0 if self._phase is _Phase.KILLING else self.settings.grace_s)
        self._outbox.flush()
        for held in list(self._held.values()):
            self._outbox.give_back(held)
        self._keeper.close()
        self._intake.join(2.0)

    # --- messages in

    def _open_room(self) -> None:
        """Let the intake take what the executor could begin now: a message that waits here waits for nobody else."""
        capacity = self._executor.capacity()
        room = self.settings.slots - len(self._held) if capacity is None else capacity - len(self._backlog)
        if self._phase is _Phase.SERVING and room != self._intake.room:
            self._intake.allow(room)

    def _take(self) -> None:
        fresh = [held for delivery in self._intake.take() if (held := self._read(delivery)) is not None]
        if not fresh:
            return
        cancelled = self._verdicts.cancelled(fresh)
        for held in fresh:
            self._keeper.hold(held)
            self._held[held.key] = held
            if held.message.workflow_id in cancelled:
                self._report_failure(held, FailureKind.CANCELLED, "cancelled before it started")
            elif held.delivery.count > 1 and self._outbox.has_reported(held):
                self._outbox.delete([held])
            elif held.delivery.count > self.settings.max_deliveries or _is_last_chance(held.delivery):
                self._quarantine(held)
            elif held.delivery.count > 1 and self._verdicts.is_given_up(held):
                self._outbox.delete([held])
            else:
                self._backlog.append(held.message)

    def _read(self, delivery: Delivery) -> Held | None:
        try:
            held = ordinary.read(delivery, self._queue.name, self._store.get_output)
        except PoisonMessage as error:
            self.counters["poison"] += 1
            log.warning("deleted a message that cannot be read: %s", error)
            self._outbox.discard(delivery)
            return None
        except BackendError as error:
            log.warning("%s: %s", delivery.id, error)
            self._outbox.put_back([delivery], _LATER_S)
            return None
        if held.key in self._held:
            # The same attempt again, because its lock was lost or it was sent twice: not while the first one runs.
            self._outbox.put_back([delivery], _LATER_S)
            return None
        self.counters["taken"] += 1
        return held

    def _submit(self) -> None:
        if self._backlog and self._phase in (_Phase.SERVING, _Phase.FINISHING):
            taken = self._executor.submit(self._backlog)
            del self._backlog[:taken]

    def _quarantine(self, held: Held) -> None:
        times = held.delivery.count - 1
        often = f"{times} time{'' if times == 1 else 's'}"
        text = f"started {often} without ever ending: each time its worker died or was stopped"
        self._report_failure(held, FailureKind.USER, text)

    def _give_back_unread(self) -> None:
        waiting = self._intake.take()
        if waiting:
            self._outbox.put_back(waiting)

    # --- reports out

    def _note(self, report: Completion | Started) -> None:
        key = AttemptKey(report.workflow_id, report.task, report.generation or 0, report.attempt or 0)
        held = self._held.get(key)
        if held is None:
            return
        if isinstance(report, Started):
            self._overtime.begin(held.message, report)
            return
        if held.lost:
            self._released(held)
        elif key in self._returning and report.kind is FailureKind.PREEMPTED:
            self._outbox.give_back(held)
        else:
            self._ended(held, report)

    def _ended(self, held: Held, completion: Completion) -> None:
        self._executor.acknowledge([completion])
        self._count(held, completion)
        if held.is_ordinary:
            self._jobs.settle(held, completion)
        else:
            self._outbox.add(held, completion)

    def _report_failure(self, held: Held, kind: FailureKind, error: str) -> None:
        message = held.message
        self._outbox.add(
            held,
            Completion(
                message.workflow_id,
                message.task,
                False,
                error=error,
                attempt=message.attempt,
                generation=message.generation,
                kind=kind,
            ),
        )

    def _count(self, held: Held, completion: Completion) -> None:
        self.counters["succeeded" if completion.success else "failed"] += 1
        if completion.success:
            self._failures = 0
        elif completion.kind in (FailureKind.USER, FailureKind.CONFIG, None):
            self._failures += 1
        limit = self.settings.max_failures
        limit = min(limit, _ORDINARY_MAX_FAILURES) if held.is_ordinary else limit
        if limit and self._failures >= limit and self._phase is _Phase.SERVING:
            self._failed = True
            self._finish(
                f"{self._failures} tasks failed one after the other; the last: {_first_line(completion.error)}"
            )

    def _released(self, held: Held) -> None:
        self._held.pop(held.key, None)
        self._overtime.end(held.key)
        self._returning.discard(held.key)

    # --- tasks to stop

    def _lock_lost(self, held: Held) -> None:
        self._lost.append(held)
        self._executor.interrupt()

    def _stop_lost(self) -> None:
        while self._lost:
            held = self._lost.pop()
            self.counters["locks_lost"] += 1
            if held.message in self._backlog:
                self._backlog.remove(held.message)
                self._released(held)
            else:
                self._executor.cancel([held.key], FailureKind.LOST)

    def _stop_overdue(self) -> None:
        due = self._overtime.take_due(time.time())
        if due:
            self._executor.cancel(due, FailureKind.TIMEOUT)

    def _watch(self) -> None:
        """Look for cancelled runs and attempts that were given up, now and then."""
        if not self._held or not self._verdicts.is_due():
            return
        cancelled = self._verdicts.cancelled(self._held.values())
        keys = [key for key in self._held if key.workflow_id in cancelled]
        if keys:
            self._drop_waiting(keys, FailureKind.CANCELLED, "cancelled before it started")
            self._executor.cancel(keys, FailureKind.CANCELLED)
        others = [held for held in self._held.values() if held.message.workflow_id not in cancelled]
        given_up = [held.key for held in others if self._verdicts.is_given_up(held)]
        if given_up:
            self._executor.cancel(given_up, FailureKind.TIMEOUT)

    def _drop_waiting(self, keys: Sequence[AttemptKey], kind: FailureKind, error: str) -> None:
        for message in [message for message in self._backlog if message.key in keys]:
            self._backlog.remove(message)
            self._report_failure(self._held[message.key], kind, error)

    # --- stopping

    def _finish(self, reason: str) -> None:
        self._phase, self._reason = _Phase.FINISHING, self._reason or reason
        self._intake.close()
        self._give_back_unread()

    def _rest(self, now: float, until: float) -> None:
        """Everything has gone back after a SIGTERM: a machine that is still here by then was not taken away."""
        if self._phase is _Phase.RESTING and now >= until:
            log.info("still here %g s after SIGTERM: taking work again", self.settings.preemption_timeout_s)
            self._phase, self._rest_until, self._reason, self._idle_since = _Phase.SERVING, None, "", now
            self._intake.resume()
        elif self._phase in (_Phase.DRAINING, _Phase.STOPPING):
            self._phase = _Phase.RESTING

    def _drain(self, reason: str, grace_s: float, rest_s: float | None = None) -> None:
        if rest_s is None:
            self._finish(reason)
        else:
            self._reason, self._rest_until = reason, time.monotonic() + rest_s
            self._intake.pause()
            self._give_back_unread()
        for message in self._backlog:
            self._outbox.give_back(self._held[message.key])
        self._backlog.clear()
        self._phase, self._deadline = _Phase.DRAINING, time.monotonic() + grace_s

    def _stop_tasks(self) -> None:
        """The grace is over: SIGTERM what runs; its messages go back as it ends."""
        self._phase, self._deadline = _Phase.STOPPING, time.monotonic() + _STOP_S
        self._returning.update(self._held)
        self._executor.cancel(list(self._held), FailureKind.PREEMPTED)

    def _mind_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            name = signal.Signals(number).name
            log.info("%s while %s", name, self._phase.value)
            if number == signals.SIGUSR1:
                self._finish(name)
            elif self._phase is _Phase.SERVING and number == signal.SIGTERM:
                self._drain(name, self.settings.grace_s, self.settings.preemption_timeout_s)
            elif self._phase in (_Phase.SERVING, _Phase.FINISHING):
                self._drain(name, self.settings.grace_s if number == signal.SIGTERM else 0.0)
            elif self._phase is _Phase.DRAINING:
                self._rest_until = None
                self._stop_tasks()
            else:
                self._phase = _Phase.KILLING


def _local_executor(store: Store, settings: WorkerSettings) -> Executor:
    from dagkit.executors.local import LocalExecutor

    kill_timeout_s = settings.kill_timeout_s or _NEVER_S
    lost_kill_timeout_s = 0.0 if settings.lock_lost == "sigkill" else kill_timeout_s
    return LocalExecutor(
        store,
        slots=settings.slots,
        kill_timeout_s=kill_timeout_s,
        lost_kill_timeout_s=lost_kill_timeout_s,
        login_shell=settings.login_shell,
    )


def _idle_backoff(settings: WorkerSettings, transport: Transport) -> float:
    """Receiving from a local queue, or from Service Bus, waits by itself; asking Storage costs a request each time."""
    if settings.max_idle_backoff_s is not None:
        return settings.max_idle_backoff_s
    return _REMOTE_IDLE_BACKOFF_S if transport.url.startswith("azure:") else 0.0


def _cancel_poll(settings: WorkerSettings, store: Store) -> float:
    """Looking costs next to nothing in a file, and a request in a service."""
    if settings.cancel_poll_s is not None:
        return settings.cancel_poll_s
    return _REMOTE_CANCEL_POLL_S if store.url.startswith("azure:") else _LOCAL_CANCEL_POLL_S


def _first_line(text: str | None) -> str:
    return (text or "no message").partition("\n")[0]


def _is_last_chance(delivery: Delivery) -> bool:
    """Whether nobody would hear of the task again if this worker died too, as others did before."""
    return delivery.is_last and delivery.count > 1
