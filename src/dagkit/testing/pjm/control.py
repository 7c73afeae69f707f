"""pjmsim: the hand on a simulated PJM. Its clock, its limits, its faults, its record."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dagkit.testing.pjm import faults, limits, plans, processes, state
from dagkit.testing.pjm.callers import Call
from dagkit.testing.pjm.oracle import oracle_of
from dagkit.testing.pjm.site import Site
from dagkit.testing.pjm.world import World

__all__ = ["advance", "fail_node", "init", "pjmsim", "set_limits", "summary_of"]

#: Limits of the machine of the facts (pjm 3): a user may have 100 jobs accepted.
DEFAULT_LIMITS: Final[dict[tuple[str, str], int | None]] = {("USER", "ru-accept"): 100}


def init(home: Path, site: Site, *, at: float | None = None, speed: float | None = 1.0) -> None:
    """A new machine. `speed` None: its clock stands until it is moved."""
    state.create(home, site, time.time() if at is None else at, speed)
    set_limits(home, DEFAULT_LIMITS)


def set_limits(home: Path, values: dict[tuple[str, str], int | None]) -> None:
    """Limits by section and name; None: unlimited."""
    with state.opened(home) as machine:
        for (section, name), most in values.items():
            limits.set_limit(machine, section, name, most)
        World(machine).look()


def advance(call: Call, seconds: float = 0.0) -> float:
    """Move a clock that stands, and let happen what happens until then; returns the time."""
    with call.state() as machine:
        clock = machine.setting("clock")
        if seconds and clock["speed"] is None:
            machine.set_clock(clock["at"] + seconds, None)
        World(machine, call.outcome).go_on()
        return machine.now()


def fail_node(call: Call, count: int = 1, *, is_back: bool = False) -> None:
    """Nodes go down with what runs on them, as far as they are not idle; or come back."""
    with call.state() as machine:
        world = World(machine, call.outcome)
        world.go_on()
        down = machine.setting("nodes_down", 0)
        machine.set("nodes_down", max(0, down - count) if is_back else min(machine.site.nodes, down + count))
        running = machine.parts("st = 'RUN' ORDER BY job, sub")
        idle = machine.site.nodes - down - sum(part.node for part in running)
        for part in running if not is_back else ():
            if count <= idle:
                break
            options = json.loads(machine.do("SELECT options FROM jobs WHERE job = ?", part.job)[0][0])
            if options.get("restart"):
                world.force(part, "QUE")
            else:
                world.force(part, "EXT", pc=20, reason="LOST COMM")
            count -= part.node
        world.look()


def pjmsim(call: Call) -> int:
    """Run pjmsim."""
    asked = _parser().parse_args(call.arguments)
    if asked.what == "init":
        return _init(call, asked)
    if not state.exists(call.home):
        call.complain(f"pjmsim: no simulated PJM in {call.home}: run `pjmsim init` first")
        return 1
    answer = _do(call, asked)
    if answer:
        call.say(answer)
    return 0


def _init(call: Call, asked: argparse.Namespace) -> int:
    site = Site(mode=asked.mode, nodes=asked.nodes, groups=tuple(asked.group or ("group1",)), dialect=asked.dialect)
    values = dict(_setting(site, text) for text in asked.set)
    init(call.home, replace(site, **values), speed=None if asked.virtual else asked.speed)
    call.say(f"a PJM with {site.nodes} nodes in {call.home}")
    return 0


def _do(call: Call, asked: argparse.Namespace) -> str:
    if asked.what == "tick":
        return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(advance(call, float(asked.seconds.lstrip("+")))))
    if asked.what == "fail-node":
        fail_node(call, asked.count, is_back=asked.back)
        return ""
    with call.state() as machine:
        if asked.what == "set-limit":
            most = None if asked.most == "unlimited" else int(asked.most)
            limits.set_limit(machine, asked.section, asked.name, most)
            World(machine).look()
        elif asked.what == "set-load":
            for group in machine.site.groups:
                machine.do("INSERT OR REPLACE INTO load VALUES ('GROUP', ?, ?, ?)", group, asked.name, asked.alloc)
        elif asked.what == "set":
            machine.set("site", {**machine.site.plain(), **dict(_setting(machine.site, text) for text in asked.values)})
        elif asked.what == "rule":
            plans.add_rule(machine, plans.Rule(asked.glob, asked.bulk, asked.run_s, asked.ec, asked.sn, asked.pc,
                                               asked.state, asked.reason, tuple(asked.touch)))  # fmt: skip
        elif asked.what == "fault":
            faults.add_fault(machine, asked.kind, match=asked.match, count=asked.count or None, prob=asked.prob,
                             value=asked.value, for_s=asked.for_s, after_s=asked.after_s)  # fmt: skip
        elif asked.what == "stop":
            processes.end_everything(machine)
        else:
            return json.dumps(oracle_of(machine).plain()) if asked.json else summary_of(oracle_of(machine).plain())
    return ""


def summary_of(found: dict[str, Any]) -> str:
    """What has happened, in a few lines."""
    ran = sum(change["st"] == "RUN" for change in found["changes"])
    calls = ", ".join(f"{command} {count}" for command, count in sorted(found["calls"].items()))
    lines = [
        f"submitted: {len(found['submits'])} calls of pjsub, {found['refused']} refused ({found['queue_full']} full)",
        f"ran: {ran} parts; names used twice: {len(found['duplicates'])}",
        f"calls: {calls or 'none'}",
    ]
    for peak in found["peaks"]:
        if peak["most"] is not None:
            where = f"{peak['section']} {peak['value']}".strip()
            lines.append(f"most at a time: {where} {peak['name']} {peak['alloc']} of {peak['most']}")
    return "\n".join(lines)


def _setting(site: Site, text: str) -> tuple[str, Any]:
    """`name=value` as a setting of the site, in its type."""
    name, _, value = text.partition("=")
    if name not in site.plain():
        raise SystemExit(f"pjmsim: no setting {name!r}; there are {', '.join(site.plain())}")
    former = getattr(site, name)
    if isinstance(former, bool):
        return name, value in ("1", "true", "yes", "on")
    if isinstance(former, tuple):
        return name, tuple(part for part in value.split(",") if part)
    return name, type(former)(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("pjmsim", description="A simulated PJM: its clock, limits, faults and record.")
    parts = parser.add_subparsers(dest="what", required=True)
    one = parts.add_parser("init", help="Make a new machine.")
    one.add_argument("--mode", choices=("exec", "plan"), default="exec")
    one.add_argument("--nodes", type=int, default=384)
    one.add_argument("--group", action="append")
    one.add_argument("--dialect", choices=("fugaku", "fx100", "wisteria"), default="fugaku")
    one.add_argument("--virtual", action="store_true", help="The clock is moved by `tick` only.")
    one.add_argument("--speed", type=float, default=1.0, help="How many of its seconds go by in one.")
    one.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    one = parts.add_parser("tick", help="Let time go by.")
    one.add_argument("seconds", nargs="?", default="0")
    one = parts.add_parser("set-limit", help="A limit of USER, GROUP or ALL.")
    one.add_argument("section", choices=("USER", "GROUP", "ALL"))
    one.add_argument("name")
    one.add_argument("most", help="a number, or `unlimited`")
    one = parts.add_parser("set-load", help="What other members of the group take.")
    one.add_argument("name")
    one.add_argument("alloc", type=int)
    one = parts.add_parser("set", help="Settings of the site.")
    one.add_argument("values", nargs="+", metavar="NAME=VALUE")
    one = parts.add_parser("fail-node", help="Nodes go down with what runs on them.")
    one.add_argument("count", type=int, nargs="?", default=1)
    one.add_argument("--back", action="store_true", help="They come back.")
    one = parts.add_parser("rule", help="How jobs go, in the mode `plan`.")
    one.add_argument("glob", nargs="?", default="*")
    one.add_argument("--bulk", type=int, help="A number of a sub-job.")
    one.add_argument("--run-s", type=float, default=60.0)
    for name in ("ec", "sn", "pc"):
        one.add_argument(f"--{name}", type=int, default=0)
    one.add_argument("--state", default="EXT")
    one.add_argument("--reason", default="-")
    one.add_argument("--touch", action="append", default=[])
    words = "\n".join(f"  {kind:<20} {text}" for kind, text in faults.KINDS.items())
    one = parts.add_parser("fault", help="Something goes wrong.", epilog=f"kinds:\n{words}",
                           formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    one.add_argument("kind", choices=tuple(faults.KINDS), metavar="KIND")
    one.add_argument("--count", type=int, default=1, help="How often; 0: always.")
    one.add_argument("--prob", type=float, default=1.0)
    one.add_argument("--match", default="*", metavar="GLOB", help="Names of jobs; `jobs` or `limits` for pjstat.")
    one.add_argument("--value", default="", help="Seconds, a text, a resource group.")
    one.add_argument("--for", dest="for_s", type=float, help="Seconds for which it lasts.")
    one.add_argument("--after", dest="after_s", type=float, default=0.0, help="Seconds until it begins.")
    parts.add_parser("stop", help="End everything that runs.")
    one = parts.add_parser("dump", help="What has happened.")
    one.add_argument("--json", action="store_true")
    return parser
