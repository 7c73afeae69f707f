"""Slurm's commands, each bounded in time."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dagkit.errors import BackendError
from dagkit.executors.slurm.listing import SACCT_FIELDS, SQUEUE_FORMAT, Ended, Listed, read_sacct, read_squeue
from dagkit.executors.slurm.refusals import Refusal, refusal_of

__all__ = ["Commands", "NoAccounting", "Refused"]

_NUMBER: Final = re.compile(r"(\d+)(?:;\S+)?\s*$", re.ASCII)
_AT_ONCE: Final = 500
_GLANCE_S: Final = 0.5
_WAITS: Final = re.compile(r"sleeping and retrying", re.IGNORECASE)
_OFF: Final = re.compile(
    r"accounting storage is disabled|accounting_storage/none|Problem talking to the database", re.IGNORECASE
)
_NO_JOB: Final = re.compile(r"Invalid job id|already completing or completed", re.IGNORECASE)
#: What says how to reach the cluster. Other SLURM_ variables describe the job in which this process may run itself, and
#: would be taken for options of the jobs that it submits (sbatch(1), "INPUT ENVIRONMENT VARIABLES").
_KEPT: Final = frozenset(("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_DEBUG_FLAGS"))


class Refused(Exception):
    """sbatch did not take a job, or it is not known whether it did."""

    def __init__(self, refusal: Refusal, said: str) -> None:
        self.refusal, self.said = refusal, said
        super().__init__(said)


class NoAccounting(Exception):
    """There is no accounting database, or it does not answer."""


class Commands:
    """Runs `sbatch`, `squeue`, `sacct`, `scancel` as they are found on PATH.

    Attributes:
        calls: How often each was run.
    """

    def __init__(self, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None) -> None:
        self._timeout_s = timeout_s
        self._environ = _clean(os.environ if environ is None else environ)
        self.calls: dict[str, int] = {}

    def sbatch(self, script: Path, *, has_jobs: bool) -> str:
        """Submit; returns the job's id. `Refused` says what to do next, `BackendError` that there is no sbatch."""
        done = self._run_sbatch(script)
        match = _NUMBER.search(done.stdout.strip())
        if done.returncode == 0 and match:
            return match[1]
        said = done.stderr.strip() or done.stdout.strip()
        # Ended by a signal, or well but without an id: nobody knows whether the controller had the job by then.
        if done.returncode <= 0:
            raise Refused(Refusal.UNCERTAIN, said or f"sbatch ended with {done.returncode} and named no job")
        raise Refused(refusal_of(said, has_jobs=has_jobs), said)

    def _run_sbatch(self, script: Path) -> subprocess.CompletedProcess[str]:
        """sbatch waits by itself, for minutes, where the cluster has all the jobs that it can have: not here."""
        command, deadline = ["sbatch", "--parsable", str(script)], time.monotonic() + self._timeout_s
        self.calls["sbatch"] = self.calls.get("sbatch", 0) + 1
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            process = _started(command, self._environ, said.fileno())
            while True:
                try:
                    out, _ = process.communicate(timeout=_GLANCE_S)
                except subprocess.TimeoutExpired:
                    said.seek(0)
                    text = said.read()
                    is_waiting = _WAITS.search(text) is not None
                    if is_waiting or time.monotonic() > deadline:
                        process.kill()
                        process.communicate()
                        silence = f"sbatch did not answer within {self._timeout_s:g} s"
                        refusal = Refusal.DEFERRED if is_waiting else Refusal.UNCERTAIN
                        raise Refused(refusal, text if is_waiting else silence) from None
                else:
                    said.seek(0)
                    return subprocess.CompletedProcess(command, process.returncode, out, said.read())

    def squeue(self, *, with_ended: bool = False) -> dict[str, Listed]:
        """The jobs of this user that the controller lists; `with_ended` those that ended a short while ago too."""
        which = ["--states=all"] if with_ended else []
        done = self._ask(["squeue", "--noheader", f"--user={os.getuid()}", f"--format={SQUEUE_FORMAT}", *which])
        return read_squeue(done)

    def sacct(self, jobs: Collection[str]) -> dict[str, Ended]:
        """What accounting knows of these jobs (whole arrays, by the number of the array). `NoAccounting`."""
        return self._sacct([f"--jobs={','.join(part)}" for part in _parts(sorted(jobs))])

    def sacct_named(self, names: Collection[str], since_s: int) -> dict[str, Ended]:
        """Jobs with these names that began or waited in the last `since_s` seconds. `NoAccounting`."""
        return self._sacct([f"--name={','.join(part)}" for part in _parts(sorted(names))], f"now-{since_s}seconds")

    def _sacct(self, choices: Sequence[str], since: str | None = None) -> dict[str, Ended]:
        found: dict[str, Ended] = {}
        start = [f"--starttime={since}"] if since else []
        for choice in choices:
            command = ["sacct", "--noheader", "--parsable2", f"--format={SACCT_FIELDS}", choice, *start]
            try:
                found.update(read_sacct(self._ask(command)))
            except BackendError as error:
                if _OFF.search(str(error)):
                    raise NoAccounting(str(error)) from error
                raise
        return found

    def scancel(self, jobs: Collection[str]) -> None:
        """Cancel jobs and elements of arrays; those that have ended are no error."""
        for part in _parts(sorted(jobs)):
            try:
                self._ask(["scancel", *part])
            except BackendError as error:
                if not _NO_JOB.search(str(error)):
                    raise

    def max_array_size(self) -> int | None:
        """The cluster's `MaxArraySize`: indices go up to one less (slurm.conf(5))."""
        match = re.search(r"MaxArraySize\s*=\s*(\d+)", self._ask(["scontrol", "show", "config"]))
        return int(match[1]) if match else None

    def sacctmgr(self, *what: str) -> str:
        """What the accounting database shows, fields between bars (sacctmgr(1))."""
        return self._ask(["sacctmgr", "--noheader", "--parsable2", "show", *what])

    def _ask(self, command: Sequence[str]) -> str:
        try:
            done = self._run(command)
        except subprocess.TimeoutExpired:
            raise BackendError(f"{command[0]} did not answer within {self._timeout_s:g} s") from None
        if done.returncode != 0:
            raise BackendError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
        return done.stdout

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.calls[command[0]] = self.calls.get(command[0], 0) + 1
        with _missing(command[0]):
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                env=self._environ,
                check=False,
            )


@contextlib.contextmanager
def _missing(command: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise BackendError(
            f"{command} is not on PATH: run dagkit on a machine from which Slurm can be reached, a login node"
        ) from error


def _started(command: Sequence[str], environ: Mapping[str, str], stderr: int) -> subprocess.Popen[str]:
    with _missing(command[0]):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            env=environ,
        )


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in environ.items() if not key.startswith("SLURM_") or key in _KEPT}
    # Without it squeue cuts long lists of array elements short (squeue(1)).
    return {**kept, "SLURM_BITSTR_LEN": "0"}


def _parts(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
