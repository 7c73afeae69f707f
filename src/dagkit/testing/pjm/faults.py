"""What goes wrong on a simulated PJM, when it is told to."""

from __future__ import annotations

import fnmatch
import random
from dataclasses import dataclass
from typing import Final

from dagkit.testing.pjm.state import State

__all__ = ["KINDS", "Fault", "add_fault", "taken"]

#: Kinds by who meets them; what each does.
KINDS: Final = {
    # pjsub
    "accept-kill": "the job is accepted, and pjsub is killed before it says so",
    "accept-garbled": "the job is accepted, and the answer cannot be read",
    "accept-silent": "the job is accepted, and pjsub says nothing, with exit code 0",
    "submit-slow": "pjsub takes so many seconds more before it does anything",
    "submit-hang": "the job is accepted, and pjsub says so only after so many seconds",
    "submit-killed": "pjsub is killed before anything is accepted",
    "submit-fails": "pjsub fails with a code that nobody knows",
    "staging-error": "an error, with exit code 0 (0007)",
    "queue-full": "0072",
    "budget": "0079: the project's budget is used up",
    "restricted": "0079: the operator allows no long jobs for now",
    "says": "pjsub refuses with this text",
    "kill-caller-before": "whoever called pjsub is killed before anything is accepted",
    "kill-caller-after": "whoever called pjsub is killed when the job is accepted",
    # pjstat
    "stat-fails": "pjstat ends with 1",
    "stat-hangs": "pjstat says nothing for so many seconds",
    "stat-cut": "the answer of pjstat stops in the middle",
    "stat-empty": "pjstat answers with nothing",
    "stat-kills-caller": "whoever called pjstat is killed",
    "history-empty": "pjstat -H knows nothing",
    "limits-fail": "pjstat --limit ends with 1",
    "limits-stale": "pjstat --limit answers as it did so many seconds ago",
    # any
    "warning": "a line of warning comes first",
    "delete-fails": "pjdel ends with 1",
    "delete-kills-caller": "whoever called pjdel is killed when it is accepted",
    # jobs
    "job-error": "the job goes to ERR (PJM code 140), and keeps its slot",
    "job-held": "the job is held, and keeps its slot",
    "job-requeued": "the job goes back to QUE while it runs",
    "job-moved": "the operator moves the waiting job to another resource group",
    "job-preempted": "the job is cancelled for another one (PJM code 18)",
    "job-memory": "the job is killed for its memory (PJM code 12)",
    "node-down": "the node of the job goes down while it runs (PJM code 20)",
    "job-vanishes": "nobody knows the job any more",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that happens now; `value` is seconds, a text or a resource group."""

    kind: str
    value: str = ""

    @property
    def seconds(self) -> float:
        return float(self.value or 0)


def add_fault(
    state: State,
    kind: str,
    *,
    match: str = "*",
    count: int | None = 1,
    prob: float = 1.0,
    value: str = "",
    for_s: float | None = None,
    after_s: float = 0.0,
) -> None:
    """`kind` will happen `count` times (None: always), where the name matches, from then on for so many seconds."""
    if kind not in KINDS:
        raise ValueError(f"no fault {kind!r}; there are {', '.join(KINDS)}")
    since = state.now() + after_s
    until = None if for_s is None else since + for_s
    state.do("INSERT INTO faults (kind, pattern, left, prob, value, until, since) VALUES (?, ?, ?, ?, ?, ?, ?)",
             kind, match, count, prob, value, until, since)  # fmt: skip


def taken(
    state: State,
    prefixes: tuple[str, ...],
    name: str = "",
) -> Fault | None:
    """The next fault of one of these kinds that happens to `name` now; it has happened then."""
    now = state.now()
    for number, kind, pattern, left, prob, value, until, since in state.do("SELECT * FROM faults ORDER BY id"):
        if not kind.startswith(prefixes) or not fnmatch.fnmatchcase(name, pattern) or now < since:
            continue
        if until is not None and now >= until:
            state.do("DELETE FROM faults WHERE id = ?", number)
            continue
        if prob < 1.0 and _roll(state) >= prob:
            continue
        if left == 1:
            state.do("DELETE FROM faults WHERE id = ?", number)
        elif left is not None:
            state.do("UPDATE faults SET left = left - 1 WHERE id = ?", number)
        return Fault(kind, value)
    return None


def _roll(state: State) -> float:
    """The next throw of a die that falls as it did the last time, whatever names were drawn."""
    rolls = int(state.setting("rolls", 0))
    state.set("rolls", rolls + 1)
    return random.Random(rolls).random()
