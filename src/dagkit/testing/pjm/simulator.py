"""A simulated PJM as a test, a notebook or a rehearsal holds it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagkit.testing.pjm import control, faults, limits, plans, processes
from dagkit.testing.pjm.callers import Call
from dagkit.testing.pjm.commands import run, write_programs
from dagkit.testing.pjm.oracle import Oracle, oracle_of
from dagkit.testing.pjm.site import Site
from dagkit.testing.pjm.state import ENDED, exists, label, opened
from dagkit.testing.pjm.world import World

__all__ = ["PjmSimulator", "SimulatedJob"]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job, or one part of a bulk or step job.

    Attributes:
        id: As PJM writes it: `43607190`, `43607190[3]`.
        sub: Number of the part; -1 for a single job.
        script: The text that was submitted.
    """

    id: str
    job: int
    sub: int
    name: str
    st: str
    ec: int | None
    pc: int
    script: str
    directory: str

    @property
    def is_over(self) -> bool:
        return self.st in ENDED


class PjmSimulator:
    """A PJM of one's own, in a folder: `pjsub`, `pjstat`, `pjdel` and the others as programs on PATH.

    Args:
        folder: Where its state, its programs and copies of scripts are. A machine that is there is gone on with.
        site: What it is like; default: Fugaku, running scripts as processes.
        at: Its time at first, in seconds since the epoch; default: now.
        speed: How many of its seconds go by in one; None: its clock is moved by `tick` only.
        outcome: Called at the end of every run in the mode `plan`; it does what the job would have done.
    """

    def __init__(
        self,
        folder: Path | str,
        site: Site | None = None,
        *,
        at: float | None = None,
        speed: float | None = 1.0,
        outcome: Callable[[SimulatedJob], object] | None = None,
    ) -> None:
        self.folder, self._outcome = Path(folder).absolute(), outcome
        if not exists(self.folder):
            control.init(self.folder, site or Site(), at=at, speed=speed)
        self.bin = write_programs(self.folder)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variable that makes the programs be found, before any others of their names."""
        return {"PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"}

    # --- time

    @property
    def now(self) -> float:
        with opened(self.folder) as state:
            return state.now()

    def tick(self, seconds: float = 0.0) -> float:
        """Let what is due happen; a clock that stands is moved before. Returns the time."""
        return control.advance(self._call("pjmsim", ()), seconds)

    def start(self, every_s: float = 0.05) -> None:
        """Tick in a thread of its own from now on, until `stop`."""
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._go_on, args=(every_s,), name="pjmsim", daemon=True)
            self._thread.start()

    def _go_on(self, every_s: float) -> None:
        while not self._over.wait(every_s):
            self.tick()

    def stop(self) -> None:
        """Tick no more, and end everything that runs."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(60)
            self._thread = None
        with opened(self.folder) as state:
            processes.end_everything(state)

    @contextmanager
    def running(self, every_s: float = 0.05) -> Iterator[PjmSimulator]:
        """Tick while the block lasts; then whatever still runs is ended."""
        self.start(every_s)
        try:
            yield self
        finally:
            self.stop()

    # --- the commands, without processes

    def run(
        self, command: Sequence[str], directory: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """What a command answers, run within this process."""
        call = self._call(command[0], command[1:])
        call.directory = str(directory or Path.cwd())
        call.environ = os.environ if environ is None else environ
        code = run(call)
        return subprocess.CompletedProcess(list(command), code, "".join(call.out), "".join(call.err))

    def _call(self, command: str, arguments: Sequence[str]) -> Call:
        outcome = None
        if self._outcome is not None:
            told = self._outcome

            def outcome(part: Any, script: str) -> None:
                shown = label(part.job, part.sub, "NM" if part.sub < 0 else "BU")
                told(SimulatedJob(shown, part.job, part.sub, "", part.st, part.ec, part.pc, script, ""))

        return Call(command, list(arguments), self.folder, str(Path.cwd()), os.environ, False, outcome)

    # --- what it is like, and what goes wrong

    def set(self, **values: Any) -> None:
        """Settings of the site (`Site`)."""
        with opened(self.folder) as state:
            state.set("site", replace(state.site, **values).plain())
            World(state).look()

    def limit(self, name: str, most: int | None, section: str = "USER") -> None:
        """A limit (`ru-accept`, `ru-accept-bulksubjob`, ...) of USER, GROUP or ALL; None: unlimited."""
        control.set_limits(self.folder, {(section, name): most})

    def load(self, name: str, alloc: int) -> None:
        """What other members of every group take of a limit."""
        self._do("DELETE FROM load WHERE name = ?", name)
        with opened(self.folder) as state:
            for group in state.site.groups:
                state.do("INSERT INTO load VALUES ('GROUP', ?, ?, ?)", group, name, alloc)

    def neighbours(self, name: str, least: int, most: int, *, every_s: float = 60.0, seed: int = 0) -> None:
        """Other members of the group take between `least` and `most` of a limit, another number every minute."""
        with opened(self.folder) as state:
            noisy = state.setting("neighbours", {})
            state.set("neighbours", {**noisy, name: {"least": least, "most": most, "every_s": every_s, "seed": seed}})

    def fault(
        self,
        kind: str,
        *,
        match: str = "*",
        times: int | None = 1,
        prob: float = 1.0,
        value: object = "",
        for_s: float | None = None,
        after_s: float = 0.0,
    ) -> None:
        """Something goes wrong (`dagkit.testing.pjm.faults.KINDS`), so often (None: always), for so many seconds."""
        with opened(self.folder) as state:
            faults.add_fault(
                state, kind, match=match, count=times, prob=prob, value=str(value), for_s=for_s, after_s=after_s
            )

    def forget_faults(self) -> None:
        """Nothing goes wrong any more."""
        self._do("DELETE FROM faults")

    def rule(self, name_glob: str = "*", **fields: Any) -> None:
        """How jobs go in the mode `plan` (`dagkit.testing.pjm.plans.Rule`); the last rule that fits counts."""
        with opened(self.folder) as state:
            plans.add_rule(state, plans.Rule(name_glob, **fields))

    def fail_node(self, count: int = 1, *, is_back: bool = False) -> None:
        """Nodes go down, with what runs on them."""
        control.fail_node(self._call("pjmsim", ()), count, is_back=is_back)

    # --- jobs

    def jobs(self, *states: str) -> list[SimulatedJob]:
        """Every job and every part that was ever accepted, in order; or those in these states."""
        rows = self._do(
            "SELECT p.job, sub, name, st, ec, pc, script, directory, kind FROM parts p JOIN jobs j ON j.job = p.job "
            "ORDER BY p.job, sub"
        )
        return [
            SimulatedJob(label(job, sub, kind), job, sub, *rest)
            for job, sub, *rest, kind in rows
            if not states or rest[1] in states
        ]

    def counts(self) -> tuple[int, int]:
        """How many parts the machine has, and how many of them are on nodes."""
        rows = self._do(
            "SELECT count(*), coalesce(sum(st IN ('RNA', 'RNP', 'RUN', 'RNE')), 0) FROM parts WHERE is_over = 0"
        )
        return int(rows[0][0]), int(rows[0][1])

    def force(self, job: SimulatedJob, st: str, **fields: Any) -> None:
        """A job is in another state now; fields are `ec`, `pc`, `sn`, `reason`."""
        with opened(self.folder) as state:
            for part in state.parts("job = ? AND sub = ?", job.job, job.sub):
                World(state).force(part, st, **fields)

    def power_off(self) -> None:
        """All nodes go down at once and come back; what ran on them has ended for that (PJM code 20)."""
        for job in self.jobs("RNA", "RNP", "RUN", "RNE"):
            self.force(job, "EXT", pc=20, reason="LOST COMM")

    def vanish(self, job: SimulatedJob) -> None:
        """Nobody knows a job any more: neither the live view nor the history."""
        self.force(job, "EXT", pc=9)
        self._do("UPDATE parts SET ended_at = 0 WHERE job = ? AND sub = ?", job.job, job.sub)

    # --- the record

    def oracle(self) -> Oracle:
        """What has happened."""
        with opened(self.folder) as state:
            return oracle_of(state)

    def summary(self) -> str:
        """What has happened, in a few lines."""
        return control.summary_of(self.oracle().plain())

    def alloc(self, name: str, section: str = "USER") -> int:
        """How much is taken of a limit now."""
        with opened(self.folder) as state:
            return sum(row.alloc for row in limits.rows(state, [name]) if row.section == section)

    def _do(self, statement: str, *values: object) -> list[Any]:
        with opened(self.folder) as state:
            return state.do(statement, *values)
