"""What an action would do, in numbers, before it does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagkit.model.states import FAILED_STATES, TaskState

if TYPE_CHECKING:
    from dagkit.run import Run

__all__ = ["Effect", "effect_of_rerun", "effect_of_retry"]


@dataclass(frozen=True, slots=True)
class Effect:
    """How many tasks an action is about and how many more it takes along.

    Attributes:
        tasks: Those that were chosen: failed ones for a retry, the named ones for a rerun.
        others: Those that follow: not run because of the failed ones, or dependent on the rerun ones.
        completed: How many of all of them are completed, and would lose what they have.
        is_refused: Why it cannot be done now; empty if it can.
    """

    tasks: int
    others: int
    completed: int = 0
    is_refused: str = ""


def effect_of_retry(run: Run, tasks: Sequence[str] | None = None) -> Effect:
    """Of `run.retry(tasks)`: tasks that failed or were cancelled, and what was given up because of them."""
    entries = run.store.task_entries(run.id)
    index = run.spec.index
    states = {name: TaskState(entry.get("state", "pending")) for name, entry in entries.items()}
    failed = {name for name, state in states.items() if state in FAILED_STATES and name in index}
    if tasks is not None:
        failed &= _with_all_below(run, tasks)
    given_up = sum(states[name] is TaskState.UPSTREAM_FAILED for name in failed)
    return Effect(len(failed) - given_up, given_up)


def effect_of_rerun(run: Run, tasks: Sequence[str]) -> Effect:
    """Of `run.rerun(tasks)`: they and all that depends on them."""
    below = _with_all_below(run, tasks)
    entries = run.store.task_entries(run.id, below)
    states = [entries.get(name, {}).get("state") for name in below]
    running = [name for name in below if entries.get(name, {}).get("state") == "running"]
    refused = f"{running[0]} is running; wait for it or cancel the run first" if running else ""
    return Effect(len(set(tasks)), len(below) - len(set(tasks)), states.count("completed"), refused)


def _with_all_below(run: Run, tasks: Sequence[str]) -> set[str]:
    spec = run.spec
    children, names = spec.graph.children, spec.tasks
    found = {spec.index[name] for name in tasks}
    left = list(found)
    while left:
        for child in children[left.pop()]:
            if child not in found:
                found.add(child)
                left.append(child)
    return {names[place].name for place in found if not names[place].name.startswith("__merge_")}
