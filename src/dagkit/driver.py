"""Who drives a run, seen from one process: taking it over, changing its state, waiting for its end, letting go."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from dagkit import embedded
from dagkit.config import Settings
from dagkit.coordinator import SERVICE_LEASE
from dagkit.coordinator.ownership import is_owner_dead, is_this_process, owner_words
from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError, LeaseLost, RunBusy, RunTimeout, StateConflict
from dagkit.model.names import fold_id
from dagkit.model.records import RunRow
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import RunStatus
from dagkit.runtime import values
from dagkit.stores.base import Store

__all__ = ["Driver"]

T = TypeVar("T")

_CHANGE_TRIES = 20
_LOOK_AT_DRIVER_S = 1.0


class Driver:
    """One run as this process may drive it. The state has one writer: this process's coordinator while it drives the
    run, else whoever saves against the etag. Thread-safe."""

    def __init__(self, store: Store, workflow_id: str, settings: Settings) -> None:
        self._store, self._id, self._settings = store, workflow_id, settings
        self._outcome: Future[RunStatus] | None = None

    # --- who drives

    def is_embedded(self) -> bool:
        """Whether the process that started the run meant to drive it itself."""
        return "driver" in self._store.load_definition(self._id)

    def is_driven(self) -> bool:
        """Whether somebody drives the run now; a process of this host that is gone does not count."""
        if embedded.driving(self._store.url, self._id) is not None:
            return True
        lease = self._store.lease(self._lease_name)
        return lease is not None and not is_owner_dead(lease.owner) and not is_this_process(lease.owner)

    def take_over(self) -> None:
        """Drive the run in this process. `RunBusy` if a living coordinator drives it."""
        definition = self._store.load_definition(self._id)
        target = str(definition.get("driver", {}).get("target", self._settings.default_target))
        self._drop_own_lease()
        self._outcome = embedded.drive(self._store, self._settings, target, lambda c: c.drive(self._id))

    def create(
        self,
        target: str,
        spec: WorkflowSpec,
        definition: Mapping[str, Any],
        prepare: Callable[[WorkflowState], Any],
    ) -> None:
        """Store the run, which is new, and drive it in this process. `WorkflowExists`."""
        self._outcome = embedded.drive(
            self._store, self._settings, target, lambda c: c.create(self._id, spec, definition, prepare)
        )

    def go_on(self) -> None:
        """After a change that makes tasks eligible: drive the run here if it was driven by a process like this one."""
        if self.is_embedded() and not self.is_driven():
            self.take_over()

    def go_on_here(self) -> None:
        """Drive the run in this process if it is not over, unless a coordinator lives that finds it by itself."""
        lease = self._store.lease(SERVICE_LEASE)
        is_found = lease is not None and not is_owner_dead(lease.owner) and not self.is_embedded()
        if not is_found and not RunStatus(self._store.row(self._id).status).is_over:
            self.take_over()

    def refuse_if_driven(self) -> None:
        """`RunBusy` that says who drives the run, if somebody does."""
        if not self.is_driven():
            return
        lease = self._store.lease(self._lease_name)
        who = owner_words(lease.owner) if lease is not None else "this process"
        raise RunBusy(f"run {fold_id(self._id)} is driven by {who}, which goes on with it")

    def stop_what_runs(self, spec: WorkflowSpec, deadline: float | None) -> None:
        """Cancel a run that nobody drives, and wait until every task that was running has been stopped."""
        self.cancel(spec)
        if not RunStatus(self._store.row(self._id).status).is_over:
            self.take_over()
            self.wait(deadline, lambda row: None)

    def how_to_go_on(self) -> str:
        return f"go on with dagkit.attach({self._id!r}), or run(..., id={self._id!r}, resume=True)"

    @property
    def _lease_name(self) -> str:
        return f"run/{self._id}"

    def _drop_own_lease(self) -> None:
        """A lease that this process holds without driving the run: it could not be released when the store failed."""
        lease = self._store.lease(self._lease_name)
        if lease is not None and is_this_process(lease.owner) and embedded.driving(self._store.url, self._id) is None:
            self._store.break_lease(self._lease_name)

    # --- changing the state

    def change(self, spec: WorkflowSpec, change: Callable[[WorkflowState], T], *, clear_cancel: bool = False) -> T:
        """Apply a change to the state: by this process's coordinator if it drives the run, else by a guarded save."""
        host = embedded.driving(self._store.url, self._id)
        if host is not None:
            withdraw = (lambda: self._store.clear_cancel(self._id)) if clear_cancel else None
            changed: T = host.coordinator.state_call(self._id, lambda drive: drive.change(change, withdraw))
            return changed
        for _ in range(_CHANGE_TRIES):
            stored = self._store.load(self._id)
            state = WorkflowState.load(spec, stored.state, read_output=self._read_output)
            changed = change(state)
            if clear_cancel:
                self._store.clear_cancel(self._id)
            try:
                self._store.save(self._id, state.take_changes(), stored.etag)
            except StateConflict:
                continue
            return changed
        raise StateConflict(self._id)

    def cancel(self, spec: WorkflowSpec) -> None:
        """Ask for an end; done here if nobody drives a run that is not over."""
        host = embedded.driving(self._store.url, self._id)
        if host is None and not self.is_driven() and not RunStatus(self._store.row(self._id).status).is_over:
            self.change(spec, lambda state: state.request_cancel(self._store.now()))
        self._store.request_cancel(self._id)
        if host is not None:
            host.coordinator.look_at_cancels()

    def _read_output(self, ref: str) -> Any:
        return values.load_output(ref, self._store.get_output)

    # --- waiting

    def pause(self, seconds: float) -> None:
        """Let time pass; less of it when the run ends here."""
        if self._outcome is None:
            time.sleep(seconds)
            return
        with contextlib.suppress(FutureTimeout, CancelledError):
            self._outcome.exception(timeout=seconds)

    def wait(self, deadline: float | None, show: Callable[[RunRow], None]) -> RunStatus:
        """The final status; `show` is given the row each time it was looked at. See `Run.wait`."""
        pause, next_look = 0.01, time.monotonic() + _LOOK_AT_DRIVER_S
        while True:
            if self._outcome is None and time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_AT_DRIVER_S
                self._take_over_if_abandoned()
            if self._outcome is not None and self._outcome.done():
                return self._driven_to_the_end(self._outcome, show)
            row = self._store.row(self._id)
            show(row)
            if RunStatus(row.status).is_over and (self._outcome is None or not self.is_driven()):
                return RunStatus(row.status)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise _timeout(row)
            self.pause(pause if left is None else min(pause, left))
            pause = min(0.1 if self._outcome is not None else 0.5, pause * 1.5)

    def let_go(self) -> None:
        """Stop what this process drives, saved, and say on stderr how to go on."""
        host = embedded.driving(self._store.url, self._id)
        if host is not None:
            host.close()
            row = self._store.row(self._id)
            sys.stderr.write(
                f"\nStopped: {row.counts.ended} of {row.counts.total} tasks of {row.name} have ended and are saved; "
                f"{self.how_to_go_on()}\n"
            )

    def _take_over_if_abandoned(self) -> None:
        """Go on with a run whose driver, a process like this one, has died."""
        is_over = RunStatus(self._store.row(self._id).status).is_over
        if self.is_embedded() and not self.is_driven() and not is_over:
            with contextlib.suppress(RunBusy):  # somebody else was faster
                self.take_over()

    def _driven_to_the_end(self, outcome: Future[RunStatus], show: Callable[[RunRow], None]) -> RunStatus:
        try:
            status = outcome.result()
        except CancelledError:
            raise RunBusy(f"run {fold_id(self._id)} was handed back; {self.how_to_go_on()}") from None
        except StateConflict as error:
            raise BackendError(f"{error}, again and again; {self.how_to_go_on()}") from error
        except LeaseLost as error:
            raise BackendError(f"{error}; look at the run with dagkit.attach({self._id!r})") from error
        except BackendError as error:
            raise BackendError(f"{error} What was saved is safe; {self.how_to_go_on()}") from error
        show(self._store.row(self._id))
        return status


def _timeout(row: RunRow) -> RunTimeout:
    return RunTimeout(
        f"run {fold_id(row.workflow_id)} ({row.name}) is {row.status}, {row.counts.ended} of {row.counts.total} "
        f"tasks have ended; it goes on. Wait again with run.wait(), or stop it with run.cancel()."
    )
