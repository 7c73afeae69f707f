"""The state machine of a simulated PJM: brings every job to where it is now (facts: pjm 5 and 11)."""

from __future__ import annotations

import heapq
import json
import operator
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from dagkit.testing.pjm import faults, processes
from dagkit.testing.pjm.limits import note_peaks, run_room
from dagkit.testing.pjm.plans import Rule, plan_of, rules_of
from dagkit.testing.pjm.scheduling import Running, Waiting, choose
from dagkit.testing.pjm.state import ENDED, ON_NODES, Part, State, label
from dagkit.testing.pjm.statistics import write_statistics

__all__ = ["DELETABLE", "World"]

#: States in which pjdel is taken (facts: pjm 4).
DELETABLE: Final = ("ACC", "QUE", "RNA", "RUN", "ERR", "HLD", "SPP", "SPD", "RSM")
_LOOKAHEAD: Final = 100
#: What befalls a job while it runs: state, PJM code, signal, reason.
_DOOMS: Final = {
    "job-error": ("ERR", 140, 0, "INTERNAL ERROR"),
    "job-held": ("HLD", 4, 0, "ASHOLD"),
    "job-preempted": ("CCL", 18, 0, "ANOTHER JOB STARTED"),
    "job-memory": ("EXT", 12, 9, "LIMIT OVER MEMORY"),
    "node-down": ("EXT", 20, 0, "LOST COMM"),
    "job-requeued": ("QUE", 0, 0, "-"),
}
_COMPARISONS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_WAITING_DOOMS: Final = ("job-moved", "job-vanishes")

Outcome = Callable[[Part, str], None]
"""Called when a part's run is over, in the mode that runs nothing, with its script: does what it would have done."""


class Job(NamedTuple):
    """What a part is a part of."""

    name: str
    kind: str
    script: str
    directory: str
    options: dict[str, Any]


class World:
    """A machine at one moment, in one transaction of its state."""

    def __init__(self, state: State, outcome: Outcome | None = None) -> None:
        self.state, self.site, self._outcome = state, state.site, outcome
        self._parts: dict[tuple[int, int], Part] = {}
        self._heap: list[tuple[float, int, int]] = []
        self._changes: list[tuple[float, int, int, str, int]] = []
        self._rules: list[Rule] | None = None
        self._jobs: dict[int, Job] = {}
        self._with_statistics: list[tuple[int, int]] = []
        self._has_faults = bool(state.do("SELECT 1 FROM faults WHERE kind LIKE 'job-%' OR kind = 'node-down' LIMIT 1"))
        self._pass_at: float | None = state.setting("pass_at")
        self._had_pass_at = self._pass_at

    def go_on(self) -> None:
        """Everything that has happened until now happens, in its order."""
        now = self.state.now()
        self._load("next_at <= ?", now)
        if self.site.mode == "exec":
            self._note_ended(now)
        while True:
            event_at = self._heap[0][0] if self._heap else float("inf")
            pass_at = self._pass_at if self._pass_at is not None else float("inf")
            if min(event_at, pass_at) > now:
                break
            if event_at <= pass_at:
                at, job, sub = heapq.heappop(self._heap)
                part = self._parts[job, sub]
                if part.next_at == at:
                    self._step(part, at)
            else:
                self._pass_at = None
                self._schedule(pass_at)
        self.flush()

    def flush(self) -> None:
        """What was changed is written down."""
        self.state.save(self._parts.values())
        self._parts.clear()
        self._heap.clear()
        self.state.do_many("INSERT INTO changes (at, job, sub, st, pc) VALUES (?, ?, ?, ?, ?)", self._changes)
        self._changes.clear()
        for job, sub in self._with_statistics:
            write_statistics(self.state, job, sub)
        self._with_statistics.clear()
        if self._pass_at != self._had_pass_at:
            self.state.set("pass_at", self._pass_at)
            self._had_pass_at = self._pass_at

    def add(self, parts: Iterable[Part], at: float) -> None:
        """Parts of a job that was accepted."""
        for part in parts:
            self._parts[part.job, part.sub] = part
            self._changes.append((at, part.job, part.sub, "ACC", 0))
            if self.site.accept_s > 0 or part.depends is not None:
                part.wake(at + self.site.accept_s)
            else:
                self._arrive(part, at)
        self.flush()

    def force(self, part: Part, st: str, *, ec: int | None = None, pc: int = 0, sn: int = 0, reason: str = "-") -> None:
        """A part is in another state, whatever it was doing."""
        self._parts[part.job, part.sub] = part
        at = self.state.now()
        if st == "QUE":
            self._queue(part, at)
        else:
            if part.pid is not None and st != "RUN":
                processes.signal_part(self.state, part, signal.SIGKILL)
            self._end(part, at, st, ec, pc, sn, reason)
        self.flush()

    def delete(self, part: Part) -> None:
        """pjdel was accepted for it."""
        self._parts[part.job, part.sub] = part
        part.delete_at = self.state.now() + self.site.delete_s
        part.wake(part.due_at)
        self.flush()

    def look(self) -> None:
        """Nodes or limits have changed: the scheduler looks at the queue again."""
        self._ask_pass(self.state.now())
        self.flush()

    # --- loading and marking

    def _load(self, where: str, *values: object) -> None:
        for part in self.state.parts(where, *values):
            if (part.job, part.sub) not in self._parts:
                self._parts[part.job, part.sub] = part
                self._push(part)

    def _push(self, part: Part) -> None:
        if part.next_at is not None:
            heapq.heappush(self._heap, (part.next_at, part.job, part.sub))

    def _to(self, part: Part, st: str, at: float, due_at: float | None) -> None:
        if part.st == "RUN":
            part.stopped_at = at
        part.lst, part.st = part.st, st
        self._changes.append((at, part.job, part.sub, st, part.pc))
        part.wake(due_at)
        self._push(part)

    def _ask_pass(self, at: float) -> None:
        """The scheduler looks at the queue at its next turn."""
        every = self.site.schedule_s
        turn = at if every <= 0 else -(-at // every) * every
        self._pass_at = turn if self._pass_at is None else min(self._pass_at, turn)

    def _note_ended(self, now: float) -> None:
        for (job, sub), (ec, sn, restart, wall) in processes.ended(self.state).items():
            if (job, sub) not in self._parts:
                self._load("job = ? AND sub = ?", job, sub)
            part = self._parts.get((job, sub))
            if part is None or part.restarts != restart or part.st != "RUN":
                continue
            at = min(now, max(part.start_at or now, self.state.at_wall(wall)))
            if part.pc == 0:
                part.ec, part.sn = ec + (128 + sn if sn else 0), sn
            part.pid = None
            part.plan = json.dumps({"is_done": True})
            part.wake(at)
            self._push(part)

    # --- one part

    def _step(self, part: Part, at: float) -> None:
        if part.delete_at is not None and part.delete_at <= at:
            part.delete_at = None
            if part.st in DELETABLE:
                processes.signal_part(self.state, part, signal.SIGKILL)
                self._end(part, at, "CCL", None, 1, part.sn, "-")
                return
            part.wake(part.due_at)
            self._push(part)
            return
        steps: dict[str, Callable[[Part, float], None]] = {
            "ACC": self._arrive,
            "RNA": self._prepare,
            "RNP": self._run,
            "RUN": self._stop,
            "RNE": lambda one, when: self._to(one, "RNO", when, when + self.site.runout_s),
            "RNO": self._leave,
            **dict.fromkeys(ENDED, self._touch),
        }
        steps.get(part.st, self._rest)(part, at)

    def _rest(self, part: Part, at: float) -> None:
        """Nothing happens to it by itself."""
        part.wake(None)

    def _arrive(self, part: Part, at: float) -> None:
        if part.depends is not None and not json.loads(part.depends).get("is_first"):
            part.wake(None)  # it waits for the step before
            return
        fault = self._fault(("job-error", "job-held"), part)
        if fault is not None:
            self._doom(part, at, fault.kind)
            return
        moved = self._fault(_WAITING_DOOMS, part)
        if moved is not None and moved.kind == "job-moved":
            self.state.do("UPDATE jobs SET rscgrp = ? WHERE job = ?", moved.value or "large", part.job)
        if moved is not None and moved.kind == "job-vanishes":
            self._end(part, at, "EXT", None, 9, 0, "-")
            part.ended_at = at - 365 * 86400  # beyond every history
            return
        self._queue(part, at)

    def _queue(self, part: Part, at: float) -> None:
        """It waits; again, if it has run before."""
        if part.st in ON_NODES:
            processes.signal_part(self.state, part, signal.SIGKILL)
            part.restarts += 1
        part.start_at, part.stopped_at, part.predicted_at, part.is_backfilled = None, None, None, 0
        part.pid, part.plan = None, None
        part.ec, part.pc, part.sn, part.reason, part.queued_at = None, 0, 0, "-", at
        part.is_over, part.ended_at = 0, None
        self._to(part, "QUE", at, None)
        self._ask_pass(at)

    def _prepare(self, part: Part, at: float) -> None:
        if self.site.prologue_s > 0:
            self._to(part, "RNP", at, at + self.site.prologue_s)
        else:
            self._run(part, at)

    def _run(self, part: Part, at: float) -> None:
        part.start_at, part.predicted_at = at, None
        doom = self._fault(("job-requeued", "job-preempted", "job-memory", "node-down"), part)
        limit_at = at + part.elapse_s
        if self.site.mode == "exec":
            part.pid = processes.begin(self.state, part)
            part.plan = None
            end_at = limit_at
        else:
            rule = self._plan(part)
            part.plan = json.dumps(
                {"ec": rule.ec, "sn": rule.sn, "pc": rule.pc, "st": rule.state, "reason": rule.reason,
                 "touch": list(rule.touch), "is_late": at + rule.run_s > limit_at}
            )  # fmt: skip
            end_at = min(limit_at, at + rule.run_s)
        if doom is not None:
            end_at = min(end_at, at + doom.seconds)
            part.plan = json.dumps({"doom": doom.kind})
        self._to(part, "RUN", at, end_at)

    def _stop(self, part: Part, at: float) -> None:
        """Its run is over, or its time is."""
        plan: dict[str, Any] = json.loads(part.plan or "{}")
        if "doom" in plan:
            self._doom(part, at, plan["doom"])
        elif self.site.mode == "plan":
            self._stop_as_planned(part, at, plan)
        elif plan.get("is_done"):
            self._to(part, "RNE", at, at + self.site.epilogue_s)
        elif part.pc == 0:  # SIGXCPU at the elapse limit, SIGKILL some time later
            part.pc, part.sn, part.ec, part.reason = 11, signal.SIGXCPU, None, "ELAPSE LIMIT EXCEEDED"
            processes.signal_part(self.state, part, signal.SIGXCPU)
            part.wake(at + self.site.kill_s)
            self._push(part)
        else:
            processes.signal_part(self.state, part, signal.SIGKILL)
            part.pid = None
            self._to(part, "RNE", at, at + self.site.epilogue_s)

    def _stop_as_planned(self, part: Part, at: float, plan: dict[str, Any]) -> None:
        if plan["is_late"]:
            part.pc, part.sn, part.ec, part.reason = 11, signal.SIGXCPU, None, "ELAPSE LIMIT EXCEEDED"
        else:
            part.ec, part.sn, part.pc, part.reason = plan["ec"], plan["sn"], plan["pc"], plan["reason"]
            if self._outcome is not None:
                self._outcome(part, self._job(part).script)
        if plan["st"] in ("ERR", "HLD", "CCL", "RJT") and not plan["is_late"]:
            self._end(part, at, plan["st"], part.ec, part.pc, part.sn, part.reason)
        else:
            self._to(part, "RNE", at, at + self.site.epilogue_s)

    def _doom(self, part: Part, at: float, kind: str) -> None:
        st, pc, sn, reason = _DOOMS[kind]
        processes.signal_part(self.state, part, signal.SIGKILL)
        if kind == "node-down" and self._job(part).options.get("restart"):
            st = "QUE"
        if st == "QUE":
            self._queue(part, at)
        else:
            self._end(part, at, st, None, pc, sn, reason)

    def _leave(self, part: Part, at: float) -> None:
        self._end(part, at, "EXT", part.ec, part.pc, part.sn, part.reason)

    def _end(self, part: Part, at: float, st: str, ec: int | None, pc: int, sn: int, reason: str) -> None:
        """It is in a state in which nothing happens any more by itself."""
        part.ec, part.pc, part.sn, part.reason, part.pid = ec, pc, sn, reason, part.pid if st == "RUN" else None
        if st in ENDED:
            part.ended_at, part.is_over = at, 1
        part.delete_at = None
        if st in ENDED and {"stats", "all_stats"} & self._job(part).options.keys():
            self._with_statistics.append((part.job, part.sub))
        has_files = st in ENDED and self.site.mode == "plan" and json.loads(part.plan or "{}").get("touch")
        self._to(part, st, at, at + self.site.output_lag_s if has_files else None)
        self._ask_pass(at)
        if part.depends is not None or part.sub >= 0:
            self._follow(part, at)

    def _touch(self, part: Part, at: float) -> None:
        """Files that a rule promised appear."""
        plan = json.loads(part.plan or "{}")
        job = self._job(part)
        for one in plan.get("touch", ()):
            shown = label(part.job, part.sub, job.kind)
            path = Path(job.directory) / processes.substituted(one, job.name, part.job, shown, part.sub)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        part.wake(None)

    # --- steps of a step job

    def _follow(self, part: Part, at: float) -> None:
        """The next step of a step job may begin, or is deleted, by how this one ended."""
        if part.st not in ENDED:
            return
        nexts = self.state.parts("job = ? AND depends IS NOT NULL AND st = 'ACC'", part.job)
        for one in nexts:
            held = self._parts.setdefault((one.job, one.sub), one)
            depends = json.loads(held.depends or "{}")
            if held.st != "ACC" or depends.get("after") != part.sub:
                continue
            doomed = [rule for rule in depends["rules"] if rule["sub"] in (None, part.sub) and _holds(rule, part)]
            if doomed or (part.pc == 6 and depends.get("mode") != "one"):
                self._end(held, at, "CCL", None, 6, 0, "-")
            else:
                self._queue(held, at)

    # --- the scheduler

    def _schedule(self, at: float) -> None:
        self.flush()
        if self._start_some(at):
            self.flush()
            note_peaks(self.state)
        self._load("next_at <= ?", self.state.now())

    def _start_some(self, at: float) -> bool:
        """Give nodes to those whose turn it is; whether there are any."""
        places = ", ".join(f"'{state}'" for state in ON_NODES)
        busy = self.state.do(f"SELECT coalesce(sum(node), 0) FROM parts WHERE st IN ({places})")[0][0]
        free = self.site.nodes - self.state.setting("nodes_down", 0) - busy
        may_run, may_use = run_room(self.state)
        if self.site.at_a_time is not None:
            busy_parts = self.state.do(f"SELECT count(*) FROM parts WHERE st IN ({places})")[0][0]
            may_run = min(may_run, self.site.at_a_time - busy_parts)
        free = int(min(free, may_use))
        if free <= 0 or may_run <= 0:
            return False
        most = int(min(free, may_run)) + _LOOKAHEAD
        waiting = self.state.parts("st = 'QUE' ORDER BY priority DESC, job, sub LIMIT ?", most)
        running = [
            Running((start or at) + elapse_s, node)
            for start, elapse_s, node in self.state.do(
                f"SELECT start_at, elapse_s, node FROM parts WHERE st IN ({places})"
            )
        ]
        queue = [Waiting((part.job, part.sub), part.node, part.elapse_s) for part in waiting]
        choice = choose(at, free, may_run, queue, running, may_backfill=self.site.may_backfill)
        known = {(part.job, part.sub): part for part in waiting}
        for key in choice.start:
            part = self._parts[key] = known[key]
            part.is_backfilled = int(key in choice.backfilled)
            part.predicted_at = at + self.site.acquire_s + self.site.prologue_s
            self._to(part, "RNA", at, at + self.site.acquire_s)
        for key, when in choice.predicted.items():
            self._parts[key] = known[key]
            known[key].predicted_at = when
        return bool(choice.start)

    # --- what is known of a job

    def _job(self, part: Part) -> Job:
        """The job of a part."""
        if part.job not in self._jobs:
            found = self.state.do("SELECT name, kind, script, directory, options FROM jobs WHERE job = ?", part.job)[0]
            name, kind, script, directory, options = found
            self._jobs[part.job] = Job(name, kind, script, directory, json.loads(options))
        return self._jobs[part.job]

    def _fault(self, kinds: tuple[str, ...], part: Part) -> faults.Fault | None:
        return faults.taken(self.state, kinds, self._job(part).name) if self._has_faults else None

    def _plan(self, part: Part) -> Rule:
        if self._rules is None:
            self._rules = rules_of(self.state)
        return plan_of(self._rules, self._job(part).name, part.sub)


def _holds(rule: dict[str, Any], part: Part) -> bool:
    """Whether the condition of a step's `sd=` holds for how a step ended."""
    value = {"ec": part.ec or 0, "pc": part.pc, "sn": part.sn}[rule["field"]]
    return bool(_COMPARISONS[rule["operator"]](value, rule["value"]))
