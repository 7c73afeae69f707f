"""pjsub: takes a job, or says in PJM's words why not (facts: pjm 1, 11)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.testing.pjm import faults
from dagkit.testing.pjm.callers import Call, kill_caller
from dagkit.testing.pjm.limits import check_accept, note_peaks
from dagkit.testing.pjm.options import Refusal, merged, parse, script_words
from dagkit.testing.pjm.processes import keep_script
from dagkit.testing.pjm.site import ResourceGroup
from dagkit.testing.pjm.state import Part, State
from dagkit.testing.pjm.world import World

__all__ = ["pjsub"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}", re.ASCII)
_NODES: Final = re.compile(r"(\d+(?:x\d+){0,2})(?::(?:torus|mesh|noncont|strict|strict-io))?", re.ASCII)
_TIME: Final = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)", re.ASCII)
_SPARAM: Final = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
_DEPENDENCY: Final = re.compile(r"(ec|pc|sn)(==|!=|<=|>=|<|>)(\d+)(?::(one|after|all))?(?::(\d+))?", re.ASCII)
_BUDGET: Final = "[ERR.] PJM 0079 pjsub Computing resources shortage occurred.[group] (ACC->QUE)"
_RESTRICTED: Final = "[ERR.] PJM 0079 pjsub Elapse limit is too long (ACC->QUE)"
_FULL: Final = "[ERR.] PJM 0072 pjsub Job exceeded the accept limit"
_LOST_FIRST: Final = ("submit-killed", "submit-fails", "staging-error", "kill-caller-before")
_SAYS: Final = {"queue-full": _FULL, "budget": _BUDGET, "restricted": _RESTRICTED}


@dataclass(slots=True)
class _Wanted:
    """A job as it was asked for."""

    name: str
    kind: str
    script: str
    options: dict[str, Any]
    node: int
    shape: str
    elapse_s: int
    rscgrp: str
    first: int = -1
    count: int = 1


def pjsub(call: Call) -> int:
    """Run pjsub."""
    name = _name_on(call.arguments)
    with call.state() as state:
        fault = faults.taken(
            state, ("accept-", "submit-", "queue-full", "budget", "restricted", "says", "staging", "kill-caller"), name
        )
        warning = faults.taken(state, ("warning",), name)
    if warning is not None:
        call.say(warning.value or "warn: specification of core retention is invalid because job size is too large.")
    kind = fault.kind if fault is not None else ""
    if fault is not None and kind == "submit-slow":
        time.sleep(fault.seconds)
    if kind in _LOST_FIRST:
        return _fail_first(call, kind)
    with call.state() as state:
        World(state, call.outcome).go_on()
        refused = _SAYS.get(kind, fault.value if fault is not None and kind == "says" else "")
        answer, code = _submitted(call, state, name, refused)
    return _answer(call, fault, answer, code)


def _fail_first(call: Call, kind: str) -> int:
    with call.state() as state:
        _record(state, _name_on(call.arguments), call.arguments, None, 0, kind)
    if kind == "kill-caller-before":
        kill_caller(call)
    if kind in ("submit-killed", "kill-caller-before"):
        return _die(call)
    if kind == "staging-error":
        call.complain("[ERR.] PJM 0007 pjsub Staging option error (3).")
        return 0
    call.complain("[ERR.] PJM 0399 pjsub System error.")
    return 1


def _die(call: Call) -> int:
    """End without a word, as if by a signal."""
    if call.is_process:
        os.kill(os.getpid(), signal.SIGKILL)
    return -signal.SIGKILL


def _submitted(call: Call, state: State, name: str, refused: str) -> tuple[str, int]:
    try:
        if refused:
            raise Refusal(refused)
        job, wanted = _accept(call, state)
    except Refusal as error:
        result = re.search(r"PJM (\d{4})", str(error))
        _record(state, name, call.arguments, None, 0, result[1] if result else "refused")
        return str(error), 1
    _record(state, wanted.name, call.arguments, job, wanted.count, "accepted")
    shown = f"{job}_{wanted.first}" if wanted.kind == "ST" else str(job)
    is_bare = wanted.options.get("show") == "jid" and (wanted.kind == "NM" or state.site.has_plain_ids)
    return shown if is_bare else f"[INFO] PJM 0000 pjsub Job {shown} submitted.", 0


def _answer(call: Call, fault: faults.Fault | None, answer: str, code: int) -> int:
    kind = fault.kind if fault is not None else ""
    if code == 0 and fault is not None:
        if kind == "submit-hang":
            time.sleep(fault.seconds)
        if kind == "kill-caller-after":
            kill_caller(call)
        if kind in ("accept-kill", "kill-caller-after"):
            return _die(call)
        if kind == "accept-silent":
            return 0
        if kind == "accept-garbled":
            call.say("\x00@#! [IN")
            return 0
    if code == 0:
        call.say(answer)
    else:
        call.complain(answer)
    return code


def _record(state: State, name: str, arguments: Sequence[str], job: int | None, parts: int, result: str) -> None:
    state.do(
        "INSERT INTO submits (at, name, arguments, job, parts, result) VALUES (?, ?, ?, ?, ?, ?)",
        *(state.now(), name, shlex.join(arguments), job, parts, result),
    )


def _name_on(arguments: Sequence[str]) -> str:
    for place, word in enumerate(arguments[:-1]):
        if word in ("-N", "--name"):
            return arguments[place + 1]
    return Path(arguments[-1]).name if arguments else "STDIN"


# --- checks, in their order


def _accept(call: Call, state: State) -> tuple[int, _Wanted]:
    line, rest = parse(call.arguments)
    text, script_name = _script(call, rest)
    options = merged(parse(script_words(text), in_script=True)[0], line)
    if len(rest) > 1:
        options["arguments"] = rest[1:]
    name = _checked_name(options, script_name)
    _check_directory(call, state, options)
    _check_volumes(state, options)
    group = _checked_group(state, options)
    wanted = _resources(state, options, name, text)
    _parts(call, state, wanted)
    if not check_accept(state, wanted.kind, wanted.count, group):
        raise Refusal(_FULL)
    return _enter(call, state, wanted, group), wanted


def _script(call: Call, rest: list[str]) -> tuple[str, str]:
    if not rest:
        return call.stdin(), "STDIN"
    path = Path(call.directory) / rest[0]
    try:
        return path.read_text(errors="replace"), path.name
    except OSError as error:
        raise Refusal(f"[ERR.] PJM 0020 pjsub Cannot open the file ({rest[0]}) : {error.errno}.") from None


def _checked_name(options: dict[str, Any], script_name: str) -> str:
    name: str = options.get("name", script_name)
    for one in {name, script_name}:
        if not _NAME.fullmatch(one):
            raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {one}")
    return name


def _check_directory(call: Call, state: State, options: dict[str, Any]) -> None:
    areas = state.site.data_areas
    if areas and not options.get("any_directory") and not any(call.directory.startswith(area) for area in areas):
        raise Refusal(
            f"The current directory is not a data area. (directory: {call.directory})\n"
            f"Specify --no-check-directory option if you want to submit jobs outside the data area."
        )


def _check_volumes(state: State, options: dict[str, Any]) -> None:
    named = "PJM_LLIO_GFSCACHE" in options.get("environ", {})
    if state.site.is_volume_needed and not named and not options.get("any_gfscache"):
        raise Refusal(
            "If you use Spack, set PJM_LLIO_GFSCACHE to /vol0004.(ex. pjsub -x PJM_LLIO_GFSCACHE=/vol0004)\n"
            "Specify --no-check-gfscache option if you do not want to use Spack and want to submit jobs."
        )


def _checked_group(state: State, options: dict[str, Any]) -> str:
    groups, group = state.site.groups, options.get("group")
    if group in groups:
        return str(group)
    if group is None and not state.site.is_group_needed:
        return groups[0]
    raise Refusal(f"[ERR.] PJM 0071 pjsub Group not authorized to submit a job: group({group or 59999})")


def _resources(state: State, options: dict[str, Any], name: str, text: str) -> _Wanted:
    rsc = options.get("rsc", {})
    rscgrp = rsc.get("rscgrp", "small")
    bounds = state.site.resource_groups.get(rscgrp)
    if bounds is None:
        raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. rscgrp={rscgrp}")
    if rsc.get("rscunit", state.site.rscunit) != state.site.rscunit:
        raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. rscunit={rsc['rscunit']}")
    node, shape = _nodes(rsc.get("node", "1"))
    elapse_s = _elapse(rsc.get("elapse", "60"))
    _check_bounds(bounds, node, elapse_s)
    kind = "BU" if options.get("bulk") else "ST" if options.get("step") else "NM"
    return _Wanted(name, kind, text, options, node, shape, elapse_s, rscgrp)


def _nodes(value: str) -> tuple[int, str]:
    match = _NODES.fullmatch(value)
    if match is None:
        raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. node={value}")
    count, is_scattered = 1, value.endswith(":noncont")
    for side in match[1].split("x"):
        count *= int(side)
    return count, f"{count}:{match[1]}" if "x" in match[1] else f"{count}:noncont" if is_scattered else str(count)


def _elapse(value: str) -> int:
    """Seconds; of a range its upper end, or its lower one where it is open."""
    low, is_range, high = value.partition("-")
    match = _TIME.fullmatch(high if is_range and high else low)
    if match is None:
        raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. elapse={value}")
    return int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + int(match[3])


def _check_bounds(bounds: ResourceGroup, node: int, elapse_s: int) -> None:
    if node < bounds.least_nodes:
        raise Refusal(f"[ERR.] PJM 0054 pjsub node={node} is less than the lower limit ({bounds.least_nodes}).")
    if node > bounds.most_nodes:
        raise Refusal(f"[ERR.] PJM 0057 pjsub node={node} is greater than the upper limit ({bounds.most_nodes}).")
    if elapse_s > bounds.most_s:
        raise Refusal(f"[ERR.] PJM 0057 pjsub elapse={elapse_s} is greater than the upper limit ({bounds.most_s}).")


def _parts(call: Call, state: State, wanted: _Wanted) -> None:
    options = wanted.options
    sparam: str = options.get("sparam", "")
    if wanted.kind == "BU":
        if not state.site.may_bulk:
            raise Refusal("[ERR.] PJM 0070 pjsub No execute permission: pjsub-bulk.")
        match = _SPARAM.fullmatch(sparam)
        is_bad = any(options.get(other) for other in ("interact", "step", "mswk"))
        if match is None or int(match[2]) < int(match[1]) or is_bad:
            raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. sparam={sparam}")
        wanted.first, wanted.count = int(match[1]), int(match[2]) - int(match[1]) + 1
    elif wanted.kind == "ST":
        options["steps"] = _step(state, sparam)
        wanted.first = options["steps"]["sub"]


def _step(state: State, sparam: str) -> dict[str, Any]:
    """What `--sparam jid=...,jnam=...,sn=N,sd=condition` of a step says."""
    given = dict(part.partition("=")[::2] for part in sparam.split(",") if part and not part.startswith("sd="))
    job = None
    if "jid" in given:
        job = int(given["jid"].partition("_")[0]) if given["jid"].partition("_")[0].isdigit() else -1
    elif "jnam" in given:
        rows = state.do("SELECT job FROM jobs WHERE name = ? AND kind = 'ST' ORDER BY job DESC LIMIT 1", given["jnam"])
        job = rows[0][0] if rows else -1
    last = [] if job is None else state.do("SELECT sub, is_over FROM parts WHERE job = ? ORDER BY sub", job)
    if job is not None and (not last or all(is_over for _, is_over in last)):
        raise Refusal(f"[ERR.] PJM 0012 pjsub Job {given.get('jid', job)} does not exist.")
    sub = int(given.get("sn", last[-1][0] + 1 if last else 0))
    rules = []
    for part in sparam.split(","):
        match = _DEPENDENCY.fullmatch(part.removeprefix("sd=")) if part.startswith("sd=") else None
        if part.startswith("sd=") and match is None:
            raise Refusal(f"[ERR.] PJM 0049 pjsub Option argument is invalid. {part}")
        if match is not None:
            rules.append({
                "field": match[1], "operator": match[2], "value": int(match[3]), "mode": match[4] or "one",
                "sub": None if match[5] is None else int(match[5]),
            })  # fmt: skip
    after = max((number for number, is_over in last if number < sub and not is_over), default=None)
    return {"job": job, "sub": sub, "after": after, "rules": rules, "is_first": after is None,
            "mode": rules[0]["mode"] if rules else "one"}  # fmt: skip


# --- entry


def _enter(call: Call, state: State, wanted: _Wanted, group: str) -> int:
    at, steps = state.now(), wanted.options.get("steps")
    job: int = steps["job"] if steps and steps["job"] is not None else _next_id(state)
    if not steps or steps["job"] is None:
        keep_script(state, job, wanted.script)
        state.do(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(job, wanted.name, wanted.kind, wanted.script, call.directory),
            *(json.dumps({**wanted.options, "shape": wanted.shape}), json.dumps(dict(call.environ))),
            *(state.site.rscunit, wanted.rscgrp, group, wanted.node, wanted.elapse_s, _priority(wanted), at),
        )
    World(state, call.outcome).add((_part(job, sub, wanted) for sub in _subs(wanted)), at)
    note_peaks(state)
    return job


def _next_id(state: State) -> int:
    highest = state.do("SELECT max(job) FROM jobs")[0][0]
    return state.site.first_id if highest is None else int(highest) + 1


def _subs(wanted: _Wanted) -> range:
    return range(wanted.first, wanted.first + wanted.count)


def _priority(wanted: _Wanted) -> int:
    value = wanted.options.get("priority", "127")
    return int(value) if value.isdigit() else 127


def _part(job: int, sub: int, wanted: _Wanted) -> Part:
    steps = wanted.options.get("steps")
    values: dict[str, Any] = dict.fromkeys(Part.__dataclass_fields__)
    values.update(job=job, sub=sub, st="ACC", lst="-", is_backfilled=0, pc=0, sn=0, reason="-", restarts=0, is_over=0)
    values.update(node=wanted.node, elapse_s=wanted.elapse_s, priority=_priority(wanted))
    values["depends"] = json.dumps(steps) if steps else None
    return Part(**values)
