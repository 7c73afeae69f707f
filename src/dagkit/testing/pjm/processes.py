"""Jobs that really run: their environment, their files, their processes (facts: pjm 6)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from dagkit.testing.pjm import holder
from dagkit.testing.pjm.state import Part, State, label

__all__ = ["Ended", "base_name", "begin", "ended", "output_paths", "signal_part", "substituted"]

_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Of the shell in which pjsub was called.
_ORIGIN: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL")
_LONGEST_NAME: Final = 63

Ended = tuple[int, int, int, float]
"""Exit code, signal, number of the restart, and when it was, by the wall clock."""


def begin(state: State, part: Part) -> int:
    """Run the script of a part; returns the process that holds it."""
    job, name, kind, directory, options_text, environ_text, elapse_s = state.do(
        "SELECT job, name, kind, directory, options, environ, elapse_s FROM jobs WHERE job = ?", part.job
    )[0]
    options = json.loads(options_text)
    out, err = output_paths(state, job, part.sub, kind, name, directory, options)
    place = state.home / "jobs" / str(job)
    mark = _mark(part)
    order = {
        "script": str(place / "script"),
        "arguments": options.get("arguments", []),
        "directory": directory,
        "environ": _environ(part, name, kind, directory, options, json.loads(environ_text)),
        "out": str(out),
        "err": str(err),
        "result": str(_results(state) / f"{mark}.json"),
        # It ends by the machine's clock. Should nobody move that any more, it does not stay for ever.
        "at_most_s": elapse_s + 3600,
    }
    path = place / f"{mark}.order"
    path.write_text(json.dumps(order))
    command = [sys.executable, "-SE", str(Path(holder.__file__)), str(path)]
    nothing: Any = subprocess.DEVNULL
    said = subprocess.run(
        command, stdin=nothing, stderr=nothing, stdout=subprocess.PIPE, start_new_session=True, check=True
    )
    return int(said.stdout)


def ended(state: State) -> dict[tuple[int, int], Ended]:
    """Parts whose process has ended since the last time."""
    found = {}
    for path in _results(state).glob("*.json"):
        job, sub, restart = path.stem.split(",")
        result = json.loads(path.read_text())
        found[int(job), int(sub)] = (result["ec"], result["sn"], int(restart), result["wall"])
        path.unlink()
    return found


def signal_part(state: State, part: Part, number: int) -> None:
    """Signal the processes of a part, but not the one that holds them, which says how they ended."""
    if part.pid is None:
        return
    if number == signal.SIGKILL:  # one that has not begun yet sees that it is not to
        (state.home / "jobs" / str(part.job) / f"{_mark(part)}.order").unlink(missing_ok=True)
    holder.end_all(part.pid, number)


def end_everything(state: State) -> None:
    """Nothing that was started runs any more."""
    for part in state.parts("pid IS NOT NULL AND is_over = 0"):
        signal_part(state, part, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(part.pid or 0, signal.SIGKILL)


def output_paths(
    state: State, job: int, sub: int, kind: str, name: str, directory: str, options: dict[str, Any]
) -> tuple[Path, Path]:
    """Where standard output and standard error go."""
    folder = Path(directory)
    shown = label(job, sub, kind)

    def path(given: str | None, ending: str) -> Path:
        if given is not None:
            return folder / substituted(given, name, job, shown, sub)
        return folder / f"{base_name(name)}.{shown}.{ending}"

    out = path(options.get("out"), "out")
    return out, out if options.get("join") else path(options.get("err"), "err")


def base_name(name: str) -> str:
    """The name in names of files: a letter first, and not too long."""
    return (f"J{name}" if name[:1].isdigit() else name)[:_LONGEST_NAME]


def substituted(text: str, name: str, job: int, shown: str, sub: int) -> str:
    """`%n` name, `%j` id, `%J` id of the sub-job, `%b` bulk number."""
    for token, value in (("%n", name), ("%j", str(job)), ("%J", shown), ("%b", str(max(sub, 0)))):
        text = text.replace(token, value)
    return text


def _environ(
    part: Part, name: str, kind: str, directory: str, options: dict[str, Any], origin: dict[str, str]
) -> dict[str, str]:
    home = origin.get("HOME", directory)
    found = {key: value for key, value in origin.items() if options.get("all_environ")}
    found.update({"PATH": _PATH, "HOME": home, "SHELL": "/bin/bash", "LANG": "C"} if not found else {})
    for key in ("USER", "LOGNAME"):
        found[key] = origin.get(key, "user1")
    found.update({key: value for key, value in options.get("environ", {}).items() if not _is_pjms(key)})
    found.update({f"PJM_O_{key}": origin.get(key, "") for key in _ORIGIN})
    found.update(
        {
            "PJM_JOBID": str(part.job),
            "PJM_SUBJOBID": label(part.job, part.sub, kind),
            "PJM_JOBNAME": name,
            "PJM_JOBDIR": directory,
            "PJM_O_WORKDIR": directory,
            "PJM_O_HOST": "login1",
            "PJM_ENVIRONMENT": "BATCH",
            "PJM_COMMENT": options.get("comment", ""),
            "PJM_NODE": str(part.node),
            "PJM_MPI_PROC": options.get("mpi", {}).get("proc", str(part.node)),
            "PJM_LOCALTMP": str(Path(directory)),
            "PJM_SHAREDTMP": str(Path(directory)),
        }
    )
    if kind == "BU":
        found["PJM_BULKNUM"] = str(part.sub)
    if kind == "ST":
        found["PJM_STEPNUM"] = str(part.sub)
    return found


def _is_pjms(key: str) -> bool:
    """Whether `-x` of it is ignored: what PJM sets is its own."""
    return key.startswith("PJM_") and not key.startswith("PJM_LLIO_")


def _mark(part: Part) -> str:
    return f"{part.job},{part.sub},{part.restarts}"


def _results(state: State) -> Path:
    folder = state.home / "results"
    folder.mkdir(exist_ok=True)
    return folder


def keep_script(state: State, job: int, text: str) -> Path:
    """A copy of a job's script: what is changed later has no effect."""
    folder = state.home / "jobs" / str(job)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "script"
    path.write_text(text)
    return path
