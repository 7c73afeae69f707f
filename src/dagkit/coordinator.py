"""The coordinator: the only writer of run state. Takes completions, advances the DAG, dispatches, saves, acknowledges.

One step is: poll completions, apply them, choose ready tasks, submit them, save, acknowledge. Saves happen in a thread of
their own, one at a time for each run, with as many changes as arrived while the last one was in flight (group commit), so a
hop along a chain does not wait for a disk. A completion is acknowledged only after the save that contains it.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dagkit.drive import Drive
from dagkit.errors import BackendError, DagkitError, LeaseLost, RunBusy, StateConflict
from dagkit.executors.base import Executor
from dagkit.model.messages import AttemptKey, Completion, Started
from dagkit.model.states import FailureKind, RunStatus
from dagkit.saver import Saver
from dagkit.stores.base import Lease, Store

__all__ = ["Coordinator", "Settings", "is_owner_dead", "owner_words"]

log = logging.getLogger("dagkit.coordinator")

SERVICE_LEASE = "coordinator"


@dataclass(frozen=True)
class Settings:
    """How a coordinator paces itself. Times in seconds; the defaults of the first five are ai4s-jobq's (facts: jobq 9)."""

    idle_sleep_s: float = 0.5
    cancel_poll_interval_s: float = 1.0
    flush_retry_limit: int = 2
    running_timeout_s: float | None = None
    lease_ttl_s: float = 60.0
    discovery_interval_s: float = 0.5
    save_backoff_s: tuple[float, ...] = (0.2, 1.0, 3.0)
    close_grace_s: float = 5.0


@dataclass
class Counters:
    """What a coordinator has done since it started."""

    steps: int = 0
    completions: int = 0
    ignored: int = 0
    orphans: int = 0
    conflicts: int = 0
    dispatched: int = 0
    timed_out: int = 0
    saves: int = 0


def make_owner(role: str) -> str:
    """`notebook (host-a) #1234.567`: who holds a lease, for people before the `#`, for `is_owner_dead` after it."""
    return f"{role} ({platform.node()}) #{os.getpid()}.{_start_time(os.getpid())}"


def owner_words(owner: str) -> str:
    """The part of an owner that people read."""
    return owner.split(" #", 1)[0]


def is_owner_dead(owner: str) -> bool:
    """Whether the holder of a lease ran on this host and is certainly gone."""
    words, _, process = owner.partition(" #")
    pid, _, started = process.partition(".")
    if not pid.isdigit() or f"({platform.node()})" not in words:
        return False
    return _start_time(int(pid)) != started


def _start_time(pid: int) -> str:
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""


class Coordinator:
    """Drives runs of one store. Owns two threads (`start()`): the loop and the saver; `close()` joins both.

    Args:
        store: Where the runs live.
        route: The executor for a queue. Executors are polled by the loop's thread only, and closed by whoever made them.
        role: For people: `notebook`, `script`, `coordinator`.
    """

    def __init__(
        self,
        store: Store,
        route: Callable[[str], Executor],
        *,
        role: str = "coordinator",
        settings: Settings | None = None,
        discover: bool = False,
    ) -> None:
        self.store, self.settings, self.counters = store, settings or Settings(), Counters()
        self.owner = make_owner(role)
        self._route_of, self._discover = route, discover
        self._executors: dict[str, Executor] = {}
        self._drives: dict[str, Drive] = {}
        self._outcomes: dict[str, Future[RunStatus]] = {}
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._saver = Saver(store, self._wake)
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._service_lease: Lease | None = None
        self._clock_offset = time.time() - time.monotonic()
        self._next_cancel_poll = self._next_lease = self._next_discovery = 0.0

    # --- for any thread

    def start(self) -> Coordinator:
        """Run the loop in a daemon thread; returns self."""
        self._thread = threading.Thread(target=self._loop, name="dagkit-coordinator", daemon=True)
        self._thread.start()
        return self

    def drive(self, workflow_id: str) -> Future[RunStatus]:
        """Take over a run; the future ends with the run's final status once that is saved, or with what stopped the drive.

        Raises `RunBusy` if a living coordinator drives it, `UnknownRun`, `BackendError`.
        """
        if workflow_id in self._outcomes and not self._outcomes[workflow_id].done():
            return self._outcomes[workflow_id]
        return self.call(lambda: self._begin(workflow_id))

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the loop's thread between two steps and return what it returns."""
        if self._thread is None or threading.current_thread() is self._thread:
            return function()
        future: Future[Any] = Future()
        self._calls.append((function, future))
        self._wake()
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    raise RunBusy("the coordinator in this process has stopped; run it again") from None

    def state_call(self, workflow_id: str, change: Callable[[Drive], Any]) -> Any:
        """Apply `change` to the state of a run that this coordinator drives; returns what it returns."""

        def apply() -> Any:
            drive = self._drives.get(workflow_id)
            if drive is None:
                raise RunBusy(f"run {workflow_id} is not driven by this process any more")
            return change(drive)

        return self.call(apply)

    def is_driving(self, workflow_id: str) -> bool:
        outcome = self._outcomes.get(workflow_id)
        return outcome is not None and not outcome.done()

    @property
    def is_idle(self) -> bool:
        return not self._drives and not self._calls

    def look_at_cancels(self) -> None:
        """Look for cancel requests now rather than at the next interval."""
        self._next_cancel_poll = 0.0
        self._wake()

    def close(self) -> None:
        """Finish the step, hand back what runs here, save, release the leases and join the threads. Safe to call twice."""
        self._stopping.set()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._saver.close()

    # --- the loop

    def serve(self, stop: threading.Event) -> None:
        """Serve in this thread until `stop` is set: wait for the service lease, then find and drive every run of the store."""
        self._stopping = stop
        self._loop()
        self._saver.close()

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._discover and not self._hold_service_lease():
                    self._stopping.wait(self.settings.idle_sleep_s)
                    continue
                self.step(self._patience())
            self._hand_back()
        except BaseException as error:
            log.exception("the coordinator stopped")
            for drive in list(self._drives.values()):
                self._stop_driving(drive, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._release_leases()

    def step(self, wait_s: float = 0.0) -> None:
        """One step over all driven runs; waits at most `wait_s` for something to happen."""
        self.counters.steps += 1
        self._run_calls()
        reports = self._poll(wait_s)
        now = self.now()
        for report in reports:
            self._take(report, now)
        self._run_calls()
        self._housekeeping(now)
        for drive in self._in_turn():
            try:
                self._advance(drive, now)
            except DagkitError as error:
                self._stop_driving(drive, error)
        self._settle_saves()

    def now(self) -> float:
        """Seconds since the epoch, immune to jumps of the wall clock while this process lives."""
        return time.monotonic() + self._clock_offset

    def _patience(self) -> float:
        if self._calls:
            return 0.0
        waits = [self.settings.idle_sleep_s]
        now = self.now()
        for drive in self._drives.values():
            due = drive.state.next_due()
            if due is not None:
                waits.append(max(0.0, due - now))
        return min(waits)

    def _wake(self) -> None:
        self._changed.set()
        for executor in tuple(self._executors.values()):
            executor.interrupt()

    def _run_calls(self) -> None:
        while self._calls:
            function, future = self._calls.popleft()
            try:
                future.set_result(function())
            except BaseException as error:  # it belongs to the caller, who gets it from the future
                future.set_exception(error)

    def _poll(self, wait_s: float) -> list[Completion | Started]:
        executors = self._distinct_executors()
        if len(executors) == 1:
            return self._poll_one(executors[0], wait_s)
        deadline = time.monotonic() + wait_s
        pause = 0.001
        while True:
            reports = [report for executor in executors for report in self._poll_one(executor, 0.0)]
            left = deadline - time.monotonic()
            if reports or left <= 0:
                return reports
            if self._changed.wait(min(pause, left)):
                self._changed.clear()
                return reports
            pause = min(0.05, pause * 1.5)

    def _poll_one(self, executor: Executor, wait_s: float) -> list[Completion | Started]:
        try:
            return executor.poll(wait_s)
        except BackendError as error:
            log.warning("%s: %s", executor.name, error)
            self._stopping.wait(min(1.0, self.settings.idle_sleep_s))
            return []

    def _take(self, report: Completion | Started, now: float) -> None:
        drive = self._drives.get(report.workflow_id)
        if isinstance(report, Started):
            if drive is not None:
                drive.state.started(report, now)
            return
        if drive is None:
            self.counters.orphans += 1
            self._executor_of_orphan(report)
            return
        self.counters.completions += 1
        if not drive.take(report, now):
            self.counters.ignored += 1

    def _executor_of_orphan(self, report: Completion) -> None:
        for executor in self._distinct_executors():
            executor.acknowledge([report])

    def _in_turn(self) -> list[Drive]:
        """Every drive, a different one first each step, so that none starves another of room."""
        drives = list(self._drives.values())
        if len(drives) < 2:
            return drives
        first = self.counters.steps % len(drives)
        return drives[first:] + drives[:first]

    def _advance(self, drive: Drive, now: float) -> None:
        expired = drive.state.expire(now)
        if expired:
            self.counters.timed_out += len(expired)
            self._stop_attempts(drive, expired, FailureKind.TIMEOUT)
        if drive.is_stopping:
            return
        self.counters.dispatched += drive.dispatch(now, self._executor)
        if not drive.is_saving and drive.has_changes():
            self._saver.save(drive)
            self.counters.saves += 1

    def _stop_attempts(self, drive: Drive, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        by_executor: dict[int, tuple[Executor, list[AttemptKey]]] = {}
        for key in keys:
            executor = self._executor(drive.queue_of(key.task))
            by_executor.setdefault(id(executor), (executor, []))[1].append(key)
        for executor, concerned in by_executor.values():
            executor.cancel(concerned, kind)

    # --- saves

    def _settle_saves(self) -> None:
        for drive, error in self._saver.results():
            if error is None:
                self._acknowledge(drive)
                if not drive.has_changes() and drive.state.is_over and drive.is_over_when_saved:
                    self._finish(drive)
            elif isinstance(error, StateConflict):
                self._resolve_conflict(drive)
            else:
                self._stop_driving(drive, error)

    def _acknowledge(self, drive: Drive) -> None:
        saved = drive.saved_completions()
        if not saved:
            return
        by_executor: dict[int, tuple[Executor, list[Completion]]] = {}
        for completion in saved:
            executor = self._executor(drive.queue_of(completion.task))
            by_executor.setdefault(id(executor), (executor, []))[1].append(completion)
        for executor, completions in by_executor.values():
            executor.acknowledge(completions)

    def _resolve_conflict(self, drive: Drive) -> None:
        self.counters.conflicts += 1
        drive.conflicts += 1
        if drive.conflicts > self.settings.flush_retry_limit + 1:
            self._stop_driving(drive, StateConflict(drive.workflow_id))
            return
        drive.reload(self.store, self.now())

    def _finish(self, drive: Drive) -> None:
        del self._drives[drive.workflow_id]
        self._release(drive)
        self._outcomes[drive.workflow_id].set_result(drive.state.status)

    def _stop_driving(self, drive: Drive, error: BaseException) -> None:
        if self._drives.pop(drive.workflow_id, None) is None:
            return
        try:
            self._stop_attempts(drive, drive.in_flight(), FailureKind.PREEMPTED)
        except DagkitError as second:
            log.warning("run %s: %s", drive.workflow_id, second)
        self._release(drive)
        self._outcomes[drive.workflow_id].set_exception(error)

    # --- taking over and letting go

    def _begin(self, workflow_id: str) -> Future[RunStatus]:
        if workflow_id in self._drives:
            return self._outcomes[workflow_id]
        lease = self._acquire(f"run/{workflow_id}")
        try:
            drive = Drive.load(self.store, workflow_id, lease, self.now(), self._starts_reported)
            self._recover(drive)
        except BaseException:
            self.store.release_lease(lease)
            raise
        outcome: Future[RunStatus] = Future()
        self._drives[workflow_id], self._outcomes[workflow_id] = drive, outcome
        if drive.state.cancel_requested and not drive.state.is_over:
            self._cancel(drive)
        if drive.state.is_over and not drive.has_changes():
            self._finish(drive)
        return outcome

    def _acquire(self, name: str) -> Lease:
        lease = self.store.acquire_lease(name, self.owner, self.settings.lease_ttl_s)
        if lease is not None:
            return lease
        holder = self.store.lease(name)
        if holder is not None and is_owner_dead(holder.owner):
            self.store.break_lease(name)
        lease = self.store.acquire_lease(name, self.owner, self.settings.lease_ttl_s)
        if lease is not None:
            return lease
        by = owner_words(holder.owner) if holder else "another process"
        raise RunBusy(
            f"{name.removeprefix('run/')} is driven by {by}; look at it with dagkit.attach, or wait for it to end"
        )

    def _recover(self, drive: Drive) -> None:
        running = drive.running_messages()
        by_executor: dict[int, tuple[Executor, list[Any]]] = {}
        for message in running:
            executor = self._executor(message.queue)
            by_executor.setdefault(id(executor), (executor, []))[1].append(message)
        for executor, messages in by_executor.values():
            for lost in executor.recover(messages):
                drive.take(lost, self.now())

    def _executor(self, queue: str) -> Executor:
        executor = self._executors.get(queue)
        if executor is None:
            executor = self._executors[queue] = self._route_of(queue)
        return executor

    def _starts_reported(self, queue: str) -> bool:
        return self._executor(queue).reports_start

    def _distinct_executors(self) -> list[Executor]:
        if len(self._executors) < 2:
            return list(self._executors.values())
        return list({id(executor): executor for executor in self._executors.values()}.values())

    def _hand_back(self) -> None:
        """Stop what would be lost, take the last completions, save; what was running goes back to ready at no cost."""
        for drive in self._drives.values():
            drive.is_stopping = True
        flight = {key for drive in self._drives.values() for key in drive.in_flight()}
        for executor in self._distinct_executors():
            executor.cancel([key for key in flight], FailureKind.PREEMPTED)
        deadline = time.monotonic() + self.settings.close_grace_s
        while any(drive.in_flight() for drive in self._drives.values()) and time.monotonic() < deadline:
            for report in self._poll(0.05):
                self._take(report, self.now())
        for drive in list(self._drives.values()):
            self._save_last(drive)

    def _save_last(self, drive: Drive) -> None:
        self._saver.wait_for(drive)
        self._settle_saves()
        if drive.workflow_id not in self._drives:
            return
        if drive.has_changes():
            self._saver.save(drive)
            self._saver.wait_for(drive)
            self._settle_saves()
        if drive.workflow_id in self._drives:
            del self._drives[drive.workflow_id]
            self._release(drive)
            self._outcomes[drive.workflow_id].cancel()

    # --- housekeeping

    def _housekeeping(self, now: float) -> None:
        if now >= self._next_cancel_poll and self._drives:
            self._next_cancel_poll = now + self.settings.cancel_poll_interval_s
            self._poll_cancels()
        if now >= self._next_lease:
            self._next_lease = now + self.settings.lease_ttl_s / 4
            self._renew_leases()
        if self._discover and now >= self._next_discovery:
            self._next_discovery = now + self.settings.discovery_interval_s
            self._find_runs()

    def _poll_cancels(self) -> None:
        candidates = [
            i for i, drive in self._drives.items() if not drive.state.cancel_requested and not drive.state.is_over
        ]
        if not candidates:
            return
        try:
            requested = self.store.cancel_requested(candidates)
        except BackendError as error:
            log.warning("cannot look for cancel requests: %s", error)
            return
        for workflow_id in requested:
            self._cancel(self._drives[workflow_id])

    def _cancel(self, drive: Drive) -> None:
        drive.state.request_cancel(self.now())
        self._stop_attempts(drive, drive.in_flight(), FailureKind.CANCELLED)

    def _renew_leases(self) -> None:
        for drive in list(self._drives.values()):
            try:
                drive.lease = self.store.renew_lease(drive.lease, self.settings.lease_ttl_s)
            except LeaseLost as error:
                self._stop_driving(drive, error)
            except BackendError as error:
                log.warning("run %s: cannot renew its lease: %s", drive.workflow_id, error)
        if self._service_lease is not None:
            self._service_lease = self._renewed(self._service_lease)

    def _renewed(self, lease: Lease) -> Lease | None:
        try:
            return self.store.renew_lease(lease, self.settings.lease_ttl_s)
        except LeaseLost:
            log.warning("another coordinator has taken over; standing by")
            for drive in list(self._drives.values()):
                self._stop_driving(drive, LeaseLost("another coordinator has taken over"))
            return None
        except BackendError as error:
            log.warning("cannot renew the lease: %s", error)
            return lease

    def _hold_service_lease(self) -> bool:
        if self._service_lease is None:
            try:
                self._service_lease = self._acquire(SERVICE_LEASE)
            except (RunBusy, BackendError) as error:
                log.debug("standing by: %s", error)
        return self._service_lease is not None

    def _find_runs(self) -> None:
        active = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLING)
        try:
            rows = self.store.rows(status=active)
        except BackendError as error:
            log.warning("cannot list runs: %s", error)
            return
        for row in rows:
            if row.workflow_id not in self._drives:
                self._try_to_drive(row.workflow_id)

    def _try_to_drive(self, workflow_id: str) -> None:
        try:
            self._begin(workflow_id)
        except RunBusy:
            pass
        except DagkitError as error:
            log.warning("run %s: %s", workflow_id, error)

    def _release(self, drive: Drive) -> None:
        try:
            self.store.release_lease(drive.lease)
        except DagkitError as error:
            log.warning("run %s: cannot release its lease: %s", drive.workflow_id, error)

    def _release_leases(self) -> None:
        if self._service_lease is not None:
            try:
                self.store.release_lease(self._service_lease)
            except DagkitError as error:
                log.warning("cannot release the lease: %s", error)
            self._service_lease = None
