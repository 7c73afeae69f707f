"""The state of one run. Pure: facts and the time go in, what is to be dispatched and what is to be saved comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

from dagkit.engine import resets, retry
from dagkit.engine.attempts import Attempts, Dispatch
from dagkit.engine.caps import Caps
from dagkit.engine.conditions import Conditions
from dagkit.engine.frontier import Frontier
from dagkit.engine.head import Head, head_of
from dagkit.engine.mirror import Mirror
from dagkit.engine.moves import COMPLETED, FAILED, PENDING, READY, RUNNING, STATES
from dagkit.engine.ready import UNLIMITED
from dagkit.engine.retry import FREE_ATTEMPTS, RetryCounts
from dagkit.engine.scaling import Growth, QueueLimits
from dagkit.engine.shape import Shape, limited_tasks
from dagkit.engine.standing import Standing, is_active
from dagkit.engine.table import TaskTable
from dagkit.errors import CorruptState, RunBusy, UnknownTask, UsageError
from dagkit.model.messages import AttemptKey, Completion, Started
from dagkit.model.records import Counts, StateChanges
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import RunStatus, TaskState

__all__ = ["Dispatch", "RetryCounts", "WorkflowState"]


class WorkflowState:
    """Every task of a run and what may happen next.

    A step is: `apply` and `started` with what was reported, `expire`, `dispatch` (and `undo` for what executors did not
    take), `take_changes`. Give all calls of a step the same `now`. Conditions are evaluated by `dispatch`, which is
    therefore the one method that raises `BackendError`, when an output that a condition needs cannot be read: then
    nothing was dispatched, what was applied stands, and the next `dispatch` tries again.

    Not thread-safe; the `document` of a `StateChanges` may be called from one other thread.
    """

    def __init__(
        self,
        spec: WorkflowSpec,
        workflow_id: str,
        *,
        read_output: Callable[[str], Any] | None = None,
        starts_reported: Callable[[str], bool] | None = None,
        free_attempts: int = FREE_ATTEMPTS,
        limits: Mapping[str, QueueLimits] | None = None,
    ) -> None:
        """Use `create` or `load`. `free_attempts`: how many attempts the machinery may lose before they are charged;
        `limits`: the most that one task may ask of a queue, by queue."""
        self.spec, self.workflow_id = spec, workflow_id
        self._shape = shape = Shape.of(spec)
        self._standing = standing = Standing()
        self._table = table = TaskTable(shape)
        self._frontier = frontier = Frontier(shape, table)
        self._conditions = Conditions(shape, table, frontier, read_output)
        queues = {*shape.queues, *shape.fallbacks} if starts_reported else ()
        reporting = frozenset([queue for queue in queues if starts_reported and starts_reported(queue)])
        self._attempts = Attempts(
            workflow_id,
            shape,
            table,
            frontier,
            standing,
            reporting=reporting,
            free=free_attempts,
            limits=limits or {},
        )
        self._mirror = Mirror({})
        self._caps = Caps(spec)
        self._generation = 0

    @classmethod
    def create(
        cls,
        spec: WorkflowSpec,
        workflow_id: str,
        now: float,
        *,
        read_output: Callable[[str], Any] | None = None,
        starts_reported: Callable[[str], bool] | None = None,
        free_attempts: int = FREE_ATTEMPTS,
        limits: Mapping[str, QueueLimits] | None = None,
    ) -> WorkflowState:
        """A new run: its roots are ready, everything else is pending."""
        state = cls(
            spec,
            workflow_id,
            read_output=read_output,
            starts_reported=starts_reported,
            free_attempts=free_attempts,
            limits=limits,
        )
        state._standing.at(now)
        for task, parents in enumerate(state._shape.parents):
            if not parents:
                state._frontier.examine(task, state._standing.text)
        return state

    @classmethod
    def load(
        cls,
        spec: WorkflowSpec,
        document: Mapping[str, Any],
        *,
        read_output: Callable[[str], Any] | None = None,
        starts_reported: Callable[[str], bool] | None = None,
        free_attempts: int = FREE_ATTEMPTS,
        limits: Mapping[str, QueueLimits] | None = None,
    ) -> WorkflowState:
        """The run of a state document, written by dagkit or by ai4s-jobq. Raises `CorruptState`, `NewerFormat`.

        What the document leaves to be decided (a pending task that could run) is decided, and counts as a change.
        """
        head = Head.of(document)
        state = cls(
            spec,
            head.workflow_id,
            read_output=read_output,
            starts_reported=starts_reported,
            free_attempts=free_attempts,
            limits=limits,
        )
        state._restore(head, document["tasks"])
        return state

    def _restore(self, head: Head, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        table, frontier, index = self._table, self._frontier, self._shape.index
        for name, entry in tasks.items():
            if name not in index or not isinstance(entry, Mapping):
                raise CorruptState(f"run {self.workflow_id}: the state has a task {name!r} that the definition lacks")
            table.load(index[name], entry)
        self._mirror = Mirror({name: dict(entry) for name, entry in tasks.items()})
        for task, queue in table.queues.items():
            frontier.ready.route(task, queue)
        if head.limits:
            self._caps.load(head.limits)
            self._limit()
        standing = self._standing
        standing.text, standing.error = head.updated_at, head.error
        states = table.states
        frontier.recount([task for task, state in enumerate(states) if state >= COMPLETED])
        self._generation = max(table.generations, default=0)
        standing.tripping = sum(state == FAILED and self._attempts.trips(task) for task, state in enumerate(states))
        standing.is_tripped = standing.tripping > 0 and not any(state < RUNNING for state in states)
        standing.is_launched = head.status is not RunStatus.PENDING
        ended_uncancelled = head.status in (RunStatus.COMPLETED, RunStatus.FAILED) and self.is_over
        standing.cancel_requested = head.cancel_requested and not ended_uncancelled
        for task, state in enumerate(states):
            if state == RUNNING:
                self._attempts.resume(task)
            elif state == READY:
                frontier.offer(task)
        for task in range(len(states)):
            if states[task] == PENDING:
                frontier.examine(task, standing.text)

    # --- looking

    @property
    def names(self) -> list[str]:
        return self._shape.names

    @property
    def index(self) -> Mapping[str, int]:
        return self._shape.index

    @property
    def cancel_requested(self) -> bool:
        return self._standing.cancel_requested

    @property
    def counts(self) -> Counts:
        """Tasks by state, merge nodes aside."""
        return self._table.count()

    @property
    def is_over(self) -> bool:
        return not is_active(self._table.counts)

    @property
    def status(self) -> RunStatus:
        sinks = self._shape.sinks if self.spec.result_policy == "all_sinks_succeed" else None
        return self._standing.status(self._table.counts, self._table.states, sinks)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything that `take_changes` has not returned."""
        return self._table.has_changed or self._standing.is_changed

    def state_of(self, task: int) -> TaskState:
        return STATES[self._table.states[task]]

    def entry(self, task: int) -> dict[str, Any]:
        """The task's compact entry of the state document."""
        return self._table.entry(task)

    def resources(self, task: int) -> dict[str, Any] | None:
        """What the next attempt asks for, or the one that runs."""
        return self._table.requests.get(task, self.spec.tasks[task].resources)

    def queue_of(self, task: int) -> str:
        """The queue of the next attempt, or of the one that runs."""
        return self._table.queues.get(task, self._shape.queues[task])

    def output_ref(self, task: int) -> str | None:
        return self._table.outputs[task]

    def retries_remaining(self, task: int) -> int:
        table = self._table
        return retry.retries_remaining(
            self._shape.retries[task], self.state_of(task), table.attempts[task], table.uncharged[task]
        )

    def upstream(self, task: int) -> dict[str, str | None]:
        """Output refs of a task's parents in the order of `depends_on`; None for one that did not complete with one."""
        names, states, outputs = self._shape.names, self._table.states, self._table.outputs
        return {
            names[parent]: outputs[parent] if states[parent] == COMPLETED else None
            for parent in self._shape.parents[task]
        }

    def next_due(self) -> float | None:
        """When `expire` or `dispatch` will have something to do though nothing is reported; None if never."""
        times = [at for at in (self._attempts.timeouts.next(), self._frontier.delays.next()) if at is not None]
        return min(times, default=None)

    # --- what happened

    def apply(self, completion: Completion, now: float) -> bool:
        """Take a report of an attempt. False if it changes nothing: a duplicate, stale, or of another run."""
        task = self._shape.index.get(completion.task)
        if task is None or completion.workflow_id != self.workflow_id or not self._attempts.counts(task, completion):
            return False
        self._standing.at(now)
        self._attempts.take(task, completion)
        return True

    def started(self, report: Started, now: float) -> bool:
        """An attempt began executing: its timeout counts from now on. False if it is not the one that runs."""
        task = self._shape.index.get(report.task)
        if task is None or report.workflow_id != self.workflow_id:
            return False
        self._standing.at(now)
        return self._attempts.begin(task, report, now)

    def expire(self, now: float) -> list[AttemptKey]:
        """Fail what has run for too long; returns the attempts that their executors have to stop."""
        if not self._attempts.timeouts:
            return []
        self._standing.at(now)
        return self._attempts.expire(now)

    # --- what people ask for

    def request_cancel(self, now: float) -> None:
        """Cancel what has not begun; what runs has to report first. Changes nothing in a run that is over."""
        if self.is_over or self.cancel_requested:
            return
        self._standing.at(now)
        self._standing.cancel_requested = self._standing.is_changed = True
        self._attempts.cancel_waiting(None)

    def user_retry(
        self, now: float, names: Collection[str] | None = None, *, increase_resources: bool = False
    ) -> RetryCounts:
        """Give everything that failed, was given up or was cancelled a new generation of attempts.

        With `names`, only these, what keeps them from running and what was given up because of them. What they ask for
        is as the definition says, unless `increase_resources`: then what ended for want of memory or time asks for more
        than it last had. Withdraws a cancel request. Raises `RunBusy` while tasks of a cancelled run are still being
        stopped.
        """
        states = self._table.states
        wanted = range(len(states)) if names is None else self._indexes(names)
        self._refuse_while_cancelling()
        failed = [task for task in wanted if states[task] in resets.FAILURES]
        tasks = failed if names is None else resets.to_retry(self._shape, self._table, failed)
        ready = self._table.counts[READY]
        attempts, kinds = self._attempts, self._table.kinds
        growths = {task: attempts.growth(task, kinds.get(task)) for task in tasks} if increase_resources else {}
        self._reset(tasks, now, growths)
        counts = self._table.counts
        reset = len(tasks) - len(self._shape.merges.intersection(tasks))
        return RetryCounts(reset, counts[READY] - ready, counts[PENDING])

    def rerun(self, names: Collection[str], now: float) -> int:
        """Put tasks and all that depends on them back to pending, completed ones too; returns how many.

        Withdraws a cancel request. Raises `RunBusy` if one of them is running.
        """
        self._refuse_while_cancelling()
        tasks = resets.to_rerun(self._shape, self._indexes(names))
        running = [self.names[task] for task in tasks if self._table.states[task] == RUNNING]
        if running:
            raise RunBusy(f"{running[0]} is running and would have to run again; wait for it or cancel the run first")
        self._reset(tasks, now)
        return len(tasks) - len(self._shape.merges.intersection(tasks))

    def ask(self, task: int, resources: dict[str, Any], queue: str | None) -> None:
        """What upstream tasks have decided that this task asks for; `queue` None for that of the definition."""
        self._table.set_request(task, resources, queue if queue != self._shape.queues[task] else None)

    def keep(self, outputs: Mapping[int, str | None], now: float) -> None:
        """Take tasks that have not been dispatched for completed with these output refs; others are left alone."""
        self._standing.at(now)
        for task, output in outputs.items():
            if self._table.states[task] <= READY and task not in self._shape.merges:
                self._attempts.complete(task, output)

    def settle(self, names: Collection[str], now: float) -> int:
        """Take tasks for completed, without an output, whatever became of them; returns how many were not before.

        What was given up because of them is pending again. Raises `RunBusy` if one of them is running.
        """
        self._refuse_while_cancelling()
        tasks, states = self._indexes(names), self._table.states
        running = [self.names[task] for task in tasks if states[task] == RUNNING]
        if running:
            raise RunBusy(f"{running[0]} is running; wait for it or cancel the run first")
        unfinished = [task for task in tasks if states[task] != COMPLETED and task not in self._shape.merges]
        again = resets.to_settle(self._shape, self._table, unfinished)
        if again:
            self._reset(again, now)
        self.keep(dict.fromkeys(unfinished), now)
        return len(unfinished)

    def set_limit(self, most: int | None, template: str | None, now: float) -> None:
        """Change how many tasks of the run, or of one template, may run at a time, for as long as the run lives.

        0 pauses; None goes back to what the definition says. Nothing that runs is stopped. `UsageError` for a template
        that the run does not have, and for less than 0.
        """
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise UsageError(f"a limit of {most!r}: it is a number of tasks, and 0 pauses")
        known = {task.template or task.name for task in self.spec.tasks}
        if template is not None and template not in known:
            near = get_close_matches(template, known, 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UsageError(f"run {self.workflow_id} has no template {template!r}{hint}")
        self._standing.at(now)
        self._standing.is_changed = True
        self._caps.set(most, template)
        self._limit()

    def _limit(self) -> None:
        limited = limited_tasks(self.spec, self._caps.limited)
        self._table.limit(limited)
        self._frontier.limit(limited)

    @property
    def caps(self) -> Caps:
        """How many tasks may run at a time now."""
        return self._caps

    def _indexes(self, names: Iterable[str]) -> list[int]:
        index = self._shape.index
        for name in names:
            if name not in index:
                raise UnknownTask(name, self.workflow_id, get_close_matches(name, self.names, 3))
        return [index[name] for name in names]

    def _refuse_while_cancelling(self) -> None:
        if self.status is RunStatus.CANCELLING:
            running = self._table.counts[RUNNING]
            raise RunBusy(
                f"run {self.workflow_id} is being cancelled; wait until its {running} running task(s) have ended"
            )

    def _reset(self, tasks: Sequence[int], now: float, growths: Mapping[int, Growth | None] | None = None) -> None:
        table, frontier = self._table, self._frontier
        self._standing.at(now)
        self._standing.reset(is_running=table.counts[RUNNING] > 0)
        self._generation += bool(tasks)
        for task in tasks:
            self._standing.tripping -= table.states[task] == FAILED and self._attempts.trips(task)
            if table.states[task] >= COMPLETED:
                frontier.restarted(task)
            frontier.forget(task)
            if table.states[task] != PENDING:
                table.move(task, PENDING)
            if task in table.queues:
                frontier.ready.route(task, self._shape.queues[task])
            table.clear(task, self._generation)
            if growths and (growth := growths[task]) is not None:
                self.ask(task, growth.resources, growth.queue)
                frontier.ready.route(task, growth.queue)
        for task in tasks:
            if table.states[task] == PENDING:
                frontier.examine(task, self._standing.text)
        self._conditions.settle(self._standing.text)  # what cannot be read stays due, and the next dispatch says so

    # --- what is to be done

    def dispatch(
        self, now: float, room: Mapping[str, int] | Callable[[str], int | None] | None = None
    ) -> list[Dispatch]:
        """Decide what is due and mark running what may run now, by (priority descending, definition order).

        `room`: how many more tasks the executor of a queue takes; None, or no answer, is no limit.
        """
        self._standing.at(now)
        if self.cancel_requested:
            self._attempts.cancel_waiting(None)
            return []
        if self._frontier.delays:
            self._frontier.release(now)
        if self._frontier.due and (unread := self._conditions.settle(self._standing.text)):
            raise unread
        counts, most = self._table.counts, self._caps.most
        limit = UNLIMITED if most is None else most - counts[RUNNING]
        if limit <= 0 or not counts[READY]:
            return []
        chosen = self._frontier.ready.take(self._table.states, limit, partial(_room, room), self._free_places)
        return self._attempts.launch(chosen) if chosen else []

    def _free_places(self, template: str) -> int:
        most = self._caps.of(template)
        return UNLIMITED if most is None else most - self._table.busy[template]

    def undo(self, dispatches: Iterable[Dispatch]) -> None:
        """Take back dispatches that executors did not take: they are ready as before."""
        self._attempts.undo(dispatches)

    # --- what is to be saved

    def take_changes(self) -> StateChanges:
        """Everything that changed since the last call. The entries are shared, not copied: treat them as immutable."""
        self._standing.is_changed = self._standing.has_just_launched = False
        tasks, head = self._table.take_changed(), self._head()
        taking = self._mirror.add(tasks)
        document = partial(self._document_at, taking, head)
        return StateChanges(head, tasks, self.counts, document, self._table.count_groups())

    def document(self) -> dict[str, Any]:
        """The whole state document; O(tasks)."""
        names, entry = self.names, self._table.entry
        tasks = {names[task]: document for task in range(len(names)) if (document := entry(task))}
        return {**self._head(), "tasks": tasks}

    def _document_at(self, taking: int, head: dict[str, Any]) -> dict[str, Any]:
        tasks = self._mirror.at(taking)
        return self.document() if tasks is None else {**head, "tasks": tasks}

    def _head(self) -> dict[str, Any]:
        status, standing = self.status, self._standing
        error = None if status is RunStatus.COMPLETED else standing.error
        limits = self._caps.document()
        return head_of(self.workflow_id, status, standing.cancel_requested, standing.text, error, limits)


def _room(room: Mapping[str, int] | Callable[[str], int | None] | None, queue: str) -> int:
    answer = None if room is None else room.get(queue) if isinstance(room, Mapping) else room(queue)
    return UNLIMITED if answer is None else answer
