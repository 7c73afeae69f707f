"""What is known of every task of a run, in arrays by task index; the only place where a task's state changes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from dagkit.engine.moves import CODES, LEGAL, PENDING, RUNNING, STATES, WIDTH
from dagkit.engine.shape import Shape
from dagkit.engine.times import from_text, to_text
from dagkit.errors import CorruptState
from dagkit.model.records import Counts
from dagkit.model.states import FailureKind

__all__ = ["TaskTable"]

_MOST_PAST = 10
_WORDS = tuple(state.value for state in STATES)


class TaskTable:
    """Mutable facts about tasks, counts of states, and which tasks changed since `take_changed`.

    Whoever writes to one of the arrays calls `touch` (moves do). Rare facts are dictionaries; a task that has any is
    marked in `rare`, so that building the entry of the others is quick.
    """

    __slots__ = (
        "_group_counts",
        "_group_of",
        "_groups",
        "_limited",
        "_merges",
        "_names",
        "attempts",
        "busy",
        "changed",
        "counts",
        "dirty",
        "ended",
        "errors",
        "failed",
        "generations",
        "kinds",
        "not_before",
        "outputs",
        "past",
        "queues",
        "rare",
        "requests",
        "satisfied",
        "started",
        "states",
        "uncharged",
        "usages",
    )

    def __init__(self, shape: Shape) -> None:
        n = len(shape.names)
        zeros = array("l", [0]) * n
        self.states = bytearray(n)
        self.counts = [n - len(shape.merges)] + [0] * (WIDTH - 1)
        """Tasks by state code, without merge nodes."""
        self.satisfied, self.failed = zeros[:], zeros[:]
        """Parents that have ended well and otherwise; a cache of what the parents' states say."""
        self.attempts, self.generations, self.uncharged = zeros[:], zeros[:], zeros[:]
        self.outputs: list[str | None] = [None] * n
        self.started: list[str | None] = [None] * n
        self.ended: list[str | None] = [None] * n
        self.usages: list[dict[str, Any] | None] = [None] * n
        self.errors: dict[int, str] = {}
        self.kinds: dict[int, FailureKind] = {}
        self.not_before: dict[int, float] = {}
        self.past: dict[int, list[dict[str, Any]]] = {}
        """What earlier attempts used and how they ended, where there were any; the latest ones."""
        self.requests: dict[int, dict[str, Any]] = {}
        """Resources of the next attempt, where they are not those of the definition."""
        self.queues: dict[int, str] = {}
        """Its queue, likewise."""
        self.rare = bytearray(n)
        self.busy: dict[str, int] = dict.fromkeys(shape.limited.values(), 0)
        """Running tasks by template, where templates have limits."""
        self._limited, self._merges, self._names = shape.limited, shape.merges, shape.names
        self._groups, self._group_of = shape.groups, shape.group_of
        self._group_counts = [0] * (WIDTH * len(shape.groups))
        for task, group in enumerate(shape.group_of):
            self._group_counts[group * WIDTH + PENDING] += task not in shape.merges
        self.changed: list[int] = []
        """Tasks that changed since `take_changed`; those that are marked in `dirty`, each once."""
        self.dirty = bytearray(n)

    # --- changing

    def move(self, task: int, after: int) -> None:
        """Change a task's state. A move that `MOVES` does not list is a bug of the engine."""
        states = self.states
        before = states[task]
        if not LEGAL[before * WIDTH + after]:
            raise RuntimeError(f"{self._names[task]} cannot go from {_WORDS[before]} to {_WORDS[after]}")
        states[task] = after
        if not self.dirty[task]:
            self.dirty[task] = 1
            self.changed.append(task)
        if self._merges and task in self._merges:
            return
        counts = self.counts
        counts[before] -= 1
        counts[after] += 1
        if self._groups:
            group = self._group_of[task] * WIDTH
            self._group_counts[group + before] -= 1
            self._group_counts[group + after] += 1
        if self._limited and (before == RUNNING or after == RUNNING) and task in self._limited:
            self.busy[self._limited[task]] += 1 if after == RUNNING else -1

    def limit(self, limited: Mapping[int, str]) -> None:
        """From now on these tasks count against the limit of their template."""
        self._limited = dict(limited)
        self.busy = dict.fromkeys(limited.values(), 0)
        for task, template in limited.items():
            self.busy[template] += self.states[task] == RUNNING

    def touch(self, task: int) -> None:
        """Say that something about a task other than its state changed."""
        if not self.dirty[task]:
            self.dirty[task] = 1
            self.changed.append(task)

    def set_error(self, task: int, error: str | None, kind: FailureKind | None = None) -> None:
        self.rare[task] = 1
        if error is None:
            self.errors.pop(task, None)
        else:
            self.errors[task] = error
        if kind is None:
            self.kinds.pop(task, None)
        else:
            self.kinds[task] = kind

    def set_not_before(self, task: int, at: float) -> None:
        self.not_before[task] = from_text(to_text(at))  # as it will be after a restart
        self.rare[task] = 1

    def set_request(self, task: int, resources: dict[str, Any], queue: str | None) -> None:
        """What the next attempt asks for; `queue` is None for that of the definition."""
        self.requests[task] = resources
        if queue is None:
            self.queues.pop(task, None)
        else:
            self.queues[task] = queue
        self.rare[task] = 1
        self.touch(task)

    def add_past(self, task: int, attempt: dict[str, Any]) -> None:
        """Remember an attempt that is followed by another one."""
        self.past[task] = [*self.past.get(task, ())[-_MOST_PAST + 1 :], attempt]
        self.rare[task] = 1

    def clear(self, task: int, generation: int) -> None:
        """Forget every attempt of a task; what comes next is of another generation."""
        self.generations[task], self.attempts[task], self.uncharged[task] = generation, 0, 0
        self.outputs[task] = self.started[task] = self.ended[task] = self.usages[task] = None
        self.set_error(task, None)
        for rare in (self.not_before, self.requests, self.queues, self.past):
            rare.pop(task, None)
        self.rare[task] = 1
        self.touch(task)

    # --- reading

    def count(self) -> Counts:
        pending, ready, running, completed, failed, upstream_failed, skipped, cancelled = self.counts
        return Counts(completed, failed, upstream_failed, skipped, cancelled, running, ready, pending)

    def count_groups(self) -> dict[str, list[int]]:
        """Tasks of each group by state, in the order of `STATES`; empty if the groups are too many."""
        counts = self._group_counts
        return {name: counts[at * WIDTH : (at + 1) * WIDTH] for at, name in enumerate(self._groups)}

    @property
    def has_changed(self) -> bool:
        return bool(self.changed)

    def take_changed(self) -> list[tuple[int, str, dict[str, Any]]]:
        """(index, name, entry) of what changed since the last call."""
        tasks, self.changed = self.changed, []
        dirty, names, entry = self.dirty, self._names, self.entry
        for task in tasks:
            dirty[task] = 0
        return [(task, names[task], entry(task)) for task in tasks]

    def entry(self, task: int) -> dict[str, Any]:
        """The task in the state document: only what is not at its default (facts: jobq 7.3)."""
        entry: dict[str, Any] = {}
        if code := self.states[task]:
            entry["state"] = _WORDS[code]
        if satisfied := self.satisfied[task]:
            entry["completed_parents"] = satisfied
        if (output := self.outputs[task]) is not None:
            entry["output_ref"] = output
        if (started := self.started[task]) is not None:
            entry["started_at"] = started
        if (ended := self.ended[task]) is not None:
            entry["completed_at"] = ended
        if attempt := self.attempts[task]:
            entry["attempt_no"] = attempt
        if usage := self.usages[task]:
            entry["usage"] = usage
        if failed := self.failed[task]:
            entry["failed_parents"] = failed
        if self.rare[task]:
            self._add_rare(task, entry)
        return entry

    def _add_rare(self, task: int, entry: dict[str, Any]) -> None:
        if task in self.errors:
            entry["error"] = self.errors[task]
        if generation := self.generations[task]:
            entry["generation"] = generation
        if uncharged := self.uncharged[task]:
            entry["uncharged"] = uncharged
        if task in self.kinds:
            entry["kind"] = self.kinds[task].value
        if task in self.not_before:
            entry["not_before"] = to_text(self.not_before[task])
        if task in self.requests:
            entry["resources"] = self.requests[task]
        if task in self.queues:
            entry["queue"] = self.queues[task]
        if task in self.past:
            entry["past"] = self.past[task]

    # --- loading

    def load(self, task: int, entry: Mapping[str, Any]) -> None:
        """Take over an entry of a state document, compact or with every key. The counts of parents are not read.

        Raises `CorruptState` on values that cannot be.
        """
        get = entry.get
        code = CODES.get(get("state") or "pending")
        if code is None:
            raise CorruptState(f"task {self._names[task]!r} is in an unknown state {get('state')!r}")
        self.states[task] = code
        if task not in self._merges:
            self.counts[PENDING] -= 1
            self.counts[code] += 1
            if self._groups:
                group = self._group_of[task] * WIDTH
                self._group_counts[group + PENDING] -= 1
                self._group_counts[group + code] += 1
            if code == RUNNING and task in self._limited:
                self.busy[self._limited[task]] += 1
        try:
            self.attempts[task] = get("attempt_no") or 0
            self.generations[task] = get("generation") or 0
            self.uncharged[task] = get("uncharged") or 0
            kind = get("kind")
            self.set_error(task, self._text(get("error")), None if kind is None else FailureKind(kind))
        except (TypeError, ValueError, OverflowError) as problem:
            raise CorruptState(f"task {self._names[task]!r}: {problem}") from problem
        self.outputs[task] = self._text(get("output_ref"))
        self.started[task], self.ended[task] = self._text(get("started_at")), self._text(get("completed_at"))
        self.usages[task] = get("usage")
        if (not_before := get("not_before")) is not None:
            self.not_before[task] = from_text(not_before)
        if (resources := get("resources")) is not None:
            self.requests[task] = resources
        if (queue := self._text(get("queue"))) is not None:
            self.queues[task] = queue
        if isinstance(past := get("past"), list):
            self.past[task] = past
        if self.generations[task] or self.uncharged[task] or not_before is not None or resources or queue or past:
            self.rare[task] = 1

    def _text(self, value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        raise CorruptState(f"{value!r} stands where a text belongs")
