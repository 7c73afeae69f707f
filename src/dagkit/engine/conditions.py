"""Deciding the conditions of tasks whose policy is satisfied, from the outputs of their parents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dagkit.engine.frontier import Frontier
from dagkit.engine.moves import COMPLETED, FAILED, PENDING, SKIPPED
from dagkit.engine.shape import Shape
from dagkit.engine.table import TaskTable
from dagkit.errors import BackendError
from dagkit.model.condition import Condition

__all__ = ["Conditions"]

STORED = "blob:"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a condition came to: run the task, skip it for `reason`, or (None) wait for one of `waits_for` to end."""

    runs: bool | None
    reason: str = ""
    waits_for: frozenset[int] = frozenset()


class Conditions:
    """Decides what is due. Outputs are decoded when a condition needs them and kept until everything due is decided."""

    __slots__ = ("_decoded", "_frontier", "_parsed", "_read_output", "_shape", "_table")

    def __init__(
        self, shape: Shape, table: TaskTable, frontier: Frontier, read_output: Callable[[str], Any] | None
    ) -> None:
        self._shape, self._table, self._frontier, self._read_output = shape, table, frontier, read_output
        self._parsed: dict[str, Condition] = {}
        self._decoded: dict[int, Any] = {}

    def settle(self, at: str | None) -> BackendError | None:
        """Decide the conditions that are due, and those that become due by it.

        Those whose outputs cannot be read stay due; the first reason why is returned.
        """
        due, unread = self._frontier.due, {}
        while due:
            task = next(iter(due))
            del due[task]
            if self._table.states[task] != PENDING or not self._frontier.is_satisfied(task):
                continue
            try:
                self._follow(task, self._decide(task), at)
            except BackendError as problem:
                unread[task] = problem
        self._decoded.clear()
        due.update(dict.fromkeys(unread))
        return next(iter(unread.values()), None)

    def _follow(self, task: int, decision: Decision, at: str | None) -> None:
        frontier, table = self._frontier, self._table
        frontier.waits.pop(task, None)
        if decision.runs:
            frontier.make_ready(task)
        elif decision.runs is None:
            frontier.waits[task] = decision.waits_for
        else:
            table.move(task, SKIPPED)
            table.ended[task] = at
            table.set_error(task, decision.reason)
            frontier.ended(task, at)

    def _decide(self, task: int) -> Decision:
        shape, states = self._shape, self._table.states
        condition = self._condition(shape.conditions[task])
        parents = {shape.names[parent]: parent for parent in shape.parents[task]}
        needed = condition.inputs_needed(parents)
        pending = {name for name in needed if states[parents[name]] < COMPLETED}
        inputs: dict[str, Any] = {}
        for name, parent in parents.items():
            if name in needed and name not in pending:
                try:
                    inputs[name] = self._output(parent)
                except _Unreadable as problem:
                    return Decision(False, f"condition unknown: inputs.{name}: {problem}")
        verdict = condition.evaluate(inputs, pending)
        if verdict.value is not None:
            return Decision(verdict.value, "" if verdict.value else "condition false")
        if verdict.waits_for:
            return Decision(None, waits_for=frozenset([parents[name] for name in verdict.waits_for]))
        return Decision(False, "condition unknown: " + "; ".join(verdict.reasons))

    def _condition(self, text: str) -> Condition:
        if text not in self._parsed:
            self._parsed[text] = Condition.parse(text, None)
        return self._parsed[text]

    def _output(self, task: int) -> Any:
        """The decoded output of a task that has ended; None if it has none."""
        ref = self._table.outputs[task]
        if ref is None or self._table.states[task] not in (COMPLETED, FAILED):
            return None
        if task not in self._decoded:
            self._decoded[task] = self._stored(ref) if ref.startswith(STORED) else _inline(ref)
        return self._decoded[task]

    def _stored(self, ref: str) -> Any:
        if self._read_output is None:
            raise BackendError(f"a condition needs the output {ref}, and there is no store to read it from")
        try:
            return self._read_output(ref)
        except BackendError:
            raise
        except Exception as problem:  # it may unpickle an object of the user's, which may raise anything, for ever
            raise _Unreadable(f"cannot be decoded ({type(problem).__name__}: {problem})") from problem


class _Unreadable(Exception):
    """An output is there and cannot be decoded."""


def _inline(ref: str) -> Any:
    try:
        return json.loads(ref)
    except ValueError:  # an output ref that is not JSON is a string (facts: jobq 2.3)
        return ref
