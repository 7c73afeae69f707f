"""pjdel, pjhold, pjrls, pjwait and pjacl (facts: pjm 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from dagkit.testing.pjm import faults
from dagkit.testing.pjm.callers import Call, kill_caller
from dagkit.testing.pjm.lines import Line, lines, span
from dagkit.testing.pjm.selecting import BadId, Chosen, chosen
from dagkit.testing.pjm.state import ENDED, Part, State, label
from dagkit.testing.pjm.world import DELETABLE, World

__all__ = ["pjacl", "pjdel", "pjhold", "pjrls", "pjwait"]

_CODES: Final = {"pjdel": ("0100", "0112"), "pjhold": ("0300", "0312"), "pjrls": ("0400", "0412")}
_WAIT_S: Final = 0.2
_Act = Callable[[World, Part], None]


def pjdel(call: Call) -> int:
    """Delete jobs: accepted now, and gone a moment later."""
    with call.state() as state:
        World(state, call.outcome).go_on()
        fault = faults.taken(state, ("delete-",))
        if fault is not None and fault.kind == "delete-fails":
            call.complain("[ERR.] PJM 0199 pjdel System error.")
            return 1
        code = _each(call, state, DELETABLE, lambda world, part: world.delete(part))
    if fault is not None:
        kill_caller(call)
    return code


def pjhold(call: Call) -> int:
    """Hold jobs: they keep their slots."""
    with call.state() as state:
        World(state, call.outcome).go_on()
        return _each(
            call, state, ("ACC", "QUE", "RNA", "RUN"),
            lambda world, part: world.force(part, "HLD", pc=4, reason="ASHOLD"),
        )  # fmt: skip


def pjrls(call: Call) -> int:
    """Release held jobs: they wait again."""
    with call.state() as state:
        World(state, call.outcome).go_on()
        return _each(call, state, ("HLD", "ERR"), lambda world, part: world.force(part, "QUE"))


def _each(call: Call, state: State, allowed: tuple[str, ...], act: _Act) -> int:
    """Do it to every part that the arguments name, and say so as PJM does: in one line for a bulk job or a range."""
    world, code = World(state, call.outcome), 0
    accepted, unknown = _CODES[call.command]
    words = [word for word in call.arguments if not word.startswith("-")]
    for word in words:
        try:
            one = chosen(word)
        except BadId:
            call.complain(f"[ERR.] PJM 0111 {call.command} Invalid jobid: {word}.")
            return 1
        parts = [part for part in _parts(state, one) if part.st not in ENDED]
        able = [part for part in parts if part.st in allowed]
        if not parts:
            call.complain(f"[ERR.] PJM {unknown} {call.command} Job {word} does not exist.")
            code = 1
        elif not able:
            call.complain(f"[ERR.] PJM 0113 {call.command} Job {word} cannot be processed in state {parts[0].st}.")
            code = 1
        else:
            for part in able:
                act(world, part)
            for text in _named(state, one, able):
                call.say(f"[INFO] PJM {accepted} {call.command} Accepted job {text}.")
    return code


def _parts(state: State, one: Chosen) -> list[Part]:
    where, values = one.where()
    return state.parts(where.replace("p.", "") + " ORDER BY job, sub", *values)


def _named(state: State, one: Chosen, parts: list[Part]) -> Iterator[str]:
    kinds = dict(state.do("SELECT job, kind FROM jobs WHERE job BETWEEN ? AND ?", *one.jobs))
    if one.first is not None:
        yield one.text
        return
    for job, kind in kinds.items():
        mine = [part for part in parts if part.job == job]
        if kind == "ST":  # a line for each step
            yield from (label(job, part.sub, kind) for part in mine)
        elif mine:
            yield str(job)


def pjwait(call: Call) -> int:
    """Wait for jobs to end; says of each its PJM code, its exit code and its signal."""
    try:
        which = [chosen(word) for word in call.arguments if not word.startswith("-")]
    except BadId as error:
        call.complain(f"[ERR.] PJM 0511 pjwait Invalid jobid: {error}.")
        return 1
    while True:
        with call.state() as state:
            World(state, call.outcome).go_on()
            found = [line for line in lines(state, which, has_parts=True, everything=True) if not line.is_parent]
        if all(line.is_over for line in found):
            break
        time.sleep(_WAIT_S)
    for line in found:
        call.say(_ended(line))
    return 0


def _ended(line: Line) -> str:
    text = f"{label(line.job, line.sub, line.kind)} {line.pc} {'-' if line.ec is None else line.ec}"
    return f"{text} {line.sn}" if line.sn else text


def pjacl(call: Call) -> int:
    """Bounds and defaults of a resource group: lower, upper, default."""
    words = call.arguments
    name = words[words.index("--rg") + 1] if "--rg" in words[:-1] else "small"
    with call.state() as state:
        bounds = state.site.resource_groups.get(name)
    if bounds is None:
        call.complain(f"[ERR.] PJM 0602 pjacl Option argument is invalid. {name}")
        return 1
    call.say(f"(node=) {bounds.least_nodes} {bounds.most_nodes} {bounds.least_nodes}")
    call.say(f"(elapse=) {span(60, 2)} {span(bounds.most_s, 2)} {span(60, 2)}")
    return 0
