"""The life of attempts: launched, begun, reported, timed out, tried again (facts: jobq, sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagkit.engine import retry
from dagkit.engine.alarms import Alarms
from dagkit.engine.frontier import Frontier
from dagkit.engine.moves import CANCELLED, COMPLETED, FAILED, PENDING, READY, RUNNING
from dagkit.engine.scaling import Growth, QueueLimits, grow, runtime_of
from dagkit.engine.shape import Shape
from dagkit.engine.standing import Standing
from dagkit.engine.table import TaskTable
from dagkit.engine.times import from_text, to_text
from dagkit.model.messages import AttemptKey, Completion, Started
from dagkit.model.states import FailureKind

__all__ = ["Attempts", "Dispatch"]

NO_MESSAGE = "the task failed without a message"


@dataclass(slots=True)
class Dispatch:
    """A task that is to be handed to an executor now."""

    index: int
    name: str
    attempt: int
    generation: int
    queue: str
    resources: dict[str, Any] | None = None
    """What the attempt asks for, where that is not what the definition says."""


class Attempts:
    """Moves tasks as their attempts come and go.

    Args:
        reporting: Queues whose executor says when an attempt begins; timeouts wait for that.
        free: How many attempts of a task may be lost to the machinery before they are charged.
        limits: The most that one task may ask of a queue, by queue.

    Attributes:
        timeouts: When running tasks will have run for too long.
    """

    __slots__ = (
        "_free",
        "_frontier",
        "_handed_over",
        "_limits",
        "_reporting",
        "_shape",
        "_standing",
        "_table",
        "_workflow_id",
        "timeouts",
    )

    def __init__(
        self,
        workflow_id: str,
        shape: Shape,
        table: TaskTable,
        frontier: Frontier,
        standing: Standing,
        *,
        reporting: frozenset[str],
        free: int,
        limits: Mapping[str, QueueLimits],
    ) -> None:
        self._workflow_id = workflow_id
        self._shape, self._table, self._frontier, self._standing = shape, table, frontier, standing
        self._reporting, self._free, self._limits = reporting, free, limits
        self._handed_over: dict[int, float] = {}
        self.timeouts = Alarms()

    # --- out

    def launch(self, tasks: list[int]) -> list[Dispatch]:
        """ready -> running, each with the next attempt number."""
        table, shape = self._table, self._shape
        move, attempts, generations, started = table.move, table.attempts, table.generations, table.started
        names, queues, timeouts, rare = shape.names, shape.queues, shape.timeouts, table.rare
        text, reporting, runtimes = self._standing.text, self._reporting, shape.runtimes
        self._standing.launch()
        dispatches = []
        for task in tasks:
            move(task, RUNNING)
            attempt = attempts[task] = attempts[task] + 1
            queue, resources = queues[task], None
            if rare[task]:
                table.not_before.pop(task, None)
                queue, resources = table.queues.get(task, queue), table.requests.get(task)
            started[task] = None if queue in reporting else text
            if timeouts[task] or task in runtimes:
                self._await(task)
            dispatches.append(Dispatch(task, names[task], attempt, generations[task], queue, resources))
        return dispatches

    def undo(self, dispatches: Iterable[Dispatch]) -> None:
        """running -> ready, as if they had not been launched."""
        table = self._table
        for item in dispatches:
            task = item.index
            if (table.states[task], table.attempts[task], table.generations[task]) == (
                RUNNING,
                item.attempt,
                item.generation,
            ):
                self._stop_clocks(task)
                table.attempts[task] = item.attempt - 1
                table.started[task] = None
                self._frontier.make_ready(task)
        if not table.counts[RUNNING]:
            self._standing.unlaunch()

    def resume(self, task: int) -> None:
        """Arrange the timeout of a task that is running by a loaded document."""
        limit_s, started = self._limit_s(task), self._table.started[task]
        if limit_s and started is not None:
            self.timeouts.set(task, from_text(started) + limit_s)

    def _await(self, task: int) -> None:
        now = self._standing.now or 0.0
        if self._table.started[task] is None:
            self._handed_over[task] = now
        elif self._shape.timeouts[task]:
            self.timeouts.set(task, now + self._shape.timeouts[task])

    def _limit_s(self, task: int) -> float:
        """For how long it may run, 0 for no limit: its timeout, and what it asks for where a queue says when it began.

        Where nobody says so, what it asks for would be used up by waiting in the queue.
        """
        timeout_s: float = self._shape.timeouts[task]
        queue = self._table.queues.get(task, self._shape.queues[task])
        if queue not in self._reporting:
            return timeout_s
        asked_s = self._shape.runtimes.get(task, 0.0)
        if task in self._table.requests:
            asked_s = runtime_of(self._table.requests[task])
        return min((limit for limit in (timeout_s, asked_s) if limit), default=0.0)

    # --- back

    def counts(self, task: int, completion: Completion) -> bool:
        """Whether a completion says anything new: rules 1 to 5 of facts: jobq, section 5."""
        table = self._table
        state, attempt = table.states[task], completion.attempt
        if state >= COMPLETED or task in self._shape.merges:
            return False
        if completion.generation is not None and completion.generation != table.generations[task]:
            return False
        if attempt is None:
            return state != PENDING
        current = table.attempts[task]
        return attempt >= current if state == RUNNING else attempt > current

    def take(self, task: int, completion: Completion) -> None:
        """Follow a completion that counts: rules 6 to 10."""
        table = self._table
        self._standing.is_launched = True
        if completion.attempt is not None:
            table.attempts[task] = completion.attempt
        elif table.states[task] == READY:
            table.attempts[task] += 1
        table.usages[task] = usage = completion.usage
        if usage and table.started[task] is None and "started_at" in usage:
            table.started[task] = to_text(usage["started_at"])
        if completion.success:
            self.complete(task, completion.output_ref)
        else:
            self.fail(task, completion.kind, completion.error, completion.output_ref)

    def begin(self, task: int, report: Started, now: float) -> bool:
        """The clock of a running attempt starts. False if it is another attempt that runs."""
        table = self._table
        if (RUNNING, report.generation, report.attempt) != (
            table.states[task],
            table.generations[task],
            table.attempts[task],
        ):
            return False
        at = min(max(report.at, self._handed_over.pop(task, 0.0)), now)  # another host's clock may be off
        table.started[task] = to_text(at)
        table.touch(task)
        self.resume(task)
        return True

    def expire(self, now: float) -> list[AttemptKey]:
        """Fail what has run for too long; returns the attempts."""
        table, shape = self._table, self._shape
        keys = []
        for task in self.timeouts.due(now):
            keys.append(AttemptKey(self._workflow_id, shape.names[task], table.generations[task], table.attempts[task]))
            self.fail(task, FailureKind.TIMEOUT, f"timed out after {self._limit_s(task):g} s", None)
        return keys

    def complete(self, task: int, output: str | None) -> None:
        """Rule 7, also for a task whose output is kept from elsewhere."""
        table = self._table
        table.move(task, COMPLETED)
        table.outputs[task], table.ended[task] = output, self._standing.text
        if table.rare[task]:
            table.set_error(task, None)
            table.not_before.pop(task, None)
        self._stop_clocks(task)
        if self._shape.children[task]:
            self._frontier.ended(task, self._standing.text)

    def fail(self, task: int, kind: FailureKind | None, error: str | None, output: str | None) -> None:
        """Rules 8 to 10."""
        table, standing = self._table, self._standing
        self._stop_clocks(task)
        if standing.cancel_requested and kind in (None, FailureKind.CANCELLED):
            self._end(task, CANCELLED, error or "cancelled", FailureKind.CANCELLED, output)
            return
        if retry.is_free(kind, table.uncharged[task], self._free):
            table.uncharged[task] += 1
            table.rare[task] = 1
        attempt, uncharged, retries = table.attempts[task], table.uncharged[task], self._shape.retries[task]
        is_stopping = standing.cancel_requested or standing.is_tripped
        if not is_stopping and retry.has_attempts_left(kind, attempt, uncharged, retries):
            self._try_again(task, kind, error or NO_MESSAGE)
        else:
            self._give_up(task, kind, error or NO_MESSAGE, output)

    def _try_again(self, task: int, kind: FailureKind | None, error: str) -> None:
        table, frontier = self._table, self._frontier
        self._remember(task, kind)
        notes = self._grow(task, kind)
        table.set_error(task, _noted(error, notes), kind)
        table.outputs[task] = table.started[task] = None
        table.touch(task)
        delay_s = retry.delay_before_next(table.attempts[task], self._shape.delays.get(task, ()))
        if delay_s:
            table.set_not_before(task, (self._standing.now or 0.0) + delay_s)
        if table.states[task] == RUNNING:
            frontier.make_ready(task)
        elif table.states[task] == READY:
            frontier.offer(task)
        else:  # the ends of its parents were lost with an unsaved step; it runs again when they are known
            frontier.examine(task, self._standing.text)

    def _remember(self, task: int, kind: FailureKind | None) -> None:
        """Keep what the attempt that has just failed had, used, and died of, if it asked for or was measured at all."""
        table = self._table
        usage, table.usages[task] = table.usages[task], None
        if not usage and not self._shape.spec.tasks[task].resources:
            return
        if not usage and (started := table.started[task]) is not None and self._standing.now is not None:
            usage = {"wall_s": round(max(0.0, self._standing.now - from_text(started)), 3)}
        account: dict[str, Any] = {"attempt": table.attempts[task], "kind": (kind or FailureKind.USER).value}
        if task in table.requests:
            account["resources"] = table.requests[task]
        if task in table.queues:
            account["queue"] = table.queues[task]
        table.add_past(task, {**account, **(usage or {})})

    def _grow(self, task: int, kind: FailureKind | None) -> tuple[str, ...]:
        """Ask for more where there was too little of it; says what changed."""
        growth = self.growth(task, kind)
        if growth is None:
            return ()
        table, queue = self._table, self._shape.queues[task]
        before = table.queues.get(task, queue)
        table.set_request(task, growth.resources, growth.queue if growth.queue != queue else None)
        if growth.queue == before:
            return growth.notes
        self._frontier.ready.route(task, growth.queue)
        return (*growth.notes, f"queue {before} -> {growth.queue}")

    def growth(self, task: int, kind: FailureKind | None) -> Growth | None:
        """What a task would ask for after a failure of this kind; None if no more than now."""
        if kind not in (FailureKind.MEMORY, FailureKind.TIMEOUT):
            return None
        spec, queue = self._shape.spec.tasks[task], self._shape.queues[task]
        resources = self._table.requests.get(task, spec.resources) or {}
        return grow(resources, queue, spec.resource_scales, kind, spec.fallback_queues, self._limits)

    def _give_up(self, task: int, kind: FailureKind | None, error: str, output: str | None) -> None:
        standing = self._standing
        standing.error = standing.error or f"{self._shape.names[task]}: {error.strip().partition(chr(10))[0][:200]}"
        self._end(task, FAILED, error, kind, output)
        if self.trips(task):
            standing.tripping += 1
            standing.is_tripped = True
            self.cancel_waiting("fail fast")

    def _end(self, task: int, state: int, error: str, kind: FailureKind | None, output: str | None) -> None:
        table = self._table
        table.move(task, state)
        table.outputs[task], table.ended[task] = output, self._standing.text
        table.not_before.pop(task, None)
        table.set_error(task, error, kind)
        self._frontier.ended(task, self._standing.text)

    def trips(self, task: int) -> bool:
        """Whether a task's final failure stops a fail-fast run: not where more memory or time could have helped."""
        helped = self._table.kinds.get(task) in (FailureKind.MEMORY, FailureKind.TIMEOUT) and task in self._shape.scaled
        return self._shape.spec.fail_fast and not helped

    def cancel_waiting(self, error: str | None) -> None:
        """Cancel every pending and ready task."""
        table = self._table
        waiting = [task for task, state in enumerate(table.states) if state < RUNNING]
        for task in waiting:
            table.move(task, CANCELLED)
            table.ended[task] = self._standing.text
            table.not_before.pop(task, None)
            table.set_error(task, error)
            self._frontier.forget(task)
        for task in waiting:
            self._frontier.ended(task, self._standing.text)

    def _stop_clocks(self, task: int) -> None:
        if self.timeouts:
            self.timeouts.clear(task)
        if self._handed_over:
            self._handed_over.pop(task, None)
        if self._frontier.delays:
            self._frontier.delays.clear(task)


def _noted(error: str, notes: Sequence[str]) -> str:
    """The error, with what the next attempt will ask for on its first line, where people see it."""
    if not notes:
        return error
    first, newline, rest = error.partition("\n")
    return f"{first}; next attempt: {', '.join(notes)}{newline}{rest}"
