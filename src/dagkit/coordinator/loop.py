"""The only writer of run state: takes completions, advances the DAG, dispatches, saves, acknowledges.

One step is: poll completions, apply them, choose ready tasks, submit them, save, acknowledge. Saves happen in a thread
of their own, one at a time for each run, with as many changes as arrived while the last one was in flight (group
commit), so a hop along a chain does not wait for a disk. A completion is acknowledged only after the save that contains
it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from dagkit.coordinator.drive import Drive, Prepare
from dagkit.coordinator.fleet import Fleet
from dagkit.coordinator.liveness import Pulse
from dagkit.coordinator.ownership import Leases, make_owner
from dagkit.coordinator.pace import Counters, Pace
from dagkit.coordinator.saver import Saver
from dagkit.coordinator.service import Service
from dagkit.engine.scaling import QueueLimits
from dagkit.errors import BackendError, DagkitError, LeaseLost, RunBusy, StateConflict, UnknownRun
from dagkit.executors.base import Executor
from dagkit.gc_pause import no_gc
from dagkit.model.messages import Completion, Started
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, RunStatus
from dagkit.stores.base import Store

if TYPE_CHECKING:
    from dagkit.coordinator.spans import Spans

__all__ = ["Coordinator"]

log = logging.getLogger("dagkit.coordinator")

_SAVE_PATIENCE_S = 0.005
_PAUSE_PER_SAVE = 12.0  # a large state in a service takes long to write: no more than a tenth of the time goes there
_LONGEST_SAVE_PAUSE_S = 2.0
_LONGEST_SEARCH_S = 1.0


class Coordinator:
    """Drives runs of one store. Owns two threads (the loop, after `start()`, and the saver); `close()` joins both.

    Args:
        store: Where the runs live.
        route: The executor for a queue. Executors are polled by the loop's thread, closed by their maker.
        role: For people: `notebook`, `script`, `coordinator`.
        save_backoff_s: Pauses before a save that failed is tried again; then the run is given up, with the reason.
        limits: The most that one task may ask of a queue, by queue.
        spans: What is told of runs, tasks and attempts that have ended.
        discover: Find and drive every run of the store, under the service lease, instead of those given to `drive`.
    """

    def __init__(
        self,
        store: Store,
        route: Callable[[str], Executor],
        *,
        role: str = "coordinator",
        pace: Pace | None = None,
        discover: bool = False,
        save_backoff_s: tuple[float, ...] = (0.2, 1.0, 3.0),
        limits: Mapping[str, QueueLimits] | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.store, self.pace, self.counters = store, pace or Pace(), Counters()
        self._fleet, self._discover = Fleet(route), discover
        self._leases = Leases(store, make_owner(role), self.pace.lease_ttl_s)
        self._service = Service(store, self._leases)
        self._drives: dict[str, Drive] = {}
        self._limits, self._spans = limits or {}, spans
        self._outcomes: dict[str, Future[RunStatus]] = {}
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._saver = Saver(store, self._fleet.interrupt, save_backoff_s)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_offset = time.time() - time.monotonic()
        self._last_step = time.monotonic()
        self._next_cancel_poll = self._next_renewal = self._next_discovery = self._next_log = 0.0
        self._logged: dict[str, int] = {}

    # --- for any thread

    def start(self) -> Coordinator:
        """Run the loop in a daemon thread; returns self."""
        self._thread = threading.Thread(target=self._loop, name="dagkit-coordinator", daemon=True)
        self._thread.start()
        return self

    def drive(self, workflow_id: str) -> Future[RunStatus]:
        """Take over a run; the future ends with its final status once that is saved, or with what stopped the drive.

        Raises `RunBusy` if a living coordinator drives it, `UnknownRun`, `BackendError`.
        """
        outcome: Future[RunStatus] = self.call(lambda: self._begin(workflow_id))
        return outcome

    def create(
        self,
        workflow_id: str,
        spec: WorkflowSpec,
        definition: Mapping[str, Any],
        prepare: Prepare,
    ) -> Future[RunStatus]:
        """Store a new run and drive it, as `drive` does. `prepare` is given its state before that is stored.

        Raises `WorkflowExists`, `BackendError`.
        """
        outcome: Future[RunStatus] = self.call(lambda: self._create(workflow_id, spec, definition, prepare))
        return outcome

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the loop's thread between two steps and return what it returns."""
        thread = self._thread
        if thread is None or threading.current_thread() is thread:
            return function()
        future: Future[Any] = Future()
        self._calls.append((function, future))
        self._fleet.interrupt()
        while not future.done() and thread.is_alive():
            try:
                return future.result(timeout=0.5)
            except FutureTimeout:
                if future.done():  # the function's own
                    raise
        if future.done():
            return future.result()
        raise RunBusy("the coordinator of this process has stopped; attach to the run again")

    def state_call(self, workflow_id: str, change: Callable[[Drive], Any]) -> Any:
        """Apply `change` to a run that this coordinator drives and return what it returns; `RunBusy` if it does not."""

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
    def is_alive(self) -> bool:
        """Whether the loop's thread goes on."""
        return self._thread is not None and self._thread.is_alive() and not self._stopping.is_set()

    def pulse(self) -> Pulse:
        """Whether the loop moves, and what it has done."""
        state = "driving" if self._service.is_held or not self._discover else "standing by"
        return Pulse(state, len(self._drives), time.monotonic() - self._last_step, vars(self.counters).copy())

    def look_at_cancels(self) -> None:
        """Look for cancel requests now rather than at the next interval."""
        self._next_cancel_poll = 0.0
        self._fleet.interrupt()

    def close(self) -> None:
        """Finish the step, hand back what runs, save, release the leases, join the threads. Safe to call twice."""
        self._stopping.set()
        self._fleet.interrupt()
        if self._thread is None:
            self._hand_back()
            self._service.leave()
        elif self._thread is not threading.current_thread():
            self._thread.join()
        self._saver.close()

    # --- the loop

    def serve(self, stop: threading.Event) -> None:
        """Serve in this thread until `stop` is set: wait for the service lease, then find and drive every run."""
        self._stopping = stop
        self._loop()
        self._saver.close()

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                self._last_step = time.monotonic()
                if self._discover and not self._service.hold():
                    self._stopping.wait(self.pace.idle_sleep_s)
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
            self._run_calls()
            self._service.leave()

    def step(self, wait_s: float = 0.0) -> None:
        """One step over all driven runs; waits at most `wait_s` for something to happen."""
        self.counters.steps += 1
        self._run_calls()
        reports = self._fleet.poll(wait_s)
        now = self.now()
        with no_gc():  # reports and messages live for a step or two: the collector would look at all of them in vain
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
        now, patience = self.now(), self.pace.idle_sleep_s
        for drive in self._drives.values():
            if drive.is_saving or drive.has_changes():
                patience = min(patience, _SAVE_PATIENCE_S)
            due = drive.state.next_due()
            if due is not None:
                patience = min(patience, max(0.0, due - now))
        return patience

    def _run_calls(self) -> None:
        while self._calls:
            function, future = self._calls.popleft()
            try:
                future.set_result(function())
            except BaseException as error:  # it belongs to the caller, who gets it from the future
                future.set_exception(error)

    def _take(self, report: Completion | Started, now: float) -> None:
        drive = self._drives.get(report.workflow_id)
        if isinstance(report, Started):
            if drive is not None:
                drive.begin(report, now)
        elif drive is None:
            self._take_orphan(report)
        else:
            if report.kind is FailureKind.CANCELLED and not drive.state.cancel_requested:
                self._poll_cancels()  # the worker has seen the flag first
            self.counters.completions += 1
            self.counters.ignored += not drive.take(report, now)

    def _take_orphan(self, report: Completion) -> None:
        """Acknowledge a report that can change nothing; that of a run which somebody may yet take up comes again."""
        try:
            is_settled = RunStatus(self.store.row(report.workflow_id).status).is_over
        except UnknownRun:
            is_settled = True
        except (BackendError, ValueError) as error:
            log.warning("a completion of run %s is left for later: %s", report.workflow_id, error)
            return
        if is_settled:
            self.counters.orphans += 1
            self._fleet.acknowledge_orphan(report)

    def _in_turn(self) -> list[Drive]:
        """Every drive, a different one first each step, so that none starves another of room."""
        drives = list(self._drives.values())
        if len(drives) < 2:
            return drives
        first = self.counters.steps % len(drives)
        return drives[first:] + drives[:first]

    def _advance(self, drive: Drive, now: float) -> None:
        expired = drive.expire(now)
        if expired:
            self.counters.timed_out += len(expired)
            self._fleet.cancel(expired, FailureKind.TIMEOUT, drive.queue_of)
        self.counters.dispatched += drive.dispatch(now, self._fleet)
        if not drive.is_saving and drive.has_changes() and (now >= drive.next_save or drive.state.is_over):
            pause = min(drive.save_s * _PAUSE_PER_SAVE, _LONGEST_SAVE_PAUSE_S)
            drive.next_save = now + max(self.pace.save_interval_s, pause)
            self._saver.save(drive)
            self.counters.saves += 1

    # --- saves

    def _settle_saves(self) -> None:
        for drive, error in self._saver.results():
            if error is None:
                self._fleet.acknowledge(drive.saved_completions(), drive.queue_of)
                drive.conflicts, drive.saved_at = 0, self.store.now()
                if drive.is_over_when_saved and not drive.has_changes():
                    self._finish(drive)
            elif isinstance(error, StateConflict):
                self._resolve_conflict(drive)
            else:
                self._stop_driving(drive, error)

    def _resolve_conflict(self, drive: Drive) -> None:
        self.counters.conflicts += 1
        drive.conflicts += 1
        if drive.conflicts > self.pace.flush_retry_limit + 1:
            self._stop_driving(drive, StateConflict(drive.workflow_id))
            return
        try:
            drive.reload(self.store, self.now())
        except DagkitError as error:
            self._stop_driving(drive, error)

    def _finish(self, drive: Drive) -> None:
        if self._drives.pop(drive.workflow_id, None) is not None:
            if self._spans is not None:
                self._spans.run_ended(drive.state, drive.began_at, self.now())
            self._leases.release(drive.lease)
            self._outcomes[drive.workflow_id].set_result(drive.state.status)

    def _stop_driving(self, drive: Drive, error: BaseException) -> None:
        if self._drives.pop(drive.workflow_id, None) is None:
            return
        try:
            self._fleet.cancel(self._fleet.lost_with_us(drive), FailureKind.PREEMPTED, drive.queue_of)
        except DagkitError as second:
            log.warning("run %s: %s", drive.workflow_id, second)
        self._leases.release(drive.lease)
        self._outcomes[drive.workflow_id].set_exception(error)

    # --- taking over and letting go

    def _create(
        self,
        workflow_id: str,
        spec: WorkflowSpec,
        definition: Mapping[str, Any],
        prepare: Prepare,
    ) -> Future[RunStatus]:
        lease = self._leases.acquire(f"run/{workflow_id}")
        try:
            drive = Drive.create(
                self.store, workflow_id, spec, lease, self._fleet.reports_start, self.now(), prepare, self._limits
            )
            drive.etag = self.store.create(workflow_id, definition, drive.state.document())
        except BaseException:
            self._leases.release(lease)
            raise
        return self._take_over(drive)

    def _begin(self, workflow_id: str) -> Future[RunStatus]:
        if workflow_id in self._drives:
            return self._outcomes[workflow_id]
        lease = self._leases.acquire(f"run/{workflow_id}")
        try:
            limit = self.pace.running_timeout_s
            drive = Drive.load(self.store, workflow_id, lease, self._fleet.reports_start, self._limits, limit)
            drive.spans = self._spans
            for lost in self._fleet.recover(drive.running_messages()):
                drive.take(lost, self.now())
        except BaseException:
            self._leases.release(lease)
            raise
        outcome = self._take_over(drive)
        if drive.state.cancel_requested and not drive.state.is_over:
            self._cancel(drive)
        return outcome

    def _take_over(self, drive: Drive) -> Future[RunStatus]:
        drive.spans = self._spans
        self._drives[drive.workflow_id] = drive
        outcome = self._outcomes[drive.workflow_id] = Future()
        return outcome

    def _hand_back(self) -> None:
        """Stop what would be lost, take the last completions, save; what was running is ready again at no cost."""
        for drive in self._drives.values():
            drive.is_stopping = True
            self._fleet.cancel(self._fleet.lost_with_us(drive), FailureKind.PREEMPTED, drive.queue_of)
        deadline = time.monotonic() + self.pace.close_grace_s
        while any(map(self._fleet.lost_with_us, self._drives.values())) and time.monotonic() < deadline:
            for report in self._fleet.poll(0.05):
                self._take(report, self.now())
        for drive in list(self._drives.values()):
            self._save_last(drive)

    def _save_last(self, drive: Drive) -> None:
        for _ in range(2):  # the save that is in flight, then what it did not contain
            self._saver.wait_for(drive)
            self._settle_saves()
            if drive.workflow_id in self._drives and drive.has_changes():
                self._saver.save(drive)
        self._saver.wait_for(drive)
        self._settle_saves()
        if self._drives.pop(drive.workflow_id, None) is not None:
            self._leases.release(drive.lease)
            self._outcomes[drive.workflow_id].cancel()

    # --- housekeeping

    def _housekeeping(self, now: float) -> None:
        if now >= self._next_cancel_poll and self._drives:
            self._next_cancel_poll = now + self.pace.cancel_poll_interval_s
            self._poll_cancels()
        if now >= self._next_renewal:
            self._next_renewal = now + self.pace.lease_ttl_s / 4
            self._renew_leases()
        if self._discover and now >= self._next_discovery:
            self._next_discovery = now + self.pace.discovery_interval_s
            self._find_runs()
        if self.pace.log_counters_s and now >= self._next_log:
            self._next_log = now + self.pace.log_counters_s
            self._log_counters()

    def _find_runs(self) -> None:
        """Take up runs, for a second at a time: what goes on, and the leases, do not wait for hundreds of new ones."""
        deadline = time.monotonic() + _LONGEST_SEARCH_S
        for workflow_id in self._service.runs_to_drive(self._drives):
            self._try_to_drive(workflow_id)
            if time.monotonic() > deadline:
                self._next_discovery = 0.0
                return

    def _log_counters(self) -> None:
        counted = {name: value for name, value in vars(self.counters).items() if name != "steps"}
        if counted != self._logged:
            self._logged = counted
            words = "  ".join(f"{name}={value}" for name, value in counted.items() if value)
            log.info("%d runs  %s", len(self._drives), words, extra={"runs": len(self._drives), "counters": counted})

    def _poll_cancels(self) -> None:
        going_on = [drive for drive in self._drives.values() if not drive.state.cancel_requested]
        candidates = [drive.workflow_id for drive in going_on if not drive.state.is_over]
        if not candidates:
            return
        try:
            requested = self.store.cancel_requested(candidates)
        except BackendError as error:
            log.warning("cannot look for cancel requests: %s", error)
            return
        for workflow_id in requested:
            self._cancel(self._drives[workflow_id])
        for drive in going_on:
            if drive.waits_for_room():
                self._look_for_changes(drive)

    def _look_for_changes(self, drive: Drive) -> None:
        """Something keeps tasks from starting: a limit perhaps, which somebody may have changed in the store.

        Other changes are met by the next save, which they make fail.
        """
        try:
            if self.store.row(drive.workflow_id).updated_at > drive.saved_at:
                drive.reload(self.store, self.now())
                drive.saved_at = self.store.now()
        except BackendError as error:
            log.warning("run %s: cannot look for changes: %s", drive.workflow_id, error)
        except DagkitError as error:
            self._stop_driving(drive, error)

    def _cancel(self, drive: Drive) -> None:
        drive.change(lambda state: state.request_cancel(self.now()))
        self._fleet.cancel(drive.in_flight(), FailureKind.CANCELLED, drive.queue_of)

    def _renew_leases(self) -> None:
        drives = list(self._drives.values())
        for drive, renewed in zip(drives, self._leases.renew_all([drive.lease for drive in drives]), strict=True):
            if isinstance(renewed, LeaseLost):
                self._stop_driving(drive, renewed)
            else:
                drive.lease = renewed
        try:
            self._service.renew()
        except LeaseLost as error:
            for drive in list(self._drives.values()):
                self._stop_driving(drive, error)

    def _try_to_drive(self, workflow_id: str) -> None:
        try:
            self._begin(workflow_id)
        except RunBusy:
            log.debug("run %s is driven by somebody else", workflow_id)
        except DagkitError as error:
            log.warning("run %s: %s", workflow_id, error)
