"""`dagkit explain` and `dagkit doctor`: why nothing happens, and what is wrong."""

from __future__ import annotations

from typing import Any

import click

from dagkit.cli import render
from dagkit.cli.failing import FAILED
from dagkit.cli.params import DURATION, run_to_look_at
from dagkit.cli.session import Session, command, emit, json_option
from dagkit.errors import UnknownRun, UnknownTask
from dagkit.model.states import TaskState
from dagkit.wording import count, plain

__all__ = ["commands"]

_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


@command("explain")
@run_to_look_at
@click.option("--task", metavar="TASK", help="Only this task.")
@json_option
def explain(session: Session, run: str, task: str | None, as_json: bool) -> None:
    """What blocks what in a run, or why one task has not run."""
    document = _explained(session, run, task)
    if as_json:
        emit(document)
    elif document["status"] == "missing":
        click.echo(f"{plain(document['reason'])}")
    elif task is not None:
        click.echo(_task_words(document))
    else:
        click.echo(_run_words(document))


def _explained(session: Session, words: str, task: str | None) -> dict[str, Any]:
    from dagkit.explain import explain_run, explain_task

    try:
        run = session.run(words)
        return explain_run(run) if task is None else explain_task(run, run.task(task).name)
    except (UnknownRun, UnknownTask) as error:
        return {"workflow_id": words, "task": task, "status": "missing", "reason": str(error)}


def _task_words(document: dict[str, Any]) -> str:
    state = TaskState(document["status"])
    lines = [f"{plain(document['task'])}  {render.state_words(state)}  {plain(document['reason'])}"]
    if document["dep_policy"] != "all":
        lines.append(f"  policy: {document['dep_policy']}")
    if document["condition"]:
        lines.append(f"  condition: {plain(document['condition'])}")
    if document["failed_dependencies"]:
        lines.append(f"  failed: {plain(', '.join(document['failed_dependencies'][:10]))}")
    return "\n".join(lines)


def _run_words(document: dict[str, Any]) -> str:
    counts = "  ".join(f"{number:,} {TaskState(state).words}" for state, number in document["counts"].items())
    driven = plain(document["driven_by"] or "nobody")
    head = f"{plain(document['name'])}  {render.state_words(document['status'])}  {counts}  driven by {driven}"
    if not document["blockers"]:
        return f"{head}\nnothing holds anything up"
    body = [
        [
            plain(blocker["task"]),
            render.state_words(TaskState(blocker["status"])),
            count(blocker["blocks"], "task"),
            plain(blocker["reason"]),
        ]
        for blocker in document["blockers"]
    ]
    return head + "\n\n" + render.table(["Task", "Status", "Holds up", "Why"], body)


@command("doctor")
@click.option("--stale-pending-sec", type=DURATION, default=120.0, show_default=True, help="Age of a pending run.")
@click.option(
    "--stale-running-min", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Of a running task."
)
@click.option(
    "--stale-ready-min", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Of a ready task."
)
@json_option
def doctor(
    session: Session, stale_pending_sec: float, stale_running_min: float, stale_ready_min: float, as_json: bool
) -> int:
    """Find what is wrong, and what to do. Exit code 1 if a check fails."""
    from dagkit.doctor import Thresholds, examine, report

    checks = examine(session.settings, Thresholds(stale_pending_sec, stale_running_min * 60, stale_ready_min * 60))
    document = report(checks)
    if as_json:
        emit(document)
    else:
        for check in checks:
            mark = click.style(f"{check.status:<5}", fg=_COLOURS[check.status])
            click.echo(f"{mark} {check.name}: {plain(check.message)}")
            if check.hint and check.status != "pass":
                click.echo(f"      → {plain(check.hint)}")
        click.echo(", ".join(f"{number} {status}" for status, number in document["summary"].items()))
    return FAILED if document["summary"]["fail"] else 0


commands = {"explain": explain, "doctor": doctor}
