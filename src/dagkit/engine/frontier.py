"""What the end of a task means for those that wait: who may run now, who never will, whose condition is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dagkit.engine.alarms import Alarms
from dagkit.engine.moves import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PENDING,
    READY,
    SKIPPED,
    UPSTREAM_FAILED,
)
from dagkit.engine.policy import is_impossible, is_satisfied
from dagkit.engine.ready import ReadyTasks
from dagkit.engine.shape import Shape
from dagkit.engine.table import TaskTable

__all__ = ["Frontier"]


class Frontier:
    """Counts the ends of parents and moves pending tasks accordingly. Costs O(children) per end, never O(parents).

    Attributes:
        due: Pending tasks whose policy is satisfied and whose condition has to be evaluated, in order.
        waits: Pending tasks whose condition was unknown -> the parents whose end may decide it.
        delays: Ready tasks that may not be dispatched yet.
    """

    __slots__ = ("_holds", "_shape", "_table", "delays", "due", "ready", "waits")

    def __init__(self, shape: Shape, table: TaskTable) -> None:
        self._shape, self._table = shape, table
        self._holds = dict(shape.barriers)
        self.ready: ReadyTasks = shape.ready_tasks()
        self.delays = Alarms()
        self.due: dict[int, None] = {}
        self.waits: dict[int, frozenset[int]] = {}

    def limit(self, limited: Mapping[int, str]) -> None:
        """Sort what is ready anew, after the limits of templates have changed."""
        self.ready = self._shape.ready_tasks(limited)
        for task, queue in self._table.queues.items():
            self.ready.route(task, queue)
        for task, state in enumerate(self._table.states):
            if state == READY:
                self.offer(task)

    # --- ends

    def ended(self, task: int, at: str | None) -> None:
        """Tell the children of a task that has just ended, and theirs in turn, that it ended at `at`."""
        shape, table = self._shape, self._table
        states, children, needs = table.states, shape.children, shape.needs
        dirty, changed = table.dirty, table.changed
        ends = [task]
        for parent in ends:
            ended_well = states[parent] in (COMPLETED, SKIPPED)
            counter = table.satisfied if ended_well else table.failed
            reason = ""
            for child in children[parent]:
                counter[child] += 1
                if not dirty[child]:  # table.touch, without a call per edge
                    dirty[child] = 1
                    changed.append(child)
                if states[child] != PENDING or (ended_well and counter[child] < needs[child]):
                    continue
                if (ended_well and needs[child] >= 0) or self.is_satisfied(child):
                    if self._proceed(child, parent, at):
                        ends.append(child)
                elif self._is_impossible(child):
                    reason = reason or self._reason(parent)
                    self._give_up(child, reason, at)
                    ends.append(child)
            if parent in shape.held:
                self._open(shape.held[parent])

    def restarted(self, task: int) -> None:
        """Take back `ended` for a task that is about to leave a terminal state. Its children are not examined."""
        shape, table = self._shape, self._table
        counter = table.satisfied if table.states[task] in (COMPLETED, SKIPPED) else table.failed
        for child in shape.children[task]:
            counter[child] -= 1
            table.touch(child)
        for child in shape.held.get(task, ()):
            self._holds[child] += 1

    def recount(self, ended: Iterable[int]) -> None:
        """Set the counts of parents anew from the tasks that have ended, all of them."""
        shape, table = self._shape, self._table
        for task in ended:
            counter = table.satisfied if table.states[task] in (COMPLETED, SKIPPED) else table.failed
            for child in shape.children[task]:
                counter[child] += 1
            for child in shape.held.get(task, ()):
                self._holds[child] -= 1

    # --- pending tasks

    def examine(self, task: int, at: str | None) -> None:
        """See what a pending task is to become by its parents' states; tells its children if it ends."""
        if self.is_satisfied(task):
            if self._proceed(task, None, at):
                self.ended(task, at)
        elif self._is_impossible(task):
            self._give_up(task, self._reason(self._failed_parent(task)), at)
            self.ended(task, at)

    def is_satisfied(self, task: int) -> bool:
        shape, table = self._shape, self._table
        need = shape.needs[task]
        if need >= 0:
            return table.satisfied[task] >= need
        return is_satisfied(need, len(shape.parents[task]), table.satisfied[task], table.failed[task])

    def is_held(self, task: int) -> bool:
        """Whether the barrier of a wide fan-in keeps this task back."""
        return self._holds.get(task, 0) > 0

    def make_ready(self, task: int) -> None:
        """pending or running -> ready, to be dispatched when its delay, if it has one, is over."""
        self._table.move(task, READY)
        self.offer(task)

    def offer(self, task: int) -> None:
        """Put a ready task among those to be dispatched."""
        at = self._table.not_before.get(task)
        if at is None:
            self.ready.add(task)
        else:
            self.ready.withdraw(task)
            self.delays.set(task, at)

    def forget(self, task: int) -> None:
        """Drop everything that is planned for a task."""
        self.ready.withdraw(task)
        self.delays.clear(task)
        self.due.pop(task, None)
        self.waits.pop(task, None)

    def release(self, now: float) -> None:
        """Offer the tasks whose delay is over."""
        for task in self.delays.due(now):
            if self._table.states[task] == READY:
                self.ready.add(task)

    def _proceed(self, task: int, parent: int | None, at: str | None) -> bool:
        """Take a pending task whose policy is satisfied a step further. True if it ended by it."""
        shape = self._shape
        if task in shape.merges:
            self._table.move(task, COMPLETED)
            self._table.ended[task] = at
            return True
        if self._holds and self.is_held(task):
            return False
        if task not in shape.conditions:
            self.make_ready(task)
        elif parent is None or task not in self.waits or parent in self.waits[task]:
            self.due[task] = None
        return False

    def _open(self, held: list[int]) -> None:
        for task in held:
            self._holds[task] -= 1
            if not self._holds[task] and self._table.states[task] == PENDING and self.is_satisfied(task):
                self._proceed(task, None, None)

    # --- failures upstream

    def _is_impossible(self, task: int) -> bool:
        shape, table = self._shape, self._table
        failed = table.failed[task]
        return failed > 0 and is_impossible(shape.needs[task], len(shape.parents[task]), table.satisfied[task], failed)

    def _give_up(self, task: int, reason: str, at: str | None) -> None:
        table = self._table
        table.move(task, UPSTREAM_FAILED)
        table.ended[task] = at
        table.set_error(task, reason)

    def _failed_parent(self, task: int) -> int:
        states = self._table.states
        return next(p for p in self._shape.parents[task] if states[p] in (FAILED, UPSTREAM_FAILED, CANCELLED))

    def _reason(self, parent: int) -> str:
        """What to say of tasks that this failed parent keeps from running: the name of the task where it began."""
        state = self._table.states[parent]
        if state == UPSTREAM_FAILED and parent in self._table.errors:
            return self._table.errors[parent]
        return f"upstream {self._shape.names[parent]} {'cancelled' if state == CANCELLED else 'failed'}"
