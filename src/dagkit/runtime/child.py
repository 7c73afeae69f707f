"""A worker process of the local executor: takes batches of attempts over a pipe, runs them one by one, reports each.

Started with `python -c` so that nothing depends on the `__main__` of the executor's process (see `executors.slot`).
The report of an attempt is written before the next attempt begins: if this process dies, the first attempt without a
report is the one that ran. Two threads: the main thread runs tasks, and reads the pipe itself while it has none (that
saves a thread switch per message); the watcher reads the pipe while a task takes long, stops commands, publishes logs.

Frames to the worker, as tuples: ("setup", {...}) first; ("run", [job, ...]); ("drop", serials | None): give back jobs
that have not begun, all or these; ("stop", serial, kill_timeout_s): stop this command;
("answer", value, error); ("leave",).
A job: (serial, workflow_id, task, generation, attempt, kwargs, upstream).

Frames from the worker: (serial, ref, started_at, wall_s) for a short success without anything else to say;
(serial, {...}) for any other report; ("ready",); ("leaving",); ("back", serials); ("ask", what, about);
("group", pid): of a command that takes long, for whoever has to kill it when this process is gone.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from dagkit.errors import BackendError
from dagkit.runtime import context, notice, orphan, output, shell
from dagkit.runtime.capture import Capture
from dagkit.runtime.environment import Surroundings, processes_of, task_id
from dagkit.runtime.failure import error_text, kind_of
from dagkit.runtime.log_sender import LogSender
from dagkit.runtime.outcome import Failure, Outcome
from dagkit.runtime.storage import Storage
from dagkit.runtime.usage import Meter
from dagkit.runtime.wire import Frames, pack, write_all

if TYPE_CHECKING:
    from dagkit.runtime.call import Caller

__all__ = ["main"]

Waited = TypeVar("Waited")
Job = tuple[int, str, str, int, int, dict[str, Any], dict[str, "str | None"]]

_TICK_S: Final = 0.05
_PUBLISH_AFTER_S: Final = 0.2
_SAMPLE_AFTER_S: Final = 1.0
_SAMPLE_EVERY_S: Final = 0.5
_IDLE_TICKS: Final = 20
_TINY_S: Final = 0.0005
_SPIN_S: Final = 0.0002
_READ_BYTES: Final = 1 << 16


def main(commands: int, reports: int) -> None:
    """Serve until the executor says leave, or is gone."""
    for fd in (commands, reports):
        os.set_inheritable(fd, False)
    parent = os.getppid()
    Worker(commands, reports, parent).serve()


class _Terminated(BaseException):
    """SIGTERM while nothing runs."""


class Worker:
    """The state of this process; see the module's text for who calls what from which thread."""

    def __init__(self, commands: int, reports: int, parent: int) -> None:
        self._commands, self._reports, self._parent = commands, reports, parent
        self._frames = Frames()
        self._poller = select.poll()
        self._poller.register(commands, select.POLLIN)
        self._last_s = 1.0
        self._todo: deque[Job] = deque()
        self._current: Job | None = None
        self._ended_before = 0
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, str | None]] = SimpleQueue()
        self._asking = threading.RLock()
        self._active = threading.Event()
        self._is_leaving = False
        self._is_terminated = False
        self._in_task = self._is_waiting = False
        self._stop_serial: int | None = None
        self._command = shell.Command()
        self._setup(self._first_frame())

    def _first_frame(self) -> dict[str, Any]:
        while True:
            data = os.read(self._commands, _READ_BYTES)
            if not data:
                os._exit(0)
            found = self._frames.feed(data)
            if found:
                self._early = found[1:]
                return dict(found[0][1])

    def _setup(self, options: dict[str, Any]) -> None:
        self._kill_timeout_s, self._login_shell = 0.0, bool(options.get("login_shell"))
        self._scratch = Path(options["scratch"])
        self._log = Path(options["log"])
        self._capture = Capture(self._log)
        self._storage = Storage(options["store"], self._ask)
        self._sender = LogSender(self._storage, self._log)
        self._around = Surroundings(self._scratch, options["store"])
        self._caller: Caller | None = None
        self._meter = Meter()
        faulthandler.enable(2)
        context.serve_from(self._storage, self._on_this_thread)
        notice.serve()
        signal.signal(signal.SIGTERM, self._on_term)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, self._on_notice)
        signal.signal(signal.SIGHUP, self._on_parent_death)
        orphan.ask_for_parent_death(signal.SIGHUP)
        threading.Thread(target=self._watch, name="dagkit-watcher", daemon=True).start()
        self._capture.discard()
        self._send(("ready",))
        for frame in self._early:
            self._obey(frame)

    # --- the main thread

    def serve(self) -> None:
        """Run what comes, until there is nothing left after `leave`."""
        while not self._is_terminated:
            try:
                job = self._todo.popleft()
            except IndexError:
                if self._is_leaving:
                    return
                self._await_commands()
                continue
            self._ended_before = self._capture.ended
            self._current = job
            self._run(job)
            self._current = None
        self._send(("leaving",))

    def _await_commands(self) -> None:
        if not self._reading.acquire(blocking=False):
            self._wait_interruptibly(self._wake.get)  # the watcher reads; it says when it has read or stops reading
            return
        try:
            if self._last_s < _TINY_S:
                self._spin()
            data = self._wait_interruptibly(partial(os.read, self._commands, _READ_BYTES))
            if data == b"":
                self._orphaned()
            for frame in self._frames.feed(data or b""):
                self._obey(frame)
        finally:
            self._reading.release()

    def _spin(self) -> None:
        """Look for commands for a moment without sleeping: waking a processor that sleeps takes as long as a hop."""
        until = time.perf_counter() + _SPIN_S
        while not self._poller.poll(0) and time.perf_counter() < until:
            pass

    def _wait_interruptibly(self, wait: Callable[[], Waited]) -> Waited | None:
        """The result of a system call that blocks; None if SIGTERM came instead."""
        try:
            self._is_waiting = True
            return None if self._is_terminated else wait()
        except _Terminated:
            return None
        finally:
            self._is_waiting = False

    def _run(self, job: Job) -> None:
        serial, workflow_id, task, generation, attempt, kwargs, upstream = job
        call = kwargs.get("call")
        caller = None if call is None else self._caller or self._new_caller()
        started_at, begin = time.time(), time.perf_counter()
        notice.forget()
        try:
            variables = self._around.variables(workflow_id, task, generation, attempt, upstream)
            if call is None or caller is None:
                outcome = self._run_command(job, variables)
            else:
                self._around.enter(variables)
                value = (
                    caller.run(call, upstream) if not self._around.is_traced else self._traced(caller, job, variables)
                )
                outcome = Outcome(self._storage.keep(workflow_id, task, value))
        except BaseException as error:
            outcome = self._failed(error)
        if output.is_written(self._around.output_file):
            outcome = self._collect(outcome, workflow_id, task)
        self._last_s = wall_s = time.perf_counter() - begin
        if call is None:
            self._around.new_output_file()
        try:
            self._around.leave()
        except OSError as error:  # the folder of the executor is gone: every further task would run elsewhere
            outcome.error = outcome.error or f"the working directory is gone: {error}"
            outcome.kind = outcome.kind or "node"
        log = self._end_log(workflow_id, task, f"{generation}.{attempt}")
        used = self._meter.end(wall_s) if outcome.used is None else self._meter.end_command(outcome.used)
        if outcome.error is None and not used and not log and call is not None:
            self._send((serial, outcome.ref, started_at, wall_s))
        else:
            self._report(serial, outcome, {"wall_s": wall_s, "started_at": started_at, **used}, log)

    def _traced(self, caller: Caller, job: Job, variables: tuple[str, ...]) -> Any:
        from dagkit.runtime.trace_context import within

        return within(variables[-1], partial(caller.run, job[5]["call"], job[6]))

    def _run_command(self, job: Job, variables: tuple[str, ...]) -> Outcome:
        serial, kwargs = job[0], job[5]
        text, own, cwd = shell.check(kwargs)
        self._command = shell.Command(serial)
        if self._stop_serial == serial:
            return Outcome(error="stopped before it began", kind="cancelled", stopped=True)
        try:
            if (synced := kwargs.get("bg_dirsync_to")) is None:
                return self._shell(variables, own, text, cwd)
            from dagkit.runtime.folder_sync import FolderSync, place_of

            with FolderSync(place_of(synced), self._around.scratch) as sync:
                outcome = self._shell(variables, {**own, **sync.variables}, text, cwd)
            if sync.problem and outcome.error is None:
                outcome.error, outcome.kind = sync.problem, "user"
            return outcome
        finally:
            self._command = shell.Command()

    def _shell(self, variables: tuple[str, ...], own: Mapping[str, str], text: str, cwd: str | None) -> Outcome:
        environment = self._around.for_command(variables, own)
        return shell.run(text, environment, cwd, self._command, login=self._login_shell)

    def _failed(self, error: BaseException) -> Outcome:
        self._in_task = False
        if isinstance(error, Failure):
            return Outcome(error=error.error, kind=error.kind)
        kind = kind_of(error) if notice.reason() != notice.TIME_LIMIT else "timeout"
        try:
            return Outcome(error=error_text(error), kind=kind)
        except BaseException as problem:  # out of memory while describing a failure, say
            return Outcome(error=type(error).__name__, kind=kind_of(problem))

    def _collect(self, outcome: Outcome, workflow_id: str, task: str) -> Outcome:
        """Take what the task wrote to its output file, unless it returned a value. A bad file fails a success only."""
        path = self._around.output_file
        self._around.new_output_file()
        if outcome.ref is not None:
            Path(path).unlink()
            return outcome
        try:
            outcome.ref = output.collect(path, self._storage, workflow_id, task)
        except Exception as error:  # whatever it is, no output is dropped with a success
            if outcome.error is None:
                outcome.error = error.error if isinstance(error, Failure) else error_text(error)
                outcome.kind = kind_of(error)
        return outcome

    def _end_log(self, workflow_id: str, task: str, attempt: str) -> bytes:
        """Put the task's log where it belongs; returns it if only the executor can do that. A failure costs the log."""
        if not self._capture.has_unclaimed():
            self._sender.forget()
            return b""
        data = b""
        try:
            target = self._storage.log_path(workflow_id, task, attempt)
            if target is not None:
                self._capture.claim(target)
                return b""
            if self._storage.is_shared:
                self._sender.finish(workflow_id, task, attempt)
            else:
                data = self._log.read_bytes()
        except (OSError, BackendError):
            pass
        self._capture.discard()
        return data

    def _report(self, serial: int, outcome: Outcome, used: dict[str, Any], log: bytes) -> None:
        report = outcome.report(used)
        if log:
            report["log"] = log
        self._send((serial, report))

    def _new_caller(self) -> Caller:
        from dagkit.runtime.call import Caller  # not at the start: it takes as long as all the rest

        self._caller = Caller(self._storage, self._guard)
        return self._caller

    def _guard(self, begins: bool) -> None:
        self._in_task = begins

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        """The executor stops the task that runs here: its `finally` blocks run, then this process leaves."""
        self._is_terminated = True
        self._command.stop()
        self._wake.put(None)
        if self._in_task:
            self._in_task = False
            notice.give()
            raise SystemExit(f"stopped by {signal.Signals(number).name}")
        if self._is_waiting:
            self._is_waiting = False
            raise _Terminated

    def _on_notice(self, number: int, frame: FrameType | None) -> None:
        """The machinery will stop the task soon: it may still save its work."""
        if self._in_task:
            notice.give(notice.TIME_LIMIT)

    def _on_this_thread(self) -> bool:
        return self._current is not None

    # --- both threads

    def _send(self, frame: tuple[Any, ...]) -> None:
        data = pack(frame)
        with self._writing:
            write_all(self._reports, data)

    def _obey(self, frame: tuple[Any, ...]) -> None:
        word = frame[0]
        if word == "run":
            self._todo.extend(frame[1])
            if not self._active.is_set():
                self._active.set()
        elif word == "drop":
            self._give_back(None if frame[1] is None else set(frame[1]))
        elif word == "stop":
            self._stop(frame[1], frame[2])
        elif word == "answer":
            self._answers.put((frame[1], frame[2]))
        elif word == "leave":
            self._is_leaving = True

    def _give_back(self, serials: set[int] | None) -> None:
        taken: list[Job] = []
        while True:
            try:
                taken.append(self._todo.pop())
            except IndexError:
                break
        taken.reverse()
        kept = [] if serials is None else [job for job in taken if job[0] not in serials]
        back = [job[0] for job in taken if serials is None or job[0] in serials]
        self._send(("back", back))
        self._todo.extend(kept)

    def _stop(self, serial: int, kill_timeout_s: float) -> None:
        self._stop_serial, self._kill_timeout_s = serial, kill_timeout_s
        self._stop_command(serial, signal.SIGTERM)

    def _stop_command(self, serial: int, number: int) -> None:
        command = self._command  # by now it may be that of the next job
        if command.serial == serial:
            command.stop(number)

    def _ask(self, what: str, about: Any) -> Any:
        """The executor's answer; called by the task's own thread or threads while the watcher or this thread reads."""
        with self._asking:
            self._send(("ask", what, about))
            while self._answers.empty():
                if self._reading.acquire(timeout=0.01):
                    try:
                        self._read_once(10)
                    finally:
                        self._reading.release()
            value, error = self._answers.get()
        if error is not None:
            raise BackendError(error)
        return value

    def _read_once(self, wait_ms: int) -> bool:
        """Read and obey if something comes within the time."""
        if not self._poller.poll(wait_ms):
            return False
        data = os.read(self._commands, _READ_BYTES)
        if not data:
            self._orphaned()
        for frame in self._frames.feed(data):
            self._obey(frame)
        return True

    # --- the watcher

    def _watch(self) -> None:
        """Look every 50 ms; read the pipe while one task takes longer than that; sleep while there is nothing to do."""
        seen: Job | None = None
        since, idle = 0.0, 0
        while True:
            job = self._current
            if job is None or job is not seen:
                seen, since = job, time.monotonic()
                idle = idle + 1 if job is None else 0
                if idle > _IDLE_TICKS:
                    self._active.clear()
                    if self._current is None and not self._todo:
                        self._active.wait()
                    idle = 0
                time.sleep(_TICK_S)
                continue
            self._watch_long(job, since)

    def _watch_long(self, job: Job, since: float) -> None:
        """Read on behalf of the main thread until this job has ended."""
        if not self._reading.acquire(timeout=_TICK_S):
            return
        published, kill_at, sample_at, told = False, 0.0, 0.0, None
        try:
            while self._current is job:
                group = self._command.group
                if group is not None and group != told:
                    told = group
                    self._tell_group(group)
                if self._read_once(int(_TICK_S * 1000)):
                    self._wake.put(None)
                age = time.monotonic() - since
                if age > _PUBLISH_AFTER_S and not published:
                    published = self._publish(job)
                if age > _SAMPLE_AFTER_S and time.monotonic() > sample_at:
                    sample_at = time.monotonic() + _SAMPLE_EVERY_S
                    self._meter.sample(None if group is None else shell.resident_bytes(group))
                if self._stop_serial == job[0]:
                    kill_at = kill_at or time.monotonic() + self._kill_timeout_s
                    if time.monotonic() > kill_at:
                        self._stop_command(job[0], signal.SIGKILL)
        finally:
            self._reading.release()
            self._wake.put(None)

    def _tell_group(self, group: int) -> None:
        """Not after the report of its command: the number may be another's by then."""
        data = pack(("group", group))
        with self._writing:
            if self._command.group == group:
                write_all(self._reports, data)

    def _publish(self, job: Job) -> bool:
        try:
            ended = self._ended_before  # of this job, if it is the current one afterwards
            attempt = f"{job[3]}.{job[4]}"
            target = self._storage.log_path(job[1], job[2], attempt)
            if self._current is not job:
                return True
            if target is not None:
                self._capture.publish(target, ended)
            elif self._storage.is_shared:
                self._sender.follow(job[1], job[2], attempt, lambda: self._capture.ended == ended)
        except Exception:  # a log that cannot be shown early is still shown at the end
            pass
        return True

    # --- when the executor is gone

    def _on_parent_death(self, number: int, frame: FrameType | None) -> None:
        if os.getppid() != self._parent:
            self._orphaned()

    def _orphaned(self) -> NoReturn:
        """Leave nothing behind: the command that runs, this process's own group, the files."""
        group, job = self._command.group, self._current
        if group is not None:
            shell.send(group, signal.SIGKILL)
        pids: list[int] = []
        if job is not None and "call" not in job[5]:  # one that has just been started is not known by its group yet
            pids = processes_of(task_id(job[1], job[2], job[3], job[4]), self._scratch)
        orphan.leave_nothing(pids, self._scratch, self._log)
