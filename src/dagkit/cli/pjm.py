"""`dagkit pjm doctor`, `limits` and `dry-run`: whether this machine's PJM is what dagkit takes it for."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.pjm_rehearsal import rehearse, simulate
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.wording import plain

if TYPE_CHECKING:
    from dagkit.executors.pjm.client import Client
    from dagkit.executors.pjm.request import PjmQueue

__all__ = ["commands"]

Check = tuple[str, bool, str]


@command("limits")
@json_option
def limits(session: Session, as_json: bool) -> None:
    """What `pjstat --limit` says, and how much of it is free for each group."""
    from dagkit.executors.pjm.client import Client

    found = Client().limits()
    rows = []
    for block in found.blocks:
        for name, (limit, used) in block.rows.items():
            rows.append(
                {
                    "unit": block.unit,
                    "section": f"{block.kind} {block.name}".strip(),
                    "name": name,
                    "limit": limit,
                    "used": used,
                }
            )
    if as_json:
        emit(rows)
        return
    for row in rows:
        most = "unlimited" if row["limit"] is None else f"{row['limit']:,}"
        click.echo(plain(f"{row['unit']}  {row['section']:<20} {row['name']:<24} {row['used']:>8} of {most}"))
    for unit in found.units():
        groups: list[str | None] = [
            block.name for block in found.blocks if block.kind == "GROUP" and block.unit == unit
        ]
        for group in groups or [None]:
            room = found.capacity(unit, group)
            jobs = "unknown" if room.jobs is None else f"{room.jobs.free():g}"
            subjobs = "unknown" if room.bulk_subjobs is None else f"{room.bulk_subjobs.free():g}"
            click.echo(
                plain(f"free for {group or 'you'} on {unit}: {jobs} single jobs, {subjobs} sub-jobs of bulk jobs")
            )


@command("doctor")
@click.option("--submit", is_flag=True, help="Submit a job that does nothing, look for it by its name, delete it.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Keep what was found in a file.")
@click.option("--target", metavar="TARGET", default="pjm", show_default=True, help="Whose settings are checked.")
@json_option
def doctor(session: Session, submit: bool, output: Path | None, target: str, as_json: bool) -> int:
    """Check on a login node that PJM answers as dagkit expects. Exit code 1 if something does not."""
    import json

    checks = list(_checks(session, target, submit))
    if output is not None:
        output.write_text(json.dumps([{"check": a, "ok": b, "found": c} for a, b, c in checks], indent=2))
    if as_json:
        emit([{"check": name, "ok": ok, "found": found} for name, ok, found in checks])
    else:
        for name, ok, found in checks:
            mark = click.style("OK  ", fg="green") if ok else click.style("FAIL", fg="red")
            click.echo(f"{mark} {name}: {plain(found)}")
    return 0 if all(ok for _, ok, _ in checks) else 1


def _checks(session: Session, target: str, submit: bool) -> Iterator[Check]:
    from dagkit.executors.pjm.client import Client

    for name in ("pjsub", "pjstat", "pjdel"):
        path = shutil.which(name)
        yield (name, path is not None, path or "not on PATH: use a login node (on Fugaku not the Arm one)")
        if path is None:
            return
    client, now = Client(), datetime.now()
    yield _checked("jobs by pjstat --data", lambda: _listing_words(client.live(now)))
    yield _checked("history by pjstat -H", lambda: _listing_words(client.history(1, now)))
    yield from _limit_checks(session, target, client)
    yield _checked("pjacl", _acl)
    if submit:
        yield _checked("a job is found by its name", lambda: _round_trip(client, _default_queue(session, target)))


def _limit_checks(session: Session, target: str, client: Client) -> Iterator[Check]:
    found: list[Any] = []

    def ask() -> str:
        found.append(client.limits())
        return f"resource units {', '.join(found[0].units()) or 'none'}"

    yield _checked("limits by pjstat --limit", ask)
    if not found:
        return
    for name, queue in _queues(session, target).items():
        capacity = found[0].capacity(*queue.project)
        words = capacity.problem if capacity.jobs is None else f"{capacity.jobs.free():g} single jobs may be submitted"
        yield (f"capacity of queue {name}", capacity.jobs is not None, words)


def _checked(name: str, look: Callable[[], str]) -> Check:
    from dagkit.errors import DagkitError

    try:
        return (name, True, look())
    except (DagkitError, OSError, subprocess.SubprocessError) as error:
        return (name, False, str(error))


def _listing_words(listing: Any) -> str:
    return f"{len(listing.rows)} rows read, {listing.dropped} not readable"


def _acl() -> str:
    if shutil.which("pjacl") is None:
        return "not on PATH; not needed to submit"
    done = subprocess.run(["pjacl"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return f"{len(lines)} lines" if done.returncode == 0 else f"ended with {done.returncode}; not needed to submit"


def _round_trip(client: Client, queue: PjmQueue) -> str:
    """Submit a job that does nothing, find it, delete it."""
    import secrets
    import tempfile

    from dagkit.errors import BackendError
    from dagkit.executors.pjm.ids import JobId
    from dagkit.executors.pjm.names import job_name

    name = job_name(f"dagkit-doctor-{secrets.token_hex(4)}")
    arguments = [
        "-N",
        name,
        "-L",
        f"node={queue.node or 1},elapse=60" + (f",rscgrp={queue.rscgrp}" if queue.rscgrp else ""),
    ]
    if queue.group:
        arguments += ["-g", queue.group]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        script = Path(folder) / "doctor.sh"
        script.write_text("#!/bin/bash\ntrue\n")
        answer = client.pjsub([*arguments, *queue.arguments, "-o", "/dev/null", "-e", "/dev/null"], script)
    if answer.job is None:
        raise BackendError(f"pjsub: {answer.verdict.value}: {answer.text}")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        rows = [row for row in client.live(datetime.now()).rows if row.name == name]
        if rows:
            client.pjdel([JobId(answer.job)])
            return f"job {answer.job} was found as {name} and deleted"
        time.sleep(2)
    raise BackendError(f"job {answer.job} is not listed under its full name {name}: adoption after a crash would fail")


def _queues(session: Session, target: str) -> dict[str, PjmQueue]:
    from dagkit.config.pjm import pjm_queue
    from dagkit.errors import UsageError

    chosen = session.settings.targets.get(target)
    if chosen is None:
        raise UsageError(f"no target {target!r}; there are {', '.join(sorted(session.settings.targets))}")
    choices = {"default": chosen.default, **chosen.queues}
    return {name: pjm_queue(name, dict(one.settings)) for name, one in choices.items() if one.kind == "pjm"}


def _default_queue(session: Session, target: str) -> PjmQueue:
    from dagkit.errors import UsageError

    queues = _queues(session, target)
    if not queues:
        raise UsageError(f"target {target!r} has no queue that is served by PJM")
    return queues.get("default") or next(iter(queues.values()))


@command("dry-run")
@click.argument("source", metavar="[FILE|MODULE:NAME]", required=False)
@click.option("--target", metavar="TARGET", default="pjm", show_default=True)
@click.option("--template", is_flag=True, help="Print the template of job scripts and nothing else.")
def dry_run(session: Session, source: str | None, target: str, template: bool) -> None:
    """Print the exact command and script of the jobs of a workflow or a bulk file; submits nothing."""
    from dagkit.executors.pjm.script import DEFAULT_TEMPLATE

    if template or source is None:
        click.echo(DEFAULT_TEMPLATE, nl=False)
        return
    for title, text in _previews(session, source, target):
        say(title)
        click.echo(text)


def _previews(session: Session, source: str, target: str) -> Iterator[tuple[str, str]]:
    from dagkit.cli.scripts import scripts_of_campaign, scripts_of_workflow
    from dagkit.cli.sources import load_flow

    path = Path(source)
    if path.is_file() and path.suffix in (".yaml", ".yml", ".json") and "job_key" in path.read_text(errors="replace"):
        yield from scripts_of_campaign(path, session.settings)
        return
    session.export()
    yield from scripts_of_workflow(load_flow(source, {}).spec, target, session.settings)


pjm = click.Group(
    "pjm",
    help="PJM, the job manager of Fugaku: check it, see its limits.",
    commands=[doctor, limits, dry_run, simulate, rehearse],
)
commands = {"pjm": pjm}
