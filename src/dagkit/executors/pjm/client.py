"""PJM's commands, each bounded in time, and what they answer (facts: pjm 1 to 4, 9)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.pjm.ids import JobId, compressed
from dagkit.executors.pjm.limits import Limits, read_limits
from dagkit.executors.pjm.listing import Listing, Row, read_csv
from dagkit.executors.pjm.submission import Answer, Deleted, read_pjdel, read_pjsub

__all__ = ["Client", "Timeouts", "check_installed"]

#: Names of `pjstat --choose`: id, name, state, exit code, PJM code, signal, reason. The reason may hold commas, so it
#: comes last.
_COLUMNS: Final = "jid,jnam,st,ec,pc,sn,ermsg"
_AT_ONCE: Final = 200
_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that one call of a command may take."""

    pjstat_s: float = 60.0
    pjsub_s: float = 120.0
    pjdel_s: float = 60.0


def check_installed() -> None:
    """`ConfigError` where there is no PJM."""
    for command in ("pjsub", "pjstat", "pjdel"):
        if shutil.which(command) is None:
            raise ConfigError(
                f"{command} is not on PATH: run dagkit on a login node of the machine (on Fugaku not the Arm one, "
                f"which has no {command})"
            )


class Client:
    """Runs `pjsub`, `pjstat`, `pjdel` as they are found on PATH. Thread-safe.

    Attributes:
        calls: How often each was run.
    """

    def __init__(self, timeouts: Timeouts | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._timeouts, self._environ = timeouts or Timeouts(), None if environ is None else dict(environ)
        self.calls: dict[str, int] = {}
        self._known: dict[str, dict[str, Row]] = {}

    def pjsub(self, arguments: Sequence[str], script: Path) -> Answer:
        """Submit. `BackendError` if there is no pjsub; whatever it says, or its silence, is an answer."""
        command = ["pjsub", *arguments, str(script)]
        limit_s = self._timeouts.pjsub_s
        timeout = shutil.which("timeout")
        if timeout is not None:  # so that it does not outlive us, if we are killed, by more than is waited for it
            command = [timeout, "-k", "5", f"{limit_s:g}", *command]
        try:
            done = self._run("pjsub", command, limit_s + 2)
        except subprocess.TimeoutExpired:
            return read_pjsub(None, "", "")
        is_late = timeout is not None and done.returncode in (124, 137)
        return read_pjsub(None if is_late else done.returncode, done.stdout, done.stderr)

    def live(self, now: datetime) -> Listing:
        """Our jobs and sub-jobs that PJM has, or had a moment ago. `BackendError` if it cannot say."""
        return self._list(["-E"], now)

    def history(self, days: int, now: datetime) -> Listing:
        """Those that ended in the last days. It lags behind the live view, and may be empty for whole accounts."""
        return self._list(["-E", "-H", f"day={days}"], now)

    def _list(self, which: Sequence[str], now: datetime) -> Listing:
        text = self._ask(["pjstat", "-v", *which, "--data", f"--choose={_COLUMNS}"])
        # Most lines are as they were at the last look. They hold for as long as the columns do, which hold no dates.
        former = self._known.get(text.partition("\n")[0], {})
        known = former if len(former) < _REMEMBERED else {}
        self._known = {text.partition("\n")[0]: known}
        return read_csv(text, now, known)

    def limits(self) -> Limits:
        """How much PJM would take. `BackendError` if it cannot say."""
        return read_limits(self._ask(["pjstat", "--limit"]))

    def pjdel(self, ids: Iterable[JobId]) -> Deleted:
        """Delete jobs and sub-jobs; those that are gone already are no error."""
        arguments, accepted, gone = compressed(ids), list[JobId](), list[JobId]()
        for start in range(0, len(arguments), _AT_ONCE):
            command = ["pjdel", *arguments[start : start + _AT_ONCE]]
            try:
                done = self._run("pjdel", command, self._timeouts.pjdel_s)
            except subprocess.TimeoutExpired:
                raise BackendError(f"pjdel did not answer within {self._timeouts.pjdel_s:g} s") from None
            said = read_pjdel(f"{done.stdout}\n{done.stderr}")
            accepted += said.accepted
            gone += said.gone
        return Deleted(tuple(accepted), tuple(gone))

    def _ask(self, command: Sequence[str]) -> str:
        try:
            done = self._run(command[0], command, self._timeouts.pjstat_s)
        except subprocess.TimeoutExpired:
            raise BackendError(f"{command[0]} did not answer within {self._timeouts.pjstat_s:g} s") from None
        if done.returncode != 0:
            raise BackendError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
        return done.stdout

    def _run(self, name: str, command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.calls[name] = self.calls.get(name, 0) + 1
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                env={**(self._environ if self._environ is not None else os.environ), "LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError as error:
            raise BackendError(
                f"{name} is not on PATH: run dagkit on a login node, where PJM's commands are"
            ) from error
