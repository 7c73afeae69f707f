"""Who called a command, and how it answers: as a process of its own, or within the process of a test."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dagkit.testing.pjm.state import State, opened
from dagkit.testing.pjm.world import Outcome

__all__ = ["Call", "kill_caller"]


@dataclass(slots=True)
class Call:
    """One call of a command.

    Attributes:
        directory, environ: Of the caller.
        is_process: Whether it is a process of its own; else what it says is collected in `out` and `err`.
        outcome: Of runs, where nothing really runs.
    """

    command: str
    arguments: list[str]
    home: Path
    directory: str
    environ: Mapping[str, str]
    is_process: bool = True
    outcome: Outcome | None = None
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    is_loud: bool = False
    """Whether it complains on standard output."""

    @contextmanager
    def state(self) -> Iterator[State]:
        """The machine, for one transaction."""
        with opened(self.home) as state:
            self.is_loud = state.site.error_stream == "stdout" and self.command == "pjsub"
            yield state

    def say(self, text: str) -> None:
        self.out.append(f"{text}\n")

    def complain(self, text: str) -> None:
        (self.out if self.is_loud else self.err).append(f"{text}\n")

    def stdin(self) -> str:
        return sys.stdin.read() if self.is_process else ""

    def finish(self) -> None:
        """Print what was said; a reader that has gone is no error."""
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write("".join(self.out))
            sys.stdout.flush()
        sys.stderr.write("".join(self.err))


def kill_caller(call: Call) -> None:
    """Kill who called the command, the program `timeout` between them not counted."""
    if not call.is_process:
        return
    pid = os.getppid()
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name == "timeout":
            status = Path(f"/proc/{pid}/stat").read_text()
            pid = int(status.rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
