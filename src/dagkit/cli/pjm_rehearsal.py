"""`dagkit pjm simulate` and `rehearse`: a campaign on a laptop before it is one on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.params import DURATION
from dagkit.cli.session import Session, command, emit, json_option, say

if TYPE_CHECKING:
    from dagkit.testing.pjm.rehearsal import Campaign, Rehearsal

__all__ = ["rehearse", "simulate"]

#: As many as Fugaku has: what limits a rehearsal is the machine that runs it.
_NODES = 158_976
_MODES = ("single", "bulk", "auto")


@command("simulate", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=".pjmsim", show_default=True)
@click.option("--at-a-time", type=click.IntRange(min=1), default=4, show_default=True, help="Jobs that run.")
@click.option("--accept", type=click.IntRange(min=1), default=100, show_default=True, help="Jobs that are taken.")
@click.option("--bulksubjob", type=click.IntRange(min=1), help="Sub-jobs of bulk jobs that are taken.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="By which PJM's own times are shorter.",
)
@click.option("--group", multiple=True, help="Projects; default: those of dagkit.toml.")
def simulate(
    session: Session,
    words: tuple[str, ...],
    folder: Path,
    at_a_time: int,
    accept: int,
    bulksubjob: int | None,
    speed: float,
    group: tuple[str, ...],
) -> int:
    """Run COMMAND, or a shell, where pjsub, pjstat and the others are those of a simulated PJM.

    Jobs run as processes on this machine. `pjmsim` moves its limits and makes things go wrong; the folder keeps its
    state, so that the same line again finds what was there.
    """
    from dagkit.testing.pjm import PjmSimulator, Site

    pjm = PjmSimulator(folder, Site().faster(speed))
    pjm.set(nodes=_NODES, at_a_time=at_a_time, groups=group or _groups(session))
    pjm.limit("ru-accept", accept)
    pjm.limit("ru-accept-bulksubjob", bulksubjob)
    shell = os.environ.get("SHELL", "/bin/sh")
    if not words:
        say(
            f"pjsub, pjstat, pjdel are simulated here, {at_a_time} jobs at a time. `pjmsim fault -h`: what can go wrong"
        )
    with _left_to_the_command(), pjm.running():
        try:
            code = subprocess.run(words or [shell], env={**os.environ, **pjm.environment}, check=False).returncode
        except FileNotFoundError:
            raise click.UsageError(f"{words[0]} is not a program on PATH") from None
        finally:
            pjm.power_off()
    say(pjm.summary())
    return code


@contextmanager
def _left_to_the_command() -> Iterator[None]:
    """An interrupt is the command's, which may end as it likes; a terminal that closes ends this program in order."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: end, signal.SIGHUP: end}
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _groups(session: Session) -> tuple[str, ...]:
    """The projects that dagkit.toml names."""
    tables = [
        dict(one.settings)
        for target in session.settings.targets.values()
        for one in (target.default, *target.queues.values())
        if one.kind == "pjm"
    ]
    return tuple(dict.fromkeys(str(table["group"]) for table in tables if table.get("group"))) or ("group1",)


@command("rehearse")
@click.option("--jobs", type=click.IntRange(1, 20_000), default=2000, show_default=True)
@click.option("--run", "run_s", type=DURATION, default="60s", show_default=True, help="How long each job runs.")
@click.option("--mode", type=click.Choice(_MODES), multiple=True, help="single, bulk, auto; default: all.")
@click.option("--nodes", type=click.IntRange(min=1), default=384, show_default=True)
@click.option("--accept", type=click.IntRange(min=1), default=100, show_default=True, help="Jobs that are taken.")
@click.option("--bulksubjob", type=click.IntRange(min=1), help="Sub-jobs of bulk jobs that are taken.")
@click.option("--neighbours", nargs=2, type=int, metavar="LEAST MOST", help="Slots that others take, now and then.")
@click.option("--outage", type=DURATION, help="pjstat does not answer for so long, after the first minutes.")
@click.option("--target", metavar="TARGET", help="Whose settings for the gate and for refills are used.")
@json_option
def rehearse(session: Session, mode: tuple[str, ...], as_json: bool, **asked: Any) -> None:
    """Foresee how long a campaign takes on PJM: dagkit submits to a simulated one, by its clock; nothing runs."""
    from dagkit.testing.pjm.rehearsal import rehearse as run

    rows = [_row(one, run(_campaign(session, one, asked))) for one in mode or _MODES]
    if as_json:
        emit(rows)
        return
    click.echo(
        f"{'mode':<7} {'takes':>9} {'ideal':>9} {'':>6}  {'pjsub':>6} {'refused':>7} {'pjstat':>6}  most at a time"
    )
    for row in rows:
        click.echo(
            f"{row['mode']:<7} {row['elapsed_s']:>7.0f} s {row['ideal_s']:>7.0f} s {row['ratio']:>5.2f}x  "
            f"{row['pjsub']:>6} {row['refused']:>7} {row['pjstat']:>6}  {row['most_active']}"
        )


def _campaign(session: Session, mode: str, asked: Mapping[str, Any]) -> Campaign:
    from dataclasses import replace

    from dagkit.config.pjm import pjm_patience, pjm_queue
    from dagkit.testing.pjm.rehearsal import Campaign

    table = _table(session, asked["target"])
    queue = replace(pjm_queue("rehearsal", table), mode=mode, node=None)
    elapse_s = max(queue.elapse_s or 0.0, 2 * asked["run_s"])
    outage_s = asked["outage"]

    def prepare(pjm: Any) -> None:
        if outage_s:
            pjm.fault("stat-fails", times=None, after_s=180, for_s=outage_s)

    limits = {"ru-accept": asked["accept"], "ru-accept-bulksubjob": asked["bulksubjob"]}
    queue = replace(queue, elapse_s=elapse_s, rscgrp=None, rscunit=None, template=None, arguments=())
    return Campaign(
        asked["jobs"], asked["run_s"], queue, pjm_patience({"submit_interval_s": 0.0, **table}), nodes=asked["nodes"],
        limits=limits, neighbours=asked["neighbours"], prepare=prepare,
    )  # fmt: skip


def _table(session: Session, target: str | None) -> dict[str, Any]:
    from dagkit.errors import UsageError

    if target is None:
        return {}
    chosen = session.settings.targets.get(target)
    if chosen is None:
        raise UsageError(f"no target {target!r}; there are {', '.join(sorted(session.settings.targets))}")
    return next((dict(one.settings) for one in (chosen.default, *chosen.queues.values()) if one.kind == "pjm"), {})


def _row(mode: str, found: Rehearsal) -> dict[str, Any]:
    calls = found.oracle.calls
    return {
        "mode": mode,
        "elapsed_s": found.elapsed_s,
        "ideal_s": found.ideal_s,
        "ratio": found.ratio,
        "pjsub": calls.get("pjsub", 0),
        "refused": found.oracle.queue_full,
        "pjstat": calls.get("pjstat", 0),
        "most_active": max(active for _, active, _, _ in found.timeline),
    }
