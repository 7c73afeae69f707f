"""The local executor: persistent worker processes on this machine that take tasks in batches.

Calls run inside a worker process, commands in their own process group below one. A worker that dies costs one attempt
of the task that ran in it; the tasks behind it are given to others. The protocol is in `dagkit.runtime.child`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.ending import OomWatch, describe_exit
from dagkit.executors.pacing import BATCH_S, Pace, Paces
from dagkit.executors.slot import Job, Slot
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store

__all__ = ["LocalExecutor"]

_LONG_S: Final = 0.05
_LINGER_S: Final = 0.001
_EXIT_S: Final = 2.0
_START_FAILURES: Final = 3

Report = Completion | Started


class LocalExecutor:
    """Runs tasks in up to `slots` worker processes, started when there is work for them.

    Args:
        store: Where outputs and logs go. A store that other processes can open is opened by the workers.
        slots: How many tasks run at the same time; default: one per processor that this process may use.
        log_dir: Where workers keep the log that is being written; default: beside the store's own logs.
        python: The interpreter of the workers.
        kill_timeout_s: From SIGTERM to SIGKILL when a task is stopped.

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
    ) -> None:
        if slots is not None and slots < 1:
            raise ConfigError(f"slots must be at least 1, not {slots}")
        self.slots = slots or _processors()
        self._store, self._log_dir, self._kill_timeout_s = store, log_dir, kill_timeout_s
        self._python = python or sys.executable
        if not self._python:
            raise ConfigError("this process does not know its Python interpreter; name one: LocalExecutor(python=...)")
        self._cwd = str(Path.cwd())
        self._host = socket.gethostname()
        self._scratch: Path | None = None
        self._workers: list[Slot] = []
        self._waiting: deque[Job] = deque()
        self._jobs: dict[tuple[str, str, int, int], Job] = {}
        self._reports: list[Report] = []
        self._paces = Paces()
        self._oom = OomWatch()
        self._serial = self._made = self._start_failures = 0
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._bell_rope = os.pipe()
        for fd in (self._bell, self._bell_rope):
            os.set_blocking(fd, False)
        self._selector.register(self._bell, selectors.EVENT_READ)

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
            _failure(message, "the process that ran this task is gone", FailureKind.LOST)
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
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is rung already; closed: nobody waits
            os.write(self._bell_rope, b"!")

    def close(self, grace_s: float = 5.0) -> None:
        """Let what runs end within the grace, then kill it; no process, descriptor or file is left behind."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.clear()
        deadline = time.monotonic() + grace_s
        for slot in self._workers:
            slot.drop(None)
            slot.send(("leave",))
        while self._workers and (wait_s := deadline - time.monotonic()) > 0:
            self._tend()
            self._listen(min(wait_s, 0.1))
        for slot in list(self._workers):
            self._remove(slot)
        self._selector.close()
        os.close(self._bell)
        os.close(self._bell_rope)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

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
            slot.give(self._take_batch())
            self._watch_outbox(slot)

    def _choose(self, job: Job) -> Slot | None:
        """An idle worker, else a new one, else one that can take more; None if the job has to wait."""
        best: Slot | None = None
        for slot in self._workers:
            if not slot.accepts(job.pace):
                continue
            if not slot.jobs:
                return slot
            if best is None or slot.load_s < best.load_s:
                best = slot
        if len(self._workers) < self.slots and not self._is_closed:
            return self._start(job.message)
        return best

    def _take_batch(self) -> list[Job]:
        waiting = self._waiting
        batch = [waiting.popleft()]
        pace = batch[0].pace
        fair = -(-(len(waiting) + 1) // self.slots)
        total_s, most = pace.expected_s, min(fair, pace.batch)
        while waiting and len(batch) < most:
            job = waiting[0]
            if job.pace is not pace:
                pace = job.pace
                if not pace.is_short:
                    break
                most = min(most, pace.batch)
            total_s += pace.expected_s
            if total_s > BATCH_S:
                break
            batch.append(waiting.popleft())
        return batch

    def _start(self, message: TaskMessage) -> Slot:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix=f"dagkit-{os.getpid()}-"))
        self._made += 1
        scratch = self._scratch / str(self._made)
        setup = {"store": self._store.url, "kill_timeout_s": self._kill_timeout_s}
        log = self._open_log(message, scratch)
        slot = Slot(self._made, self._python, self._cwd, scratch, log, setup)
        self._workers.append(slot)
        self._selector.register(slot.in_fd, selectors.EVENT_READ, slot)
        if slot.exit_fd is not None:
            self._selector.register(slot.exit_fd, selectors.EVENT_READ, slot)
        return slot

    def _open_log(self, message: TaskMessage, scratch: Path) -> Path:
        """The file a new worker writes into; on the file system of the store's logs, so that renaming is enough."""
        folder = self._log_dir
        if folder is None:
            path = self._store.log_path(message.workflow_id, message.task, f"{message.generation}.{message.attempt}")
            folder = path.parent.parent if path is not None else None
        if folder is None:
            return scratch / "log"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f".open-{os.getpid()}-{id(self):x}-{self._made}"

    # --- listening

    def _listen(self, wait_s: float) -> bool:
        """Wait for something from workers and take it in; True if `interrupt` was called."""
        if self._linger():
            time.sleep(_LINGER_S)
        rung = False
        ended: list[Slot] = []
        for key, mask in self._selector.select(wait_s):
            slot: Slot | None = key.data
            if slot is None:
                rung = True
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 4096)
            elif key.fd == slot.out_fd:
                slot.flush()
                self._watch_outbox(slot)
            elif key.fd == slot.exit_fd:
                ended.append(slot)
            elif mask:
                self._take_in(slot)
        for slot in ended:
            if slot in self._workers:
                self._ended(slot)
        self._assign()
        return rung

    def _linger(self) -> bool:
        """Whether so many short tasks are under way that it pays to let their reports gather."""
        recent = self._paces.recent
        return len(self._jobs) * recent.expected_s > 4 * _LINGER_S * self.slots and recent.batch >= 16

    def _take_in(self, slot: Slot) -> None:
        frames, is_over = slot.read()
        self._digest(slot, frames)
        if is_over:
            self._selector.unregister(slot.in_fd)
            slot.kill_at = min(slot.kill_at or 1e18, time.monotonic() + _EXIT_S)
            if slot.exit_fd is None:
                self._ended(slot)

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
        self._keep_log(message, report.get("log"))
        completion = _completion(message, report.get("ref"), error, FailureKind(kind) if kind else None, usage)
        if job.stop is not None and (error is not None or report.get("stopped")):
            _fail(completion, _stop_text(job), job.stop)
        if usage.get("signal") == "SIGKILL" and completion.kind is FailureKind.USER and self._oom.has_killed():
            _fail(completion, f"{error}; the kernel was out of memory", FailureKind.MEMORY)
        self._finish(job, completion)

    def _keep_log(self, message: TaskMessage, data: bytes | None) -> None:
        if data:
            attempt = f"{message.generation}.{message.attempt}"
            with contextlib.suppress(BackendError):  # a log that cannot be kept does not spoil the result
                self._store.append_log(message.workflow_id, message.task, attempt, 0, data)

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
            slot.send(("answer", *self._answer(frame[1], frame[2])))
            self._watch_outbox(slot)

    def _answer(self, what: str, about: Any) -> tuple[Any, str | None]:
        try:
            if what == "output":
                return self._store.get_output(about), None
            if what == "payload":
                return self._store.get_payload(about), None
            if what == "put":
                return self._store.put_output(*about), None
            return about in self._store.cancel_requested([about]), None
        except Exception as error:  # whatever it is, it is the asking task that has to hear it
            return None, str(error) or type(error).__name__

    def _watch_outbox(self, slot: Slot) -> None:
        """Listen for room in a worker's pipe as long as something waits to be written."""
        is_watched = slot.out_fd in self._selector.get_map()
        if slot.has_unsent and not is_watched:
            self._selector.register(slot.out_fd, selectors.EVENT_WRITE, slot)
        elif is_watched and not slot.has_unsent:
            self._selector.unregister(slot.out_fd)

    # --- what is due

    def _tend(self) -> float:
        """Report long tasks, take back what waits behind them, kill what would not stop; when to look again."""
        now = time.monotonic()
        due = now + 60.0
        for slot in list(self._workers):
            job = slot.running
            if job is not None:
                due = min(due, self._look_at(slot, job, now))
            if slot.kill_at is not None:
                if now >= slot.kill_at:
                    slot.signal(9)
                    slot.kill_at = now + 1.0
                    if slot.process.poll() is not None:
                        self._ended(slot)
                        continue
                due = min(due, slot.kill_at or due)
        return due

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
        return now + 60.0

    def _given_back(self, slot: Slot, serials: Sequence[int]) -> None:
        back = slot.given_back(serials)
        for job in back:
            if job.stop is not None:
                self._stopped(job)
        self._requeue([job for job in back if job.stop is None])
        if any(job.stop is not None for job in slot.jobs):
            self._stop_in(slot)

    def _requeue(self, jobs: Sequence[Job]) -> None:
        """To the front, in order: these have waited longest."""
        for job in jobs:
            job.slot = None
        self._waiting.extendleft(reversed(jobs))

    # --- stopping

    def _stop_in(self, slot: Slot) -> None:
        """Stop the running job if it is to be stopped, and have the others that are given back."""
        running = slot.running
        if running is not None and running.stop is not None and not slot.is_doomed:
            if not running.is_call:
                slot.send(("stop", running.serial))
            elif len(slot.jobs) > 1 and not slot.is_dropping:
                slot.drop(None)
                slot.terminate(self._kill_timeout_s)
            else:
                slot.terminate(self._kill_timeout_s)
        others = [job.serial for job in slot.jobs if job.stop is not None and job is not running]
        if others and not slot.is_dropping:
            slot.drop(others)

    def _stopped(self, job: Job) -> None:
        assert job.stop is not None
        self._finish(job, _failure(job.message, _stop_text(job), job.stop))

    def _finish(self, job: Job, completion: Completion) -> None:
        message = job.message
        self._jobs.pop((message.workflow_id, message.task, message.generation, message.attempt), None)
        self._reports.append(completion)

    # --- the end of a worker

    def _ended(self, slot: Slot) -> None:
        """A worker is gone: one task is charged with it, the others go to other workers."""
        frames, _ = slot.read()
        self._digest(slot, frames)
        jobs, log = list(slot.jobs), slot.log
        slot.jobs.clear()
        code = self._remove(slot, keep_log=True)
        if not slot.is_ready:
            self._failed_to_start(jobs, code, log)
            return
        if jobs and not slot.is_doomed:
            culprit = jobs.pop(0)
            self._salvage_log(culprit.message, log)
            text, kind = (_stop_text(culprit), culprit.stop) if culprit.stop else describe_exit(code, self._oom)
            completion = _failure(culprit.message, text, kind)
            completion.usage = self._usage_of_dead(slot, code)
            self._finish(culprit, completion)
        for job in jobs:
            if job.stop is not None:
                self._salvage_log(job.message, log)
                self._stopped(job)
        self._requeue([job for job in jobs if job.stop is None])
        with contextlib.suppress(OSError):
            log.unlink()

    def _usage_of_dead(self, slot: Slot, code: int) -> dict[str, Any]:
        wall_s = time.monotonic() - slot.since
        usage = {"wall_s": wall_s, "started_at": slot.since_epoch, "host": self._host, "pid": slot.process.pid}
        return {**usage, **({"exit_code": code} if code >= 0 else {"signal": _signal(code)})}

    def _salvage_log(self, message: TaskMessage, log: Path) -> None:
        """What the task wrote before its worker died becomes its log, unless it is there already."""
        with contextlib.suppress(OSError, BackendError):
            if log.stat().st_size:
                self._keep_log(message, log.read_bytes())
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
                f"worker processes do not start: {self._python} ended with {code} "
                f"{_START_FAILURES} times in a row. Its last words: {words or 'none'}"
            )

    def _remove(self, slot: Slot, *, keep_log: bool = False) -> int:
        """Forget a worker, with everything that it left."""
        for fd in (slot.in_fd, slot.out_fd, slot.exit_fd):
            if fd is not None and fd in self._selector.get_map():
                self._selector.unregister(fd)
        self._workers.remove(slot)
        code = slot.bury()
        if not keep_log:
            with contextlib.suppress(OSError):
                slot.log.unlink()
        return code


def _completion(
    message: TaskMessage, ref: str | None, error: str | None, kind: FailureKind | None, usage: dict[str, Any] | None
) -> Completion:
    return Completion(
        message.workflow_id, message.task, error is None, ref, error, message.attempt, message.generation, kind, usage
    )


def _failure(message: TaskMessage, text: str, kind: FailureKind) -> Completion:
    return _completion(message, None, text, kind, None)


def _fail(completion: Completion, text: str, kind: FailureKind) -> None:
    completion.success, completion.error, completion.kind = False, text, kind


def _stop_text(job: Job) -> str:
    if job.stop is FailureKind.TIMEOUT:
        limit = job.message.timeout_s
        return f"timed out after {limit} s" if limit is not None else "timed out"
    return str(job.stop)


def _signal(code: int) -> str:
    from dagkit.runtime.failure import signal_name

    return signal_name(-code)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
