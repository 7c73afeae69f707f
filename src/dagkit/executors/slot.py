"""One worker process as the executor sees it: its pipes, the jobs it holds, its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.errors import BackendError
from dagkit.executors.pacing import BATCH_S, MAX_BATCH, Pace
from dagkit.model.messages import TaskMessage
from dagkit.model.states import FailureKind
from dagkit.runtime.environment import processes_of, task_id
from dagkit.runtime.failure import signal_name
from dagkit.runtime.wire import Frames, pack

__all__ = ["Job", "Slot", "take_batch"]

_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[3:]; from dagkit.runtime.child import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
_READ_BYTES: Final = 1 << 16
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031


@dataclass(slots=True)
class Job:
    """One attempt on its way through the executor."""

    serial: int
    message: TaskMessage
    pace: Pace
    slot: Slot | None = None
    stop: FailureKind | None = None
    """Set when the attempt was cancelled: it is reported as a failure of this kind."""
    is_start_told: bool = False
    expected_s: float = 0.0
    memory_bytes: int | None = None
    """The most that it may hold."""
    measure_at: float = 0.0
    frame_end: int = 0
    """How many bytes its worker has read when it knows of this job."""

    @property
    def is_call(self) -> bool:
        return "call" in self.message.kwargs


def take_batch(waiting: deque[Job], slots: int) -> list[Job]:
    """Remove from the front what one worker gets at once: at most its share, and a few milliseconds of work."""
    batch = [waiting.popleft()]
    pace = batch[0].pace
    share = -(-(len(waiting) + 1) // slots)
    total_s, most = pace.expected_s, min(share, pace.batch)
    while waiting and len(batch) < most:
        if waiting[0].pace is not pace:
            pace = waiting[0].pace
            if not pace.is_short:
                break
            most = min(most, pace.batch)
        total_s += pace.expected_s
        if total_s > BATCH_S:
            break
        batch.append(waiting.popleft())
    return batch


class Slot:
    """A worker process and the jobs it was given, the first of which is the one that runs.

    Attributes:
        since: When the first job began, by the monotonic clock; `since_epoch` by the wall clock. Close estimates.
        is_dropping: It was asked to give back jobs and has not answered; it gets none until it has.
        is_watched: The executor listens for room in its pipe.
        is_doomed: It was told to end because of one job; what happens to the others is not their fault.
    """

    def __init__(self, number: int, python: str, cwd: str, scratch: Path, log: Path, setup: dict[str, Any]) -> None:
        self.number, self.scratch, self.log = number, scratch, log
        self.jobs: deque[Job] = deque()
        self.load_s = 0.0
        self.is_ready = self.is_dropping = self.is_doomed = False
        self.since = self.since_epoch = 0.0
        self.kill_at: float | None = None
        self.group: int | None = None
        self._frames = Frames()
        self._outbox = bytearray()
        self._queued = 0
        self.is_watched = False
        self._start(python, cwd)
        self.send(("setup", {**setup, "scratch": str(scratch), "log": str(log)}))

    def _start(self, python: str, cwd: str) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._unread_fd, self.out_fd = os.pipe()  # the worker's end stays open here too: see `has_begun`
        self.in_fd, inner_out = os.pipe()
        log = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o666)
        try:
            self.process = subprocess.Popen(
                [python, "-c", _BOOT, str(self._unread_fd), str(inner_out), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
                pass_fds=(self._unread_fd, inner_out),
                start_new_session=True,
            )
        except OSError as error:
            for fd in (self._unread_fd, self.out_fd, self.in_fd):
                os.close(fd)
            raise BackendError(f"a worker process could not be started with {python}: {error}") from error
        finally:
            for fd in (inner_out, log):
                os.close(fd)
        self._prepare_pipes()

    def _prepare_pipes(self) -> None:
        for fd in (self.in_fd, self.out_fd):
            os.set_blocking(fd, False)
            if sys.platform == "linux":
                import fcntl

                with contextlib.suppress(OSError):  # over the user's limit for pipes: the default size works too
                    fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
        self.exit_fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # an old kernel: the end of the pipe says it then
                self.exit_fd = os.pidfd_open(self.process.pid)

    # --- jobs

    @property
    def running(self) -> Job | None:
        """The job that runs now, as far as is known here."""
        return self.jobs[0] if self.jobs and self.is_ready else None

    def accepts(self, pace: Pace) -> bool:
        """Whether a job of this pace may be given to it now."""
        if self.is_doomed or self.is_dropping:
            return False
        if not self.jobs:
            return True
        return pace.is_short and self.is_ready and self.load_s < BATCH_S and len(self.jobs) < 2 * MAX_BATCH

    def give(self, batch: list[Job]) -> None:
        """Hand over jobs, in order."""
        if not self.jobs:
            self.begin(time.time())
            self.load_s = 0.0
        wire = []
        for job in batch:
            message = job.message
            job.slot = self
            pace = job.pace
            job.expected_s = pace.expected_s if pace.is_short else BATCH_S
            self.load_s += job.expected_s
            wire.append(
                (
                    job.serial,
                    message.workflow_id,
                    message.task,
                    message.generation,
                    message.attempt,
                    message.kwargs,
                    message.upstream,
                )
            )
        self.jobs.extend(batch)
        self.send(("run", wire))
        for job in batch:
            job.frame_end = self._queued

    def begin(self, epoch: float) -> None:
        """The first job began at about this time, and not before now."""
        self.since, self.since_epoch = time.monotonic(), epoch

    def finish(self, serial: int) -> Job | None:
        """The job with this serial has ended."""
        jobs = self.jobs
        if not jobs or jobs[0].serial != serial:
            return None
        job = jobs.popleft()
        self.load_s -= job.expected_s
        return job

    def drop(self, serials: Collection[int] | None) -> None:
        """Ask it to give back jobs that have not begun: these, or all."""
        self.is_dropping = True
        self.send(("drop", None if serials is None else list(serials)))

    def given_back(self, serials: Collection[int]) -> list[Job]:
        """Its answer: take these jobs off its list."""
        self.is_dropping = False
        wanted = set(serials)
        back = [job for job in self.jobs if job.serial in wanted]
        self.jobs = deque(job for job in self.jobs if job.serial not in wanted)
        for job in back:
            job.slot = None
            self.load_s -= job.expected_s
        return back

    # --- pipes

    def send(self, frame: tuple[Any, ...]) -> None:
        """Queue a frame and write what the pipe takes; `flush` writes the rest."""
        data = pack(frame)
        self._queued += len(data)
        self._outbox += data
        self.flush()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def flush(self) -> None:
        """Write what the pipe takes now. A process that is gone is noticed elsewhere."""
        try:
            while self._outbox:
                written = os.write(self.out_fd, self._outbox)
                del self._outbox[:written]
        except BlockingIOError:
            return
        except BrokenPipeError:  # not with a reader's end held here, but for the platform to say
            self._outbox.clear()

    def read(self) -> tuple[list[Any], bool]:
        """Frames that have arrived, and whether the pipe is at its end."""
        frames: list[Any] = []
        try:
            while True:
                data = os.read(self.in_fd, _READ_BYTES)
                if not data:
                    return frames, True
                frames += self._frames.feed(data)
                if len(data) < _READ_BYTES:
                    return frames, False
        except BlockingIOError:
            return frames, False

    # --- the end

    def terminate(self, kill_timeout_s: float) -> None:
        """SIGTERM to its process group, SIGKILL later."""
        self.is_doomed = True
        self.kill_at = time.monotonic() + kill_timeout_s
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Signal its whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def notify(self) -> None:
        """SIGUSR1 to the worker alone: most programs that a task has started would die of it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL to its whole process group."""
        self.signal(signal.SIGKILL)

    def has_begun(self, job: Job) -> bool:
        """Once the process is gone: whether it had read of this job. What it had not read is still in the pipe."""
        os.set_blocking(self._unread_fd, False)
        unread = len(self._outbox)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._unread_fd, _READ_BYTES):
                unread += len(data)
        return job.frame_end <= self._queued - unread

    def kill_command(self, job: Job) -> None:
        """Kill what the command of a worker that died has left, also if the worker did not get to say its group."""
        message = job.message
        if not job.is_call:
            identity = task_id(message.workflow_id, message.task, message.generation, message.attempt)
            for pid in processes_of(identity, self.scratch):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def usage(self, code: int) -> dict[str, Any]:
        """What is known of the attempt that ran when the worker ended with `code`."""
        ended = {"exit_code": code} if code >= 0 else {"signal": signal_name(-code)}
        wall_s = time.monotonic() - self.since
        return {"wall_s": wall_s, "started_at": self.since_epoch, "pid": self.process.pid, **ended}

    def bury(self) -> int:
        """Kill whatever is left of it and of what it started, reap it, close and remove; returns how it ended."""
        self.signal(signal.SIGKILL)
        if self.group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
        code = self.process.wait()
        for fd in (self._unread_fd, self.in_fd, self.out_fd, self.exit_fd):
            if fd is not None:
                os.close(fd)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return code
