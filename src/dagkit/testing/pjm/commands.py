"""The programs of the simulated PJM, and where they are put."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import dagkit
from dagkit.testing.pjm import pjdel, state
from dagkit.testing.pjm.callers import Call
from dagkit.testing.pjm.control import pjmsim
from dagkit.testing.pjm.pjstat import pjstat
from dagkit.testing.pjm.pjsub import pjsub

__all__ = ["COMMANDS", "main", "run", "write_programs"]

COMMANDS: Final[dict[str, Callable[[Call], int]]] = {
    "pjsub": pjsub,
    "pjstat": pjstat,
    "pjdel": pjdel.pjdel,
    "pjhold": pjdel.pjhold,
    "pjrls": pjdel.pjrls,
    "pjwait": pjdel.pjwait,
    "pjacl": pjdel.pjacl,
}
_PROGRAM: Final = """#!{python} -SE
import sys
sys.path.insert(0, {place!r})
from dagkit.testing.pjm.commands import main
sys.exit(main({command!r}, sys.argv[1:], {home!r}))
"""


def write_programs(home: Path) -> Path:
    """Programs for PATH in a folder of the machine's; returns it."""
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    place = str(Path(dagkit.__file__).parents[1])
    for command in (*COMMANDS, "pjmsim"):
        path = folder / command
        path.write_text(_PROGRAM.format(python=sys.executable, place=place, command=command, home=str(home)))
        path.chmod(0o755)
    return folder


def main(command: str, arguments: list[str], home: str) -> int:
    """Run a command as a process of its own; PJMSIM_HOME in the environment names another machine."""
    place = Path(os.environ.get("PJMSIM_HOME") or home).absolute()
    call = Call(command, arguments, place, str(Path.cwd()), os.environ)
    if command == "pjmsim":
        code = pjmsim(call)
    elif not state.exists(place):
        call.complain(f"{command}: no simulated PJM in {place}: run `pjmsim init` first")
        code = 1
    else:
        code = run(call)
    call.finish()
    return code


def run(call: Call) -> int:
    """Count a call, and do what it asks for; returns its exit code."""
    with call.state() as machine:
        machine.do(
            "INSERT INTO calls VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET count = count + 1, "
            "longest = max(longest, excluded.longest)",
            call.command,
            len(call.arguments),
        )
        wait_s = machine.site.command_s
    if wait_s:
        time.sleep(wait_s)
    return COMMANDS[call.command](call)
