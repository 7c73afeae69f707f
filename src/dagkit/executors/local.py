"""The local executor: persistent worker processes on this machine that take tasks in batches.

Calls run inside a worker process, commands in their own process group below one. A worker that dies costs one attempt
of the task that ran in it; the tasks behind it are given to others. The protocol is in `dagkit.runtime.child`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.crew import Crew
from dagkit.executors.ending import OomWatch, describe_exit
from dagkit.executors.keeping import Keeper
from dagkit.executors.memory import MEASURE_S, held_bytes, limit_of
from dagkit.executors.pacing import Pace, Paces
from dagkit.executors.reports import completion, failure, mark_failed, stop_text
from dagkit.executors.slot import Job, Slot, take_batch
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store

__all__ = ["LocalExecutor"]

_LONG_S: Final = 0.05
_LINGER_S: Final = 0.001
_TINY_S: Final = 0.0005
_SPIN_S: Final = 0.0002
_START_FAILURES: Final = 3
_FAR_S: Final = 60.0


class LocalExecutor:
    """Runs tasks in up to `slots` worker processes, started when there is work for them.

    Args:
        store: Where outputs and logs go. A store that other processes can open is opened by the workers.
        slots: How many tasks run at the same time; default: one per processor that this process may use.
        log_dir: Where workers keep the log that is being written; default: beside the store's own logs.
        python: The interpreter of the workers.
        kill_timeout_s: From SIGTERM to SIGKILL when a task is stopped.
        login_shell: Run commands in a login shell, which reads the user's profile.
        lost_kill_timeout_s: The same for an attempt of kind `lost`, which somebody else may be running by now.

    Workers run in the folder in which the executor was made. Used by one thread, except `interrupt`.
    """

    name = "local"
    reports_start = True

    def __init__(
        self,
        store: Store,
        *,
        slots: int | None = None,
        log_dir: Path | None = None,
        python: str | None = None,
        kill_timeout_s: float = 5.0,
        lost_kill_timeout_s: float = 0.0,
        login_shell: bool = False,
    ) -> None:
        if slots is not None and slots < 1:
            raise ConfigError(f"slots must be at least 1, not {slots}")
        self.slots = slots or _processors()
        self._kill_timeout_s = kill_timeout_s
        self._kill_timeouts = {FailureKind.LOST: lost_kill_timeout_s, FailureKind.MEMORY: 0.0}
        self.store = store
        self._keeper = Keeper(store)
        self._crew = Crew(store, log_dir, python, login_shell)
        self._host = socket.gethostname()
        self._waiting: deque[Job] = deque()
        self._jobs: dict[tuple[str, str, int, int], Job] = {}
        self._reports: list[Completion | Started] = []
        self._paces = Paces()
        self._oom = OomWatch()
        self._serial = self._start_failures = 0
        self._is_closed = False

    # --- the port

    def submit(self, messages: Sequence[TaskMessage]) -> int:
        """Take as many as `capacity()` allows; see the port."""
        if self._is_closed:
            raise BackendError("the local executor is closed")
        room = self.capacity()
        jobs, waiting, pace_of = self._jobs, self._waiting, self._paces.of
        taken = 0
        for message in messages:
            key = (message.workflow_id, message.task, message.generation, message.attempt)
            if key not in jobs:
                if room <= 0:
                    break
                room -= 1
                self._serial += 1
                job = jobs[key] = Job(self._serial, message, pace_of(message))
                if message.resources:
                    job.memory_bytes = limit_of(message.resources)
                waiting.append(job)
            taken += 1
        self._assign()
        return taken

    def poll(self, wait_s: float) -> list[Completion | Started]:
        """What happened since the last poll. `BackendError` if worker processes cannot be started."""
        deadline = time.monotonic() + wait_s
        while True:
            due = self._tend()
            if self._reports:
                reports, self._reports = self._reports, []
                return reports
            now = time.monotonic()
            rung = self._listen(max(0.0, min(deadline, due) - now))
            if not self._reports and (rung or time.monotonic() >= deadline):
                deadline = 0.0
                self._tend()
                reports, self._reports = self._reports, []
                return reports

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """Nothing is kept for them here."""

    def cancel(self, keys: Collection[AttemptKey], kind: FailureKind) -> None:
        """Stop these attempts; see the port."""
        jobs = [job for key in keys if (job := self._jobs.get(key)) is not None and job.stop is None]
        for job in jobs:
            job.stop = kind
        if any(job.slot is None for job in jobs):
            self._waiting = deque(job for job in self._waiting if job.stop is None)
        for job in jobs:
            if job.slot is None:
                self._stopped(job)
        for slot in {id(job.slot): job.slot for job in jobs if job.slot is not None}.values():
            self._stop_in(slot)

    def recover(self, running: Sequence[TaskMessage]) -> list[Completion]:
        """Worker processes do not outlive their executor: whatever this one does not know is lost."""
        return [
            failure(message, "the process that ran this task is gone", FailureKind.LOST)
            for message in running
            if message.key not in self._jobs
        ]

    def capacity(self) -> int:
        """About two batches per worker; one task per worker while it is not known how long they take."""
        recent = self._paces.recent
        per_slot = 2 * recent.batch if recent.is_short else 1
        return max(0, self.slots * per_slot - len(self._jobs))

    def interrupt(self) -> None:
        """Make a waiting `poll` return. Thread-safe."""
        self._crew.ring()

    def give_notice(self) -> None:
        """Tell the calls that run that they will be stopped soon (`dagkit.on_preempt`). Commands are not told."""
        for slot in self._crew.members:
            if slot.running is not None and slot.running.is_call:
                slot.notify()

    def close(self, grace_s: float = 5.0) -> None:
        """Let what runs end within the grace, then kill it; no process, descriptor or file is left behind."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.clear()
        deadline = time.monotonic() + grace_s
        for slot in self._crew.members:
            slot.drop(None)
            self._crew.send(slot, ("leave",))
        while self._crew.members and (wait_s := deadline - time.monotonic()) > 0:
            self._tend()
            self._listen(min(wait_s, 0.1))
        self._crew.close()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- giving work to workers

    def _assign(self) -> None:
        waiting = self._waiting
        while waiting:
            slot = self._choose(waiting[0])
            if slot is None:
                return
            slot.give(take_batch(waiting, self.slots))
            self._crew.watch(slot)

    def _choose(self, job: Job) -> Slot | None:
        """An idle worker, else a new one, else one that can take more; None if the job has to wait."""
        best: Slot | None = None
        for slot in self._crew.members:
            if not slot.accepts(job.pace):
                continue
            if not slot.jobs:
                return slot
            if best is None or slot.load_s < best.load_s:
                best = slot
        if len(self._crew.members) < self.slots and not self._is_closed:
            return self._crew.start(job.message)
        return best

    def _requeue(self, jobs: Sequence[Job]) -> None:
        """To the front, in order: these have waited longest."""
        for job in jobs:
            job.slot = None
        self._waiting.extendleft(reversed(jobs))

    # --- listening

    def _listen(self, wait_s: float) -> bool:
        """Wait for something from workers and take it in; True if `interrupt` was called."""
        if self._linger():
            time.sleep(_LINGER_S)
        has_rung, events = self._crew.listen(wait_s, spin_s=_SPIN_S if self._is_hopping() else 0.0)
        for slot, frames in events:
            if frames is not None:
                self._digest(slot, frames)
            elif slot in self._crew.members:
                self._ended(slot)
        self._assign()
        return has_rung

    def _is_hopping(self) -> bool:
        """Whether so few tasks, and so short ones, are under way that the next report is a matter of microseconds."""
        recent = self._paces.recent
        return 0 < len(self._jobs) <= self.slots and recent.samples > 0 and recent.expected_s < _TINY_S

    def _linger(self) -> bool:
        """Whether every worker has so much work in hand that it pays to let their reports gather."""
        members = self._crew.members
        return bool(members) and all(len(slot.jobs) > 1 and slot.load_s > 2 * _LINGER_S for slot in members)

    def _digest(self, slot: Slot, frames: Iterable[Any]) -> None:
        reports, jobs = self._reports, self._jobs
        count, total_s, pace = 0, 0.0, None
        epoch = 0.0
        for frame in frames:
            if len(frame) == 4:
                serial, ref, started_at, wall_s = frame
                job = slot.finish(serial)
                if job is None:
                    continue
                message = job.message
                del jobs[message.workflow_id, message.task, message.generation, message.attempt]
                if job.pace is not pace:
                    if pace is not None:
                        self._learn(pace, count, total_s)
                    pace, count, total_s = job.pace, 0, 0.0
                count += 1
                total_s += wall_s
                epoch = started_at + wall_s
                reports.append(
                    Completion(
                        message.workflow_id,
                        message.task,
                        True,
                        ref,
                        None,
                        message.attempt,
                        message.generation,
                        None,
                        {"wall_s": wall_s, "started_at": started_at},
                    )
                )
            elif type(frame[0]) is int:
                used = frame[1]["usage"]
                epoch = used["started_at"] + used["wall_s"]
                self._reported(slot, frame[0], frame[1])
            else:
                self._told(slot, frame)
        if pace is not None:
            self._learn(pace, count, total_s)
        if epoch and slot.jobs:
            slot.begin(epoch)

    def _learn(self, pace: Pace, count: int, total_s: float) -> None:
        pace.learn(count, total_s)
        self._paces.recent.learn(count, total_s)

    def _reported(self, slot: Slot, serial: int, report: dict[str, Any]) -> None:
        """A report with more in it than a ref."""
        job = slot.finish(serial)
        slot.group = None
        if job is None:
            return
        usage = report["usage"]
        usage["host"], usage["pid"] = self._host, slot.process.pid
        self._learn(job.pace, 1, usage["wall_s"])
        error, kind = report.get("error"), report.get("kind")
        if job.stop is None and slot.is_doomed and error is not None:
            self._requeue([job])  # the signal was meant for the task before it
            return
        message = job.message
        self._keeper.keep_log(message, report.get("log"))
        done = completion(message, report.get("ref"), error, FailureKind(kind) if kind else None, usage)
        if job.stop is not None and (error is not None or report.get("stopped")):
            mark_failed(done, stop_text(message, job.stop), job.stop)
        is_killed = usage.get("signal") == "SIGKILL" or usage.get("exit_code") == 128 + signal.SIGKILL
        if is_killed and done.kind is FailureKind.USER and self._oom.has_killed():
            mark_failed(done, f"{error}; the kernel was out of memory", FailureKind.MEMORY)
        self._finish(job, done)

    def _told(self, slot: Slot, frame: tuple[Any, ...]) -> None:
        word = frame[0]
        if word == "ready":
            slot.is_ready, self._start_failures = True, 0
            slot.begin(time.time())
        elif word == "back":
            self._given_back(slot, frame[1])
        elif word == "leaving":
            slot.is_doomed = True
        elif word == "group":
            slot.group = frame[1]
        elif word == "ask":
            self._crew.send(slot, ("answer", *self._keeper.answer(frame[1], frame[2])))

    # --- what is due

    def _tend(self) -> float:
        """Report long tasks, take back what waits behind them, kill what would not stop; when to look again."""
        now = time.monotonic()
        due = now + _FAR_S
        for slot in self._crew.members:
            job = slot.running
            if job is not None:
                due = min(due, self._look_at(slot, job, now))
        for slot in self._crew.overdue(now):
            if slot.process.poll() is not None:
                self._ended(slot)
        return min([due, *(slot.kill_at for slot in self._crew.members if slot.kill_at is not None)])

    def _look_at(self, slot: Slot, job: Job, now: float) -> float:
        long_at = slot.since + _LONG_S
        if not job.is_start_told and (now >= long_at or job.message.timeout_s is not None):
            job.is_start_told = True
            message = job.message
            self._reports.append(
                Started(message.workflow_id, message.task, message.generation, message.attempt, slot.since_epoch)
            )
        if now < long_at:
            return long_at
        if len(slot.jobs) > 1 and not slot.is_dropping:
            slot.drop(None)
        return now + _FAR_S if job.memory_bytes is None or job.stop is not None else self._measure(slot, job, now)

    def _measure(self, slot: Slot, job: Job, now: float) -> float:
        """Stop an attempt that holds more memory than it asked for; when to look again."""
        if now >= job.measure_at:
            job.measure_at = now + MEASURE_S
            if held_bytes(slot.process.pid, slot.group) > (job.memory_bytes or 0):
                job.stop = FailureKind.MEMORY
                self._stop_in(slot)
        return job.measure_at

    def _given_back(self, slot: Slot, serials: Sequence[int]) -> None:
        back = slot.given_back(serials)
        for job in back:
            if job.stop is not None:
                self._stopped(job)
        self._requeue([job for job in back if job.stop is None])
        if any(job.stop is not None for job in slot.jobs):
            self._stop_in(slot)

    # --- stopping

    def _stop_in(self, slot: Slot) -> None:
        """Stop the running job if it is to be stopped, and have the others that are given back."""
        running = slot.running
        if running is not None and running.stop is not None and not slot.is_doomed:
            kill_timeout_s = self._kill_timeouts.get(running.stop, self._kill_timeout_s)
            if not running.is_call:
                slot.send(("stop", running.serial, kill_timeout_s))
            else:
                if len(slot.jobs) > 1 and not slot.is_dropping:
                    slot.drop(None)
                slot.terminate(kill_timeout_s)
        others = [job.serial for job in slot.jobs if job.stop is not None and job is not running]
        if others and not slot.is_dropping:
            slot.drop(others)

    def _stopped(self, job: Job) -> None:
        assert job.stop is not None
        self._finish(job, failure(job.message, stop_text(job.message, job.stop), job.stop))

    def _finish(self, job: Job, done: Completion) -> None:
        message = job.message
        self._jobs.pop((message.workflow_id, message.task, message.generation, message.attempt), None)
        self._reports.append(done)

    # --- the end of a worker

    def _ended(self, slot: Slot) -> None:
        """A worker is gone: one task is charged with it, the others go to other workers."""
        frames, _ = slot.read()
        self._digest(slot, frames)
        jobs, log = list(slot.jobs), slot.log
        slot.jobs.clear()
        if jobs:
            slot.kill_command(jobs[0])
        is_guilty = bool(jobs) and not slot.is_doomed and slot.has_begun(jobs[0])
        code = self._crew.remove(slot, keep_log=True)
        if not slot.is_ready:
            self._failed_to_start(jobs, code, log)
            return
        if is_guilty:
            culprit = jobs.pop(0)
            self._keeper.salvage_log(culprit.message, log)
            if culprit.stop is not None:
                text, kind = stop_text(culprit.message, culprit.stop), culprit.stop
            else:
                text, kind = describe_exit(code, self._oom)
            self._finish(culprit, failure(culprit.message, text, kind, {**slot.usage(code), "host": self._host}))
        for job in jobs:
            if job.stop is not None:
                self._keeper.salvage_log(job.message, log)
                self._stopped(job)
        self._requeue([job for job in jobs if job.stop is None])
        with contextlib.suppress(OSError):
            log.unlink()

    def _failed_to_start(self, jobs: list[Job], code: int, log: Path) -> None:
        self._requeue(jobs)
        self._start_failures += 1
        words = ""
        with contextlib.suppress(OSError):
            words = log.read_text(errors="replace")[-2000:].strip()
            log.unlink()
        if self._start_failures >= _START_FAILURES:
            self._start_failures = 0
            raise BackendError(
                f"worker processes do not start: {self._crew.python} ended with {code} "
                f"{_START_FAILURES} times in a row. Its last words: {words or 'none'}"
            )


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
