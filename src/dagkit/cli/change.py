"""`dagkit cancel`, `retry`, `rerun` and `purge`: changing the course of runs, saying in numbers what is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.params import DURATION, RUN, RUN_STATUS
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.model.states import RunStatus
from dagkit.wording import count, plain

if TYPE_CHECKING:
    from dagkit.model.records import RunRow
    from dagkit.run import Run

__all__ = ["commands", "go_on", "wait_option"]

wait_option = click.option(
    "--wait/--no-wait", default=True, help="Drive a run that has no coordinator here, until it is over."
)


@command("cancel")
@click.argument("run", type=RUN, metavar="RUN")
@json_option
def cancel(session: Session, run: str, as_json: bool) -> None:
    """Stop a run: nothing more is started, running tasks are stopped."""
    found = session.run(run)
    row = found.row()
    is_over = RunStatus(row.status).is_over
    if not is_over:
        found.cancel()
    if as_json:
        emit({"workflow_id": found.id, "cancel_requested": not is_over, "target": session.settings.store})
    elif is_over:
        click.echo(f"Workflow {plain(found.id)} is {row.status} already; nothing to cancel.")
    else:
        left = count(row.counts.total - row.counts.ended, "task")
        click.echo(f"Cancellation requested for workflow {plain(found.id)} in {session.settings.store}.")
        say(f"{left} will not be started or will be stopped ({row.counts.running:,} running)")


@command("retry")
@click.argument("run", type=RUN, metavar="RUN")
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option(
    "--increase-resources", is_flag=True, help="What ended for want of memory or time asks for more than it last had."
)
@wait_option
@json_option
def retry(session: Session, run: str, tasks: Sequence[str], increase_resources: bool, wait: bool, as_json: bool) -> int:
    """Make failed, upstream-failed and cancelled tasks of a run eligible again: all, or those named."""
    session.export()
    session.may_drive = True
    found = session.run(run)
    counts = found.retry(tasks or None, increase_resources=increase_resources)
    if as_json:
        emit({"reset": counts.reset, "now_ready": counts.now_ready, "still_pending": counts.still_pending})
    elif counts.reset:
        click.echo(
            f"Workflow {plain(found.id)} in {session.settings.store}: reset {counts.reset} task(s) → "
            f"{counts.now_ready} now ready, {counts.still_pending} still pending."
        )
    else:
        click.echo(f"Workflow {plain(found.id)} in {session.settings.store}: no tasks to retry.")
    return go_on(found, wait, is_quiet=as_json) if counts.reset else 0


@command("rerun")
@click.argument("run", type=RUN, metavar="RUN")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@wait_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def rerun(session: Session, run: str, tasks: Sequence[str], wait: bool, yes: bool, as_json: bool) -> int:
    """Run tasks and everything that descends from them again, completed or not."""
    session.export()
    session.may_drive = True
    found = session.run(run)
    below = _descendants(found, tasks)
    question = f"run {count(len(tasks), 'task')} and the {below:,} that depend on them again?"
    if not (yes or as_json) and below:
        click.confirm(question, abort=True, err=True)
    number = found.rerun(list(tasks))
    if as_json:
        emit({"reset": number})
    else:
        click.echo(f"Workflow {plain(found.id)}: {count(number, 'task')} will run again.")
    return go_on(found, wait, is_quiet=as_json)


def _descendants(run: Run, tasks: Sequence[str]) -> int:
    """How many tasks depend on these, directly or not."""
    spec = run.spec
    start = {spec.index[run.task(task).name] for task in tasks}
    reached = list(start)
    seen = set(start)
    for index in reached:  # grows while it is gone through
        fresh = [child for child in spec.graph.children[index] if child not in seen]
        seen.update(fresh)
        reached += fresh
    return len(seen) - len(start)


def go_on(run: Run, wait: bool, *, is_quiet: bool, timeout: float | None = None) -> int:
    """After a change: wait for a run that this process has begun to drive, because nobody else does."""
    from dagkit import embedded
    from dagkit.cli.start import report_end

    if embedded.driving(run.store.url, run.id) is None:
        if not run.driver.is_driven() and not run.status.is_over:
            say("nobody drives this run now: start `dagkit coordinator`")
        return 0
    if not wait:
        return 0
    run.wait(timeout, progress=not is_quiet)
    return report_end(run, as_json=False) if not is_quiet else int(run.status != RunStatus.COMPLETED)


#: A submit that is younger may yet be going on.
_INTERRUPTED_S = 3600.0


@command("limit")
@click.argument("run", type=RUN, metavar="RUN")
@click.option("--max", "most", type=click.IntRange(min=0), metavar="N", help="Tasks at a time; 0 pauses.")
@click.option("--reset", is_flag=True, help="Back to what the workflow says.")
@click.option("--template", metavar="NAME", help="Of the tasks made from one declaration, not of the whole run.")
@json_option
def limit(session: Session, run: str, most: int | None, reset: bool, template: str | None, as_json: bool) -> None:
    """Change how many tasks of a run may run at a time, while it goes on. What runs is not stopped."""
    if (most is None) == (not reset):
        raise click.UsageError("say --max N, or --reset")
    found = session.run(run)
    found.limit(most, template)
    what = f"tasks of {template}" if template else "tasks"
    if as_json:
        emit({"workflow_id": found.id, "template": template, "max": most})
    elif most is None:
        click.echo(f"Workflow {plain(found.id)} runs as many {plain(what)} at a time as it says.")
    elif most == 0:
        click.echo(f"Workflow {plain(found.id)} starts no more {plain(what)}: dagkit limit {plain(found.id)} --reset")
    else:
        one = what.replace("tasks", "task", 1) if most == 1 else what
        click.echo(f"Workflow {plain(found.id)} runs at most {most:,} {plain(one)} at a time.")


@command("purge")
@click.argument("runs", nargs=-1, type=RUN, metavar="[RUN]...")
@click.option("--all", "everything", is_flag=True, help="Also runs that are not over.")
@click.option("--status", "wanted", type=RUN_STATUS, help="Only runs with this status.")
@click.option("--older-than", type=DURATION, metavar="AGE", help="Only runs that have not changed for so long (30d).")
@click.option("--drain-queues", is_flag=True, help="Also delete the messages that wait on the task queues.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(
    session: Session,
    runs: Sequence[str],
    everything: bool,
    wanted: str | None,
    older_than: float | None,
    drain_queues: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete runs that are over, with their outputs and logs."""
    chosen = _to_purge(session, runs, everything, wanted, older_than)
    queues = _waiting_messages(session, chosen) if drain_queues else {}
    tasks = sum(row.counts.total for row in chosen)
    leftovers = [] if runs or wanted else session.store.leftovers(_INTERRUPTED_S if older_than is None else older_than)
    if not chosen and not queues and not leftovers:
        emit({"workflows": 0, "tasks": 0, "queues": {}}) if as_json else click.echo("Nothing to purge.")
        return
    if not as_json:
        say(_preview(chosen, queues))
        for workflow_id in leftovers:
            say(f"  {plain(workflow_id)}  an interrupted submit")
    if not yes:
        click.confirm(
            f"delete {count(len(chosen) + len(leftovers), 'run')} with {count(tasks, 'task')}?", abort=True, err=True
        )
    for workflow_id in [*(row.workflow_id for row in chosen), *leftovers]:
        session.store.delete(workflow_id)
    drained = {name: _drain(session, name) for name in queues}
    if as_json:
        emit({"workflows": len(chosen) + len(leftovers), "tasks": tasks, "queues": drained})
        return
    messages = f", {count(sum(drained.values()), 'message')}" if drain_queues else ""
    click.echo(f"Deleted {count(len(chosen) + len(leftovers), 'run')}, {count(tasks, 'task')}{messages}.")


def _to_purge(
    session: Session, runs: Sequence[str], everything: bool, wanted: str | None, older_than: float | None
) -> list[RunRow]:
    rows = [session.store.row(session.find(words)) for words in runs] if runs else session.store.rows()
    now = session.store.now()
    if runs and not everything and (active := [row for row in rows if not _is_over(row)]):
        raise click.UsageError(f"{active[0].workflow_id} is {active[0].status}; cancel it first, or purge with --all")
    return [
        row
        for row in rows
        if (everything or _is_over(row))
        and (wanted is None or str(row.status) == wanted)
        and (older_than is None or now - row.updated_at >= older_than)
    ]


def _is_over(row: RunRow) -> bool:
    return str(row.status) in [str(status) for status in RunStatus if status.is_over]


def _preview(rows: Sequence[RunRow], queues: dict[str, int]) -> str:
    lines = [f"  {plain(row.workflow_id)}  {plain(row.name)}  {row.status}" for row in rows[:6]]
    if len(rows) > 6:
        lines.append(f"  +{len(rows) - 6} more")
    shown = [f"  queue {plain(name)}: {count(number, 'message')}" for name, number in list(queues.items())[:6]]
    if len(queues) > 6:
        shown.append(f"  +{len(queues) - 6} more")
    return "\n".join([*lines, *shown])


def _waiting_messages(session: Session, rows: Sequence[RunRow]) -> dict[str, int]:
    """Messages that wait, by queue. In a storage account only queues of these runs: others may be somebody else's."""
    transport = session.transport
    names = set(transport.names())
    if "://" in transport.url:
        names &= {queue for row in rows for queue in row.queues_used}
    stats = {name: transport.open(name).stats() for name in sorted(names)}
    return {name: stat.waiting for name, stat in stats.items() if stat.waiting}


def _drain(session: Session, name: str) -> int:
    queue, drained = session.transport.open(name), 0
    while deliveries := queue.receive(32, 0.0, 60.0):
        queue.complete(deliveries)
        drained += len(deliveries)
    return drained


commands: dict[str, Any] = {"cancel": cancel, "retry": retry, "rerun": rerun, "limit": limit, "purge": purge}
