"""What a campaign on PJM costs, in virtual time, and what one step costs, in processor time.

    python benchmarks/bench_pjm.py

The machine is the small PJM of the tests (`tests/executors/pjm/plain_pjm.py`), in this process, with 384 nodes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dagkit.engine.gate import GateOptions
from dagkit.executors.pjm.watch import Patience
from dagkit.stores import open_store
from executors.driving import message
from executors.pjm.conftest import QUEUE, World

NODES: Final = 384
RUN_S: Final = 60.0
GATE: Final = GateOptions(max_submit_per_refill=2000, window=2000)


class Machine:
    """Starts what waits on nodes that are free, and ends it after a minute."""

    def __init__(self, world: World) -> None:
        self.world, self.running = world, list[tuple[float, int, int, str]]()

    def go_on(self) -> None:
        now = self.world.at
        for end, job, sub, script in [one for one in self.running if one[0] <= now]:
            self.world.complete(job, sub, script)
            self.running.remove((end, job, sub, script))
        for job, sub, _, script, _ in self.world.pjm.jobs("QUE")[: NODES - len(self.running)]:
            self.world.pjm.change(job, sub, "RUN")
            self.running.append((now + RUN_S, job, sub, script))


def campaign(mode: str, refill_s: float) -> tuple[float, dict[str, int], int]:
    """Virtual seconds for 2,000 jobs of a minute under 100 accepted jobs and 2,000 sub-jobs; calls; refusals."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        world = World(Path(folder), store)
        world.pjm.set(accept=100, bulksubjob=2000)
        patience = Patience(submit_interval_s=0.0, refill_s=refill_s, most_look_s=30.0)
        world.make(default=replace(QUEUE, mode=mode, gate=GATE, group_size=100), patience=patience)
        rest: list[Any] = [message(f"t{n}", {"cmd": "true"}, template="t") for n in range(2000)]
        machine, begin = Machine(world), world.at
        world.begin(rest)
        while len(world.done) < 2000:
            machine.go_on()
            world.pass_s(5, rest, step_s=5)
            if world.at - begin > 50_000:
                raise SystemExit(f"{mode}: not over")
        refused = sum(result == "full" for _, result in world.pjm.submits())
        elapsed, calls = world.at - begin, world.pjm.calls()
        world.executor.close()
        store.close()
        return elapsed, calls, refused


def idle(jobs: int) -> None:
    """One step with 10,000 sub-jobs in flight and nothing new: without a look, and with one."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        world = World(Path(folder), store)
        gate = GateOptions(max_submit_per_refill=jobs, window=jobs)
        patience = Patience(submit_interval_s=0.0, look_s=10.0)
        world.make(default=replace(QUEUE, mode="bulk", gate=gate, group_size=1000), patience=patience)
        rest: list[Any] = [message(f"t{n}", {"cmd": "true"}, template="t") for n in range(jobs)]
        begin = time.perf_counter()
        world.begin(rest)
        print(f"{jobs:,} jobs taken and submitted in {time.perf_counter() - begin:.2f} s of ours and the machine's")
        client, spent = world.executor.client, [0.0]
        run = client._run

        def timed(*args: Any) -> Any:
            began = time.thread_time()
            answer = run(*args)
            spent[0] += time.thread_time() - began
            return answer

        client._run = timed  # type: ignore[method-assign]
        looks, steps = [], []
        for _ in range(10):
            world.at += 200
            world.pjm.set(now=world.at)
            before, spent[0] = sum(client.calls.values()), 0.0
            began = time.thread_time()
            world.executor.poll(0)
            world.executor.poll(0)
            looks.append(time.thread_time() - began - spent[0])
            commands = sum(client.calls.values()) - before
            began = time.thread_time()
            world.executor.poll(0)
            steps.append(time.thread_time() - began)
        look_ms = 1000 * statistics.median(looks)
        print(f"idle step with a look: {look_ms:.0f} ms of processor time beside pjstat, {commands} command(s)")
        print(f"idle step without one: {1000 * statistics.median(steps):.1f} ms")
        world.executor.close()
        store.close()


def main() -> None:
    idle(10_000)
    ideal = {"single": 2000 / 90 * RUN_S, "bulk": -(-2000 // NODES) * RUN_S, "auto": -(-2000 // NODES) * RUN_S}
    for refill_s in (60.0, 15.0):
        for mode in ("single", "bulk", "auto"):
            elapsed, calls, refused = campaign(mode, refill_s)
            print(
                f"2,000 jobs x 60 s, refill {refill_s:.0f} s, {mode:<6}: {elapsed:6.0f} s, ideal {ideal[mode]:5.0f} s "
                f"({elapsed / ideal[mode]:.2f} x), {refused} refused, calls {calls}"
            )


if __name__ == "__main__":
    main()
