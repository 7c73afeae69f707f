"""Running a shell task: its command in its own process group."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dagkit.runtime.failure import signal_name
from dagkit.runtime.outcome import Failure, Outcome

__all__ = ["Command", "check", "run"]

_LINGER_S: Final = 5.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PLAIN: Final = ("/bin/sh", "-c")
_LOGIN: Final = ("/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-l", "-c")
_INPUT: Final = ((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),)
_RESET: Final = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name))
"""What the interpreter ignores from its start, and a command should not."""
_HINTS: Final = {126: "found, but not executable", 127: "command not found"}


class Command:
    """The command of one job, for whoever has to stop it. Its methods may be called from another thread."""

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        self.group: int | None = None
        self.is_stopped = False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to its process group. A command that has not begun yet gets it when it does."""
        self.is_stopped = True
        if self.group is not None:
            send(self.group, number)


def send(group: int, number: int) -> bool:
    """Signal a process group; False if it has no members left."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def check(kwargs: Mapping[str, Any]) -> tuple[str, dict[str, str], str | None]:
    """The command, its own environment and folder. `Failure` of kind `config` if they are not what they must be."""
    command, own, cwd = kwargs.get("cmd"), kwargs.get("env") or {}, kwargs.get("cwd")
    synced = kwargs.get("bg_dirsync_to")
    if not isinstance(command, str) or not command.strip():
        raise Failure("the task has no command: its kwargs need `cmd`, a text", "config")
    if not isinstance(own, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in own.items()):
        raise Failure("`env` of the task must map names to texts", "config")
    if any("\0" in text for text in (command, *own, *own.values())) or any("=" in name or not name for name in own):
        raise Failure(
            "`cmd` and `env` of the task must not hold a NUL character, nor a variable's name a `=`", "config"
        )
    if cwd is not None and not isinstance(cwd, str):
        raise Failure("`cwd` of the task must be a text", "config")
    if synced is not None and not isinstance(synced, str):
        raise Failure("`bg_dirsync_to` of the task must be a text", "config")
    return command, dict(own), cwd


def run(
    text: str, environment: Mapping[str, str], cwd: str | None, command: Command, *, login: bool = False
) -> Outcome:
    """Run to the end, in a login shell if asked for. stdout and stderr are those of this process.

    If something in the group keeps them open after the command has ended, the group is killed after five seconds and
    the command's exit code stands.
    """
    try:
        group = _start(_LOGIN if login else _PLAIN, text, environment, cwd)
    except OSError as error:
        raise Failure(
            f"the command could not be started: {error.strerror or error}: {error.filename or text}"
        ) from error
    command.group = group
    if command.is_stopped:
        send(group, signal.SIGTERM)
    _, status, used = os.wait4(group, 0)
    _finish_group(group, command)
    command.group = None
    outcome = _ended(os.waitstatus_to_exitcode(status))
    outcome.stopped = command.is_stopped
    outcome.used = used
    return outcome


def _start(shell: Sequence[str], text: str, environment: Mapping[str, str], cwd: str | None) -> int:
    """The process, in a session of its own. Half of what `subprocess.Popen` takes.

    It inherits descriptors 1 and 2, and what a C library of an earlier task has left open without close-on-exec. This
    process goes to `cwd` too; `Surroundings.leave` goes back.
    """
    if cwd is not None:
        os.chdir(cwd)
    return os.posix_spawn(shell[0], [*shell, text], environment, file_actions=_INPUT, setsid=True, setsigdef=_RESET)


def _ended(code: int) -> Outcome:
    if code == 0:
        return Outcome(exit_code=0)
    if code < 0:
        name = signal_name(-code)
        return Outcome(error=f"the command was killed by signal {name}", kind="user", signal=name)
    hint = _HINTS.get(code) or (f"128 + {signal_name(code - 128)}" if 128 < code < 160 else "")
    return Outcome(
        error=f"the command ended with exit code {code}" + (f" ({hint})" if hint else ""), kind="user", exit_code=code
    )


def _finish_group(group: int, command: Command) -> None:
    """Wait for those who still hold the log open, at most five seconds; kill the whole group of a stopped command."""
    if not send(group, 0):
        return
    deadline = time.monotonic() + _LINGER_S
    pause = 0.001
    while not command.is_stopped and _holds_output(group):
        if time.monotonic() > deadline:
            send(group, signal.SIGKILL)
            return
        time.sleep(pause)
        pause = min(0.05, pause * 2)
    if command.is_stopped:
        send(group, signal.SIGKILL)


def _holds_output(group: int) -> bool:
    """Whether a process of the group has this process's stdout or stderr open. Without /proc: whether there is one."""
    if not Path("/proc/self/stat").exists():
        return send(group, 0)
    logs = {_identity("/proc/self/fd/1"), _identity("/proc/self/fd/2")} - {None}
    return any(_identity(link) in logs for pid in _members(group) for link in _open_files(pid))


def resident_bytes(group: int) -> int:
    """Memory of all processes of a group together, as it is now; 0 without /proc."""
    total = 0
    for pid in _members(group):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        except OSError:
            continue
    return total


def _members(group: int) -> list[str]:
    found = []
    for pid in filter(str.isdigit, _names("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != b"Z":
            found.append(pid)
    return found


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


def _open_files(pid: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
