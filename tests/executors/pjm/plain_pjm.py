"""A small PJM for the executor's tests: pjsub, pjstat and pjdel over one SQLite file, which is also the record.

Jobs run when the test says so (`PlainPjm`). Used as programs on PATH, from several processes, or in this process with a
clock of its own (`InProcess`).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FIRST_ID = 43607190
ENDED = ("EXT", "CCL", "RJT")
TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    job INTEGER, sub INTEGER, name TEXT, script TEXT, state TEXT, ec INTEGER, pc INTEGER, sn INTEGER, reason TEXT,
    submitted_at REAL, ended_at REAL, began_at REAL, PRIMARY KEY (job, sub)
);
CREATE TABLE IF NOT EXISTS submits (job INTEGER, name TEXT, arguments TEXT, result TEXT, at REAL);
CREATE TABLE IF NOT EXISTS faults (id INTEGER PRIMARY KEY, command TEXT, fault TEXT, value REAL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value REAL);
CREATE TABLE IF NOT EXISTS calls (command TEXT PRIMARY KEY, count INTEGER);
CREATE TABLE IF NOT EXISTS peaks (name TEXT PRIMARY KEY, value INTEGER);
CREATE INDEX IF NOT EXISTS active ON jobs (state);
"""


@contextlib.contextmanager
def opened(folder: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{folder}/pjm.db", timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close()


def setting(truth: sqlite3.Connection, name: str, default: float) -> float:
    row = truth.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return default if row is None else float(row[0])


def used(truth: sqlite3.Connection) -> tuple[int, int]:
    """Accepted calls and sub-jobs of bulk jobs that are in the system."""
    alive = f"state NOT IN {ENDED!r}"
    single, bulks, subs = truth.execute(
        f"SELECT count(CASE WHEN sub < 0 THEN 1 END), count(DISTINCT CASE WHEN sub >= 0 THEN job END), "
        f"count(CASE WHEN sub >= 0 THEN 1 END) FROM jobs WHERE {alive}"
    ).fetchone()
    return single + bulks, subs


class Commands:
    def __init__(self, folder: str, out: Any, err: Any) -> None:
        self.folder, self.out, self.err = folder, out, err

    def main(self, command: str, arguments: Sequence[str]) -> int:
        with opened(self.folder) as truth:
            truth.execute(
                "INSERT INTO calls VALUES (?, 1) ON CONFLICT (command) DO UPDATE SET count = count + 1", (command,)
            )
            row = truth.execute(
                "SELECT id, fault, value FROM faults WHERE command = ? ORDER BY id LIMIT 1", (command,)
            ).fetchone()
            if row is not None and row[1] != "outage":
                truth.execute("DELETE FROM faults WHERE id = ?", (row[0],))
            self.now = setting(truth, "now", time.time())
        fault, value = (row[1], row[2]) if row is not None else ("", 0.0)
        if fault == "kills caller before":
            os.kill(os.getppid() if os.environ.get("PLAIN_DIRECT") else _grandparent(), signal.SIGKILL)
            return 1
        if fault in ("fails", "outage"):
            self.err.write(f"[ERR.] PJM 0399 {command} System error.\n")
            return 1
        if fault == "slow":
            time.sleep(value)
        if fault == "says":
            with opened(self.folder) as truth:
                text = truth.execute("SELECT name FROM peaks WHERE value = ?", (int(value),)).fetchone()[0]
            self.err.write(text + "\n")
            return 1
        code: int = getattr(self, command)(list(arguments), fault)
        if fault == "kills caller after":
            os.kill(_grandparent(), signal.SIGKILL)
        return code

    def pjsub(self, arguments: list[str], fault: str) -> int:
        name = arguments[arguments.index("-N") + 1]
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,62}", name), name
        if fault == "is silent":
            return 137
        count = 0
        if "--bulk" in arguments:
            first, last = arguments[arguments.index("--sparam") + 1].split("-")
            count = int(last) - int(first) + 1
        script = Path(arguments[-1]).read_text()
        with opened(self.folder) as truth:
            calls, subs = used(truth)
            others = int(setting(truth, "others", 0))
            accept, bulk = setting(truth, "accept", 1e9), setting(truth, "bulksubjob", 1e9)
            result = "submitted"
            if count and not setting(truth, "bulk", 1):
                self.err.write("[ERR.] PJM 0070 pjsub No execute permission: pjsub-bulk.\n")
                result = "denied"
            elif calls + others + 1 > accept or subs + count > bulk:
                self.err.write("[ERR.] PJM 0072 pjsub Job exceeded the accept limit\n")
                result = "full"
            job = FIRST_ID + truth.execute("SELECT count(*) FROM submits").fetchone()[0]
            truth.execute(
                "INSERT INTO submits VALUES (?, ?, ?, ?, ?)", (job, name, shlex.join(arguments), result, self.now)
            )
            if result != "submitted":
                return 1
            truth.executemany(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, 'QUE', NULL, 0, 0, '-', ?, NULL, NULL)",
                [(job, sub, name, script, self.now) for sub in (range(count) if count else [-1])],
            )
        if fault == "times out":
            return 137
        if fault == "garbled":
            self.out.write("@#!\n")
            return 0
        self.out.write(f"[INFO] PJM 0000 pjsub Job {job} submitted.\n")
        return 0

    def pjstat(self, arguments: list[str], fault: str) -> int:
        with opened(self.folder) as truth:
            if "--limit" in arguments:
                return self._limit(truth)
            live_s, lag_s = setting(truth, "live_s", 30.0), setting(truth, "lag_s", 5.0)
            if "-H" in arguments:
                where, bound = f"state IN {ENDED!r} AND ended_at <= ?", self.now - lag_s
            else:
                where, bound = f"(state NOT IN {ENDED!r} OR ended_at > ?)", self.now - live_s
            rows = truth.execute(
                f"SELECT job, sub, name, state, ec, pc, sn, reason FROM jobs WHERE {where} ORDER BY job, sub", (bound,)
            ).fetchall()
        lines = ["H,JOB_ID,JOB_NAME,ST,EC,PC,SN,REASON"]
        parent = None
        for job, sub, name, state, ec, pc, sn, reason in rows:
            if sub >= 0 and parent != job:
                parent = job
                lines.append(f",{job},{name},RUN,-,0,0,-")
            label = f"{job}[{sub}]" if sub >= 0 else str(job)
            lines.append(f",{label},{name},{state},{'-' if ec is None else ec},{pc},{sn},{reason}")
        text = "\n".join(lines) + "\n"
        self.out.write(text[: len(text) // 2] if fault == "cut" else text)
        return 0

    def _limit(self, truth: sqlite3.Connection) -> int:
        calls, subs = used(truth)
        others = int(setting(truth, "others", 0))
        accept, bulk = setting(truth, "accept", 1e9), setting(truth, "bulksubjob", 1e9)

        def row(name: str, limit: float, alloc: int) -> str:
            return f" {name:<24} {'unlimited' if limit > 1e8 else int(limit):>9} {alloc:>6}\n"

        self.out.write("System Resource Information:\nRSCUNIT: rscunit_ft01\nUSER: user1\n")
        self.out.write(row("ru-accept", accept, calls + others) + row("ru-accept-bulksubjob", bulk, subs))
        self.out.write("GROUP: group1\n" + row("ru-accept", 1e9, calls) + "ALL:\n" + row("ru-accept", 1e9, calls))
        return 0

    def pjdel(self, arguments: list[str], fault: str) -> int:
        with opened(self.folder) as truth:
            for argument in arguments:
                match = re.fullmatch(r"(\d+)(?:\[(\d+)(?:-(\d+))?\])?", argument)
                assert match is not None
                first = int(match[2]) if match[2] else -1
                last = int(match[3]) if match[3] else first
                changed = truth.execute(
                    f"UPDATE jobs SET state = 'CCL', pc = 1, ended_at = ? WHERE job = ? AND sub BETWEEN ? AND ? "
                    f"AND state NOT IN {ENDED!r}",
                    (self.now, int(match[1]), first, last),
                ).rowcount
                if changed:
                    self.out.write(f"[INFO] PJM 0100 pjdel Accepted job {argument}.\n")
                else:
                    self.err.write(f"[ERR.] PJM 0112 pjdel Job {argument} does not exist.\n")
        return 0


def _grandparent() -> int:
    """Who called `timeout`, which called us."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


class PlainPjm:
    """The machine as the test sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(folder / "pjm.db")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(TABLES)
        connection.close()
        for command in ("pjsub", "pjstat", "pjdel"):
            path = self.bin / command
            path.write_text(
                f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                f"from plain_pjm import Commands\n"
                f"sys.exit(Commands({str(folder)!r}, sys.stdout, sys.stderr).main({command!r}, sys.argv[1:]))\n"
            )
            path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}

    def do(self, statement: str, *values: object) -> list[Any]:
        with opened(str(self.folder)) as truth:
            return truth.execute(statement, values).fetchall()

    def set(self, **settings: float) -> None:
        for name, value in settings.items():
            self.do("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)

    def fault(self, command: str, fault: str, *, times: int = 1, value: float = 0.0) -> None:
        for _ in range(times):
            self.do("INSERT INTO faults (command, fault, value) VALUES (?, ?, ?)", command, fault, value)

    def says(self, command: str, text: str, *, times: int = 1) -> None:
        """The next calls fail with this text."""
        number = 1 + len(self.do("SELECT 1 FROM peaks"))
        self.do("INSERT INTO peaks VALUES (?, ?)", text, number)
        self.fault(command, "says", times=times, value=number)

    def forget_faults(self) -> None:
        self.do("DELETE FROM faults")

    def calls(self) -> dict[str, int]:
        return dict(self.do("SELECT command, count FROM calls"))

    def jobs(self, *states: str) -> list[tuple[int, int, str, str, str]]:
        """Job, sub-job (-1: single), name, script and state."""
        rows = self.do("SELECT job, sub, name, script, state FROM jobs ORDER BY job, sub")
        return [row for row in rows if not states or row[4] in states]

    def submits(self) -> list[tuple[str, str]]:
        """Name and result of every call of pjsub, in order."""
        return self.do("SELECT name, result FROM submits ORDER BY rowid")

    def change(self, job: int, sub: int, state: str, ec: int | None = None, pc: int = 0, **more: Any) -> None:
        ended_at = self.now() if state in ENDED else None
        self.do(
            "UPDATE jobs SET state = ?, ec = ?, pc = ?, sn = ?, reason = ?, ended_at = ? WHERE job = ? AND sub = ?",
            *(state, ec, pc, more.get("sn", 0), more.get("reason", "-"), ended_at, job, sub),
        )

    def now(self) -> float:
        with opened(str(self.folder)) as truth:
            return setting(truth, "now", time.time())


class InProcess:
    """Gives the answers of the commands to `dagkit.executors.pjm.client.Client` without starting any."""

    def __init__(self, pjm: PlainPjm) -> None:
        self.folder = str(pjm.folder)

    def run(self, name: str, command: Sequence[str]) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = list(command)[list(command).index(name) + 1 :]
        code = Commands(self.folder, out, err).main(name, arguments)
        return code, out.getvalue(), err.getvalue()
