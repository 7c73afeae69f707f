"""What a campaign on PJM costs, in simulated time, and what one step costs, in processor time.

    python benchmarks/bench_pjm.py [idle|campaigns|neighbours]

The machine is the simulated PJM of `dagkit.testing`, in this process: 384 nodes, 100 accepted jobs, 2,000 sub-jobs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.engine.gate import GateOptions
from dagkit.executors.pjm.request import PjmQueue
from dagkit.executors.pjm.watch import Patience
from dagkit.model.messages import TaskMessage
from dagkit.stores import open_store
from dagkit.testing.pjm import PjmSimulator, Site
from dagkit.testing.pjm.driver import virtual_executor
from dagkit.testing.pjm.rehearsal import Campaign, Rehearsal, rehearse

LIMITS: Final = {"ru-accept": 100, "ru-accept-bulksubjob": 2000}
GATE: Final = GateOptions(max_submit_per_refill=2000, window=2000)


def queue_of(mode: str, gate: GateOptions = GATE, group_size: int = 100) -> PjmQueue:
    return PjmQueue(rscgrp="small", group="group1", elapse_s=600, mode=mode, gate=gate, group_size=group_size)


@dataclass
class Timed:
    """Processor time of the machine's own commands, which is none of ours."""

    client: Any
    spent_s: float = 0.0

    def __post_init__(self) -> None:
        run = self.client._run

        def timed(*arguments: Any) -> Any:
            began = time.thread_time()
            answer = run(*arguments)
            self.spent_s += time.thread_time() - began
            return answer

        self.client._run = timed


def idle(jobs: int) -> None:
    """One step with so many sub-jobs in flight and nothing new: without a look, and with one."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        pjm = PjmSimulator(Path(folder) / "pjm", Site(mode="plan", nodes=0), at=1_800_000_000.0, speed=None)
        queue = queue_of("bulk", GateOptions(max_submit_per_refill=jobs, window=jobs), 1000)
        executor = virtual_executor(pjm, store, Path(folder) / "spools", queue, Patience(submit_interval_s=0.0))
        rest = [TaskMessage("wf", f"t{n}", 1, 0, "default", {"cmd": "true"}, template="t") for n in range(jobs)]
        begin = time.perf_counter()
        while rest:
            if executor.capacity() != 0:
                del rest[: executor.submit(rest)]
            executor.poll(0)
        print(f"{jobs:,} jobs taken and submitted in {time.perf_counter() - begin:.2f} s of ours and the machine's")
        timed, looks, steps, commands = Timed(executor.client), list[float](), list[float](), 0
        for _ in range(10):
            pjm.tick(200)
            before, timed.spent_s = sum(executor.client.calls.values()), 0.0
            began = time.thread_time()
            executor.poll(0)
            executor.poll(0)
            looks.append(time.thread_time() - began - timed.spent_s)
            commands = max(commands, sum(executor.client.calls.values()) - before)
            began = time.thread_time()
            executor.poll(0)
            steps.append(time.thread_time() - began)
        print(
            f"idle step with a look: {1000 * statistics.median(looks):.0f} ms of processor time beside pjstat, "
            f"at most {commands} command(s); without one: {1000 * statistics.median(steps):.1f} ms"
        )
        executor.close()
        store.close()


def line(title: str, found: Rehearsal) -> None:
    oracle = found.oracle
    calls = ", ".join(f"{command} {count}" for command, count in sorted(oracle.calls.items()))
    print(
        f"{title}: {found.elapsed_s:5.0f} s, ideal {found.ideal_s:5.0f} s ({found.ratio:.2f} x); "
        f"{oracle.queue_full} of {len(oracle.submits)} submissions refused; {calls}"
    )
    assert not oracle.duplicates
    assert not oracle.over


def campaigns() -> None:
    """2,000 jobs of a minute."""
    for refill_s in (60.0, 15.0):
        for mode in ("single", "bulk", "auto"):
            patience = Patience(submit_interval_s=0.0, refill_s=refill_s, most_look_s=30.0)
            found = rehearse(Campaign(2000, 60.0, queue_of(mode), patience, limits=LIMITS))
            line(f"2,000 jobs x 60 s, refill {refill_s:.0f} s, {mode:<6}", found)


def neighbours() -> None:
    """1,000 jobs beside neighbours half of whose jobs change every minute; the margin is the default one, 20 slots."""
    for mode in ("single", "bulk"):
        patience = Patience(submit_interval_s=0.0)
        campaign = Campaign(
            1000,
            60.0,
            queue_of(mode, GateOptions(max_submit_per_refill=200)),
            patience,
            limits={"ru-accept": 200},
            neighbours=(60, 120),
        )
        line(f"1,000 jobs x 60 s beside neighbours, {mode:<6}", rehearse(campaign))


def main() -> None:
    asked = sys.argv[1:] or ["idle", "campaigns", "neighbours"]
    if "idle" in asked:
        idle(10_000)
    if "campaigns" in asked:
        campaigns()
    if "neighbours" in asked:
        neighbours()


if __name__ == "__main__":
    main()
