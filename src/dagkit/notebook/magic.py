"""`%load_ext dagkit`: `%dagkit list`, `status`, `logs` and `traceback` in a cell."""

from __future__ import annotations

import shlex
import sys
from typing import Any, Final

from dagkit import launch
from dagkit.errors import UnknownRun, UsageError
from dagkit.notebook import show, traceback
from dagkit.run import Run
from dagkit.tables import Table

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

_HELP: Final = """\
%dagkit list [STORE]           runs of the store, the one that changed last first
%dagkit status [RUN]           a run, live; the one that changed last if none is named
%dagkit logs RUN TASK          what a task wrote
%dagkit traceback              the last error with every frame
RUN is a variable that holds a run, or the beginning of an id."""


def load_ipython_extension(shell: Any) -> None:
    """Give an IPython shell the magic."""
    shell.register_magic_function(lambda line: dagkit(line, shell), "line", "dagkit")


def unload_ipython_extension(shell: Any) -> None:
    """Take it away again."""
    shell.magics_manager.magics["line"].pop("dagkit", None)


def dagkit(line: str, shell: Any) -> Any:
    """Do what the line says. `UsageError` if it says nothing that is known."""
    command, *words = shlex.split(line) or ["help"]
    match command, words:
        case "list", [*store] if len(store) <= 1:
            return launch.runs(*store)
        case "status", [*names] if len(names) <= 1:
            return _status(_run(names[0] if names else None, shell))
        case "logs", [name, task]:
            sys.stdout.write(_run(name, shell).logs(task) or f"({task} has written nothing)\n")
        case "traceback", []:
            error = getattr(sys, "last_value", None)
            sys.stdout.write(traceback.whole(error) if error is not None else "There was no error.\n")
        case "help", _:
            sys.stdout.write(f"{_HELP}\n")
        case _:
            raise UsageError(f"%dagkit {line}: not understood.\n{_HELP}")
    return None


def _status(run: Run) -> Any:
    if show.is_notebook():
        show.show(run)
        return None
    return run


def _run(name: str | None, shell: Any) -> Run:
    if name is not None and isinstance(found := shell.user_ns.get(name), Run):
        return found
    rows: Table = launch.runs(limit=1 if name is None else None)
    matching: list[str] = [row["run"] for row in rows if name is None or row["run"].startswith(name)]
    if not matching:
        raise UnknownRun(name or "(any)", "the default store")
    if len(matching) > 1 and name not in matching:
        raise UsageError(
            f"{name} is the beginning of {len(matching)} runs: {', '.join(matching[:4])}. Give more of it."
        )
    return launch.attach(next((one for one in matching if one == name), matching[0]), drive=False)
