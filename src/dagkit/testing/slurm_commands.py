"""The programs of the fake Slurm: `sbatch`, `squeue`, `sacct`, `scancel`, `scontrol` over one database of the truth.

Run by small scripts that `FakeSlurm` writes; imports nothing but the standard library, so that they start quickly.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TABLES", "main", "opened"]

TABLES = """
CREATE TABLE IF NOT EXISTS jobs (job INTEGER PRIMARY KEY, name TEXT, script TEXT, size INTEGER, submitted_at REAL);
CREATE TABLE IF NOT EXISTS elements (
    job INTEGER, place INTEGER, state TEXT, reason TEXT, exit_code INTEGER DEFAULT 0, signal INTEGER DEFAULT 0,
    ended_at REAL, restarts INTEGER DEFAULT 0, is_listed INTEGER DEFAULT 1, PRIMARY KEY (job, place));
CREATE INDEX IF NOT EXISTS by_state ON elements (state);
CREATE TABLE IF NOT EXISTS faults (number INTEGER PRIMARY KEY, command TEXT, fault TEXT, value REAL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value REAL);
CREATE TABLE IF NOT EXISTS calls (command TEXT PRIMARY KEY, count INTEGER);
"""

_ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD", "CONFIGURING")
_LATE = "error: Batch job submission failed: Socket timed out on send/recv operation"
_LIMIT = (
    "error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


@contextmanager
def opened(folder: str) -> Iterator[sqlite3.Connection]:
    """The truth, for one transaction."""
    truth = sqlite3.connect(f"{folder}/truth.db", timeout=30, isolation_level=None)
    try:
        truth.execute("PRAGMA synchronous=OFF")
        truth.execute("BEGIN IMMEDIATE")
        yield truth
        truth.execute("COMMIT")
    finally:
        truth.close()


def main(command: str, folder: str, arguments: list[str]) -> int:
    """Do what the command does; returns its exit code."""
    with opened(folder) as truth:
        truth.execute("INSERT INTO calls VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1", (command,))
        row = truth.execute(
            "SELECT number, fault, value FROM faults WHERE command = ? ORDER BY number LIMIT 1", (command,)
        ).fetchone()
        if row:
            truth.execute("DELETE FROM faults WHERE number = ?", row[:1])
    fault, value = row[1:] if row else ("", 0.0)
    if fault == "slow":
        time.sleep(value)
    if fault == "fails":
        return _fail(command, _LATE)
    return _COMMANDS[command](folder, arguments, fault, value)


def _fail(command: str, text: str) -> int:
    sys.stderr.write(f"{command}: {text}\n")
    return 1


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


# --- sbatch


def _sbatch(folder: str, arguments: list[str], fault: str, value: float) -> int:
    with open(arguments[-1]) as file:
        script = file.read()
    if fault == "kills caller before":
        os.kill(os.getppid(), signal.SIGKILL)
    if fault == "times out, not accepted":
        return _fail("sbatch", _LATE)
    if fault == "refuses":
        return _fail("sbatch", "error: Batch job submission failed: Invalid qos specification")
    if fault == "times out, accepted later":
        if os.fork() == 0:  # what the controller does when it comes to it
            os.setsid()
            os.closerange(0, 3)
            time.sleep(value)
            with opened(folder) as truth:
                _accept(truth, script)
            os._exit(0)
        return _fail("sbatch", _LATE)
    if fault == "is full":
        sys.stderr.write("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")
        sys.stderr.flush()
        time.sleep(value or 60.0)
    with opened(folder) as truth:
        job = _accept(truth, script)
    if job is None:
        return _fail("sbatch", _LIMIT)
    if fault == "kills caller after":
        os.kill(os.getppid(), signal.SIGKILL)
    if fault == "times out, accepted":
        return _fail("sbatch", _LATE)
    if fault == "hangs, accepted":
        time.sleep(value)
    _say(job)
    return 0


def _accept(truth: sqlite3.Connection, script: str) -> int | None:
    """The id of the new job; None over the submit limit."""
    match = re.search(r"^#SBATCH --array=0-(\d+)", script, re.MULTILINE)
    size = int(match[1]) + 1 if match else 0
    limit = _setting(truth, "submit_limit")
    if limit and _count_active(truth) + max(1, size) > limit:
        return None
    name = re.search(r"^#SBATCH --job-name=(.*)$", script, re.MULTILINE)
    cursor = truth.execute(
        "INSERT INTO jobs (name, script, size, submitted_at) VALUES (?, ?, ?, ?)",
        (name[1].strip("'\"") if name else "sbatch", script, size, time.time()),
    )
    job = cursor.lastrowid
    places = range(size) if size else [-1]
    truth.executemany(
        "INSERT INTO elements (job, place, state, reason) VALUES (?, ?, 'PENDING', 'Priority')",
        [(job, place) for place in places],
    )
    return job


def _count_active(truth: sqlite3.Connection) -> int:
    marks = ",".join("?" * len(_ACTIVE))
    row = truth.execute(f"SELECT COUNT(*) FROM elements WHERE state IN ({marks})", _ACTIVE).fetchone()
    return int(row[0])


def _setting(truth: sqlite3.Connection, name: str) -> float:
    row = truth.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return float(row[0]) if row else 0.0


# --- listings


def _squeue(folder: str, arguments: list[str], fault: str, value: float) -> int:
    form = next((a.partition("=")[2] for a in arguments if a.startswith("--format=")), "%i|%T|%r|%j")
    states = "" if "--states=all" in arguments else f" AND state IN ({','.join(map(repr, _ACTIVE))})"
    with opened(folder) as truth:
        rows = truth.execute(
            "SELECT e.job, place, state, reason, name, size FROM elements e JOIN jobs j ON e.job = j.job "
            f"WHERE is_listed{states} ORDER BY e.job, place"
        ).fetchall()
    for shown, state, reason, name in _condensed(rows):
        _say(form.replace("%i", shown).replace("%T", state).replace("%r", reason).replace("%j", name))
    return 0


def _condensed(rows: list[Any]) -> Iterator[tuple[str, str, str, str]]:
    """Pending elements of an array are one row, as squeue shows them."""
    waiting: dict[int, list[int]] = {}
    words: dict[int, tuple[str, str, str]] = {}
    for job, place, state, reason, name, _ in rows:
        if place >= 0 and state == "PENDING":
            waiting.setdefault(job, []).append(place)
            words[job] = (state, reason, name)
        else:
            yield (f"{job}_{place}" if place >= 0 else str(job)), state, reason if state == "PENDING" else "None", name
    for job, places in waiting.items():
        yield f"{job}_[{_spans(places)}]", *words[job]


def _spans(places: list[int]) -> str:
    spans: list[list[int]] = []
    for place in places:
        if spans and spans[-1][1] == place - 1:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


def _sacct(folder: str, arguments: list[str], fault: str, value: float) -> int:
    options = dict(a[2:].split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
    jobs, names = options.get("jobs", "").split(","), options.get("name", "").split(",")
    with opened(folder) as truth:
        if _setting(truth, "accounting_off"):
            return _fail("sacct", "error: Slurm accounting storage is disabled")
        lag = _setting(truth, "sacct_lag_s")
        rows = truth.execute(
            "SELECT e.job, place, state, exit_code, signal, ended_at, name, submitted_at "
            "FROM elements e JOIN jobs j ON e.job = j.job ORDER BY e.job, place"
        ).fetchall()
    for job, place, state, code, number, ended_at, name, submitted_at in rows:
        if not (str(job) in jobs or name in names) or time.time() < submitted_at + lag:
            continue
        shown = state if ended_at is None or time.time() >= ended_at + lag else "RUNNING"
        _say(f"{f'{job}_{place}' if place >= 0 else job}|{shown}|{code}:{number}||1|fake|{name}")
    return 0


# --- changes


def _scancel(folder: str, arguments: list[str], fault: str, value: float) -> int:
    with opened(folder) as truth:
        for argument in arguments:
            job, _, place = argument.partition("_")
            if job.isdigit():
                truth.execute(
                    "UPDATE elements SET state = 'CANCELLED', signal = 15, ended_at = ? WHERE job = ? "
                    f"AND (? = '' OR place = ?) AND state IN ({','.join(map(repr, _ACTIVE))})",
                    (time.time(), int(job), place, place or -1),
                )
    return 0


def _scontrol(folder: str, arguments: list[str], fault: str, value: float) -> int:
    with opened(folder) as truth:
        _say(f"MaxArraySize            = {int(_setting(truth, 'max_array_size') or 1001)}")
    return 0


def _sacctmgr(folder: str, arguments: list[str], fault: str, value: float) -> int:
    with opened(folder) as truth:
        limit = int(_setting(truth, "told_limit")) or ""
    _say("science||normal" if "assoc" in arguments else f"normal|{limit}\nother|1")
    return 0


_COMMANDS: dict[str, Callable[[str, list[str], str, float], int]] = {
    "sbatch": _sbatch,
    "squeue": _squeue,
    "sacct": _sacct,
    "sacctmgr": _sacctmgr,
    "scancel": _scancel,
    "scontrol": _scontrol,
}
