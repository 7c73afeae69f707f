"""One run under a coordinator: its state, what is in flight, and what has been applied but not yet saved."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dagkit.coordinator.fleet import Fleet
from dagkit.engine.identity import identities, is_cached
from dagkit.engine.scaling import QueueLimits
from dagkit.engine.state import Dispatch, WorkflowState
from dagkit.errors import BackendError
from dagkit.executors.base import Executor
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.records import StateChanges
from dagkit.model.resources import ResourceRequest, has_refs
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, TaskState
from dagkit.runtime import values
from dagkit.stores.base import Lease, Store

if TYPE_CHECKING:
    from dagkit.coordinator.spans import Spans

__all__ = ["Drive", "Prepare"]

T = TypeVar("T")
Prepare = Callable[[WorkflowState], Any]

log = logging.getLogger("dagkit.coordinator")

_MOST_REFUSALS, _LONGEST_PAUSE_S = 20, 30.0
_LEAST_WAIT_S = 0.1
_START_PATIENCE_S = 1.0


class Drive:
    """A run that this process drives. Used by the coordinator's thread only, except what the saver reads."""

    def __init__(
        self,
        workflow_id: str,
        state: WorkflowState,
        etag: str,
        lease: Lease,
        starts: Callable[[str], bool],
        limits: Mapping[str, QueueLimits],
        read_output: Callable[[str], Any],
    ) -> None:
        self.workflow_id, self.state, self.etag, self.lease = workflow_id, state, etag, lease
        self.conflicts, self.next_save, self.save_s = 0, 0.0, 0.0
        self.saved_at = float("inf")
        self.is_saving = self.is_stopping = self.is_over_when_saved = False
        self._starts, self._limits, self._read_output = starts, limits, read_output
        self._refusals, self._pause_until = 0, 0.0
        self._unsaved: list[Completion] = []
        self._being_saved: list[Completion] = []
        self._dirty = True
        self._starts_saved_at = float("inf")
        self.spans: Spans | None = None
        self.began_at = time.time()
        self._flight: dict[tuple[str, int | None], tuple[int, float]] = {}
        """Generation, and when it was handed over, by task and attempt, of what executors have not reported."""
        spec = state.spec
        self._dynamic = frozenset([index for index, task in enumerate(spec.tasks) if has_refs(task.resources)])
        self._timeouts = [spec.timeout_of(task) for task in spec.tasks]
        self._remembered = _cache_identities(spec)

    @classmethod
    def create(
        cls,
        store: Store,
        workflow_id: str,
        spec: WorkflowSpec,
        lease: Lease,
        starts: Callable[[str], bool],
        now: float,
        prepare: Prepare,
        limits: Mapping[str, QueueLimits],
    ) -> Drive:
        """A run that has yet to be stored, with the whole of its state."""
        state = WorkflowState.create(
            spec, workflow_id, now, read_output=_reader(store), starts_reported=starts, limits=limits
        )
        prepare(state)
        state.take_changes()  # they are in the document that is stored first
        return cls(workflow_id, state, "", lease, starts, limits, store.get_output)

    @classmethod
    def load(
        cls,
        store: Store,
        workflow_id: str,
        lease: Lease,
        starts: Callable[[str], bool],
        limits: Mapping[str, QueueLimits],
        running_timeout_s: float | None = None,
    ) -> Drive:
        """A run of the store; `running_timeout_s` is the limit of tasks that have none."""
        stored = store.load(workflow_id)
        spec = WorkflowSpec.from_definition(stored.definition)
        if running_timeout_s is not None and spec.default_task_timeout_s is None:
            spec = spec.model_copy(update={"default_task_timeout_s": max(1, round(running_timeout_s))})
        state = _state(store, spec, stored.state, starts, limits)
        drive = cls(workflow_id, state, stored.etag, lease, starts, limits, store.get_output)
        drive.began_at = _created_at(stored.definition)
        return drive

    def queue_of(self, task: str) -> str:
        index = self.state.index.get(task)
        return self.state.queue_of(index) if index is not None else self.state.spec.default_queue

    # --- facts in

    def take(self, completion: Completion, now: float) -> bool:
        """Apply a completion; it is acknowledged after the next save whether it counted or not."""
        handed_over = self._flight.pop((completion.task, completion.attempt), None)
        if handed_over is None:
            if completion.attempt is None:
                self._forget_flights_of(completion.task)
        elif completion.usage:
            _note_wait(completion.usage, handed_over[1])
        counted = self.state.apply(completion, now)
        if counted and self.spans is not None:
            self.spans.ended(self.state, completion, now)
        self._unsaved.append(completion)
        self._dirty = True
        return counted

    def begin(self, report: Started, now: float) -> None:
        """Note that an attempt began. That is saved with what happens next, and on its own after a moment: most tasks
        have ended by then, and a save for each start would double what a run of short tasks costs."""
        if self.state.started(report, now):
            self._starts_saved_at = min(self._starts_saved_at, now + _START_PATIENCE_S)

    def _forget_flights_of(self, task: str) -> None:
        for flight in [flight for flight in self._flight if flight[0] == task]:
            del self._flight[flight]

    def change(self, change: Callable[[WorkflowState], T], clear_cancel: Callable[[], None] | None = None) -> T:
        """Apply a person's change (a retry, a rerun) to the state."""
        changed = change(self.state)
        if clear_cancel is not None:
            clear_cancel()
        self._dirty = True
        return changed

    # --- decisions out

    def expire(self, now: float) -> list[AttemptKey]:
        """Attempts whose time is up, failed in the state; their executors have yet to stop them."""
        expired = self.state.expire(now)
        if now >= self._starts_saved_at:
            self._dirty = True
        if expired:
            self._dirty = True
            if self.spans is not None:
                self._tell_expired(self.spans, expired, now)
        return expired

    def _tell_expired(self, spans: Spans, expired: list[AttemptKey], now: float) -> None:
        for key in expired:
            failed = Completion(key.workflow_id, key.task, False, None, "timed out", key.attempt, key.generation)
            failed.kind = FailureKind.TIMEOUT
            spans.ended(self.state, failed, now)

    def dispatch(self, now: float, fleet: Fleet) -> int:
        """Hand ready tasks to their executors; returns how many were taken."""
        if self.is_stopping or now < self._pause_until:
            return 0
        try:
            chosen = self.state.dispatch(now, lambda queue: fleet.of(queue).capacity())
        except BackendError as error:  # an output that a condition needs could not be read
            self._pause_after(error, now)
            return 0
        if not chosen:
            return 0
        self._dirty = True
        if self._dynamic:
            chosen = [item for item in chosen if item.index not in self._dynamic or self._resolve(item, now)]
        groups = fleet.grouped(chosen, lambda item: item.queue)
        return sum(self._submit(executor, items, now) for executor, items in groups)

    def _resolve(self, item: Dispatch, now: float) -> bool:
        """Find out what upstream tasks decided that this one asks for; False if that failed it."""
        if item.resources is not None:  # known from an earlier attempt
            return True
        task, refs = self.state.spec.tasks[item.index], self.state.upstream(item.index)
        try:
            asked = values.decode(task.resources, resolve=lambda name: self._output(refs[name]), get=self._read_output)
            request = ResourceRequest.of(asked)
        except BackendError as error:
            self.state.undo([item])
            self._pause_after(error, now)
            return False
        except Exception as error:  # loading a pickle runs the user's code, and what it decided may be anything
            text = f"what upstream tasks decided is no request of resources: {error}"
            failed = Completion(self.workflow_id, item.name, False, error=text, kind=FailureKind.CONFIG)
            failed.attempt, failed.generation = item.attempt, item.generation
            self.state.apply(failed, now)
            return False
        item.resources = {key: value for key, value in asked.items() if key != "queue"}
        item.queue = request.queue or item.queue
        self.state.ask(item.index, item.resources, item.queue)
        return True

    def _output(self, ref: str | None) -> Any:
        return values.load_output(ref, self._read_output)

    def _submit(self, executor: Executor, items: list[Dispatch], now: float) -> int:
        messages = [self._message(item) for item in items]
        try:
            taken = executor.submit(messages)
        except BackendError as error:
            self.state.undo(items)
            self._pause_after(error, now)
            return 0
        except BaseException:
            self.state.undo(items)
            raise
        self._refusals = 0
        if taken < len(items):
            self.state.undo(items[taken:])
        flight = self._flight
        if self.spans is not None:
            self.spans.dispatched(self.workflow_id, items[:taken], now)
        first = (0, now)
        for item in items[:taken]:
            flight[item.name, item.attempt] = first if not item.generation else (item.generation, now)
        return taken

    def _pause_after(self, error: BackendError, now: float) -> None:
        """An executor did not take anything: try again later, and give up when that has not helped often enough."""
        self._refusals += 1
        if self._refusals > _MOST_REFUSALS:
            raise error
        pause = min(_LONGEST_PAUSE_S, 0.1 * 2**self._refusals)
        self._pause_until = now + pause
        log.warning("run %s: nothing could be submitted, trying again in %.1f s: %s", self.workflow_id, pause, error)

    def _message(self, item: Dispatch) -> TaskMessage:
        index = item.index
        task = self.state.spec.tasks[index]
        return TaskMessage(
            self.workflow_id,
            item.name,
            item.attempt,
            item.generation,
            item.queue,
            task.kwargs,
            self.state.upstream(index) if task.depends_on else {},
            self._timeouts[index],
            task.template or "",
            task.resources if item.resources is None else item.resources,
            task.priority,
        )

    def in_flight(self) -> list[AttemptKey]:
        """Attempts handed to an executor that have not been reported."""
        return [
            AttemptKey(self.workflow_id, task, generation, attempt or 0)
            for (task, attempt), (generation, _) in self._flight.items()
        ]

    def running_messages(self) -> list[TaskMessage]:
        """Messages of the attempts that are running by the state: what a restart has to find again."""
        messages = []
        for index, name in enumerate(self.state.names):
            if self.state.state_of(index) is TaskState.RUNNING:
                entry, state = self.state.entry(index), self.state
                item = Dispatch(
                    index,
                    name,
                    entry["attempt_no"],
                    entry.get("generation", 0),
                    state.queue_of(index),
                    state.resources(index),
                )
                message = self._message(item)
                messages.append(message)
                self._flight[name, message.attempt] = (message.generation, float("inf"))
        return messages

    # --- saving

    def waits_for_room(self) -> bool:
        """Whether tasks could run but for a limit, and nothing is on its way to the store."""
        return self.state.counts.ready > 0 and not self.is_saving and not self.has_changes()

    def has_changes(self) -> bool:
        return self._dirty or bool(self._unsaved)

    def changes_to_save(self) -> StateChanges:
        """Freeze what changed; the completions in it may be acknowledged once it is saved."""
        self._being_saved, self._unsaved = self._unsaved, []
        self._dirty, self._starts_saved_at = False, float("inf")
        self.is_over_when_saved = self.state.is_over
        return self.state.take_changes()

    def results_to_remember(self) -> list[tuple[str, str]]:
        """(identity, output ref) of the tasks with `cache=True` that are completed by what is being saved."""
        if not self._remembered:
            return []
        return [
            (self._remembered[done.task], done.output_ref)
            for done in self._being_saved
            if done.success and done.output_ref is not None and done.task in self._remembered
        ]

    def saved_completions(self) -> list[Completion]:
        saved, self._being_saved = self._being_saved, []
        return saved

    def reload(self, store: Store, now: float) -> None:
        """Somebody else wrote the state: read it again and apply what was not saved."""
        stored = store.load(self.workflow_id)
        self.state = _state(store, self.state.spec, stored.state, self._starts, self._limits)
        self.etag = stored.etag
        again, self._being_saved, self._unsaved = self._being_saved + self._unsaved, [], []
        for completion in again:
            self.take(completion, now)
        self._dirty = True


def _note_wait(usage: dict[str, Any], handed_over: float) -> None:
    """How long an attempt waited for its turn; less than a moment is not worth its bytes."""
    waited_s = usage.get("started_at", 0.0) - handed_over
    if waited_s >= _LEAST_WAIT_S:
        usage["wait_s"] = round(waited_s, 2)


def _state(
    store: Store,
    spec: WorkflowSpec,
    document: dict[str, Any],
    starts: Callable[[str], bool],
    limits: Mapping[str, QueueLimits],
) -> WorkflowState:
    return WorkflowState.load(spec, document, read_output=_reader(store), starts_reported=starts, limits=limits)


def _reader(store: Store) -> Callable[[str], Any]:
    """Reads outputs for conditions."""

    def read_output(ref: str) -> Any:
        try:
            return values.condition_view(values.load_output(ref, store.get_output, files=False))
        except BackendError:
            raise
        except Exception as error:  # loading a pickle runs the user's code; to a condition the output is then missing
            log.warning("the output %s cannot be read for a condition: %s: %s", ref, type(error).__name__, error)
            return None

    return read_output


def _cache_identities(spec: WorkflowSpec) -> dict[str, str]:
    if not any(map(is_cached, spec.tasks)):
        return {}
    pairs = zip(spec.tasks, identities(spec), strict=True)
    return {task.name: identity for task, identity in pairs if identity is not None and is_cached(task)}


def _created_at(definition: Mapping[str, Any]) -> float:
    """Seconds since the epoch; 0 where nobody has written it down, as ai4s-jobq does not."""
    try:
        return datetime.fromisoformat(definition.get("created_at") or "").timestamp()
    except (ValueError, TypeError):
        return 0.0
