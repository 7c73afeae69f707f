"""`dagkit usage`, `resources`, `errors`, `set-status` and `reset`: what a long campaign used, and putting it right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dagkit.cli import render
from dagkit.cli.change import go_on, wait_option
from dagkit.cli.params import LATEST, RUN, run_to_look_at
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.wording import count, duration, memory, plain

__all__ = ["commands"]

#: Columns of `dagkit usage`: what is measured, and its statistics that are shown; --json has all.
_SHOWN = (
    ("time", "time_s", ("median", "p95", "max")),
    ("processor", "cpu_s", ("median", "max")),
    ("memory", "peak_mib", ("median", "max")),
    ("waiting", "wait_s", ("median", "max")),
)


@command("usage")
@click.argument("runs", nargs=-1, type=RUN, metavar="[RUN]...")
@click.option("--template", metavar="NAME", help="Only the tasks made from this declaration.")
@click.option("--where", multiple=True, metavar="ARG=VALUE", help="Only tasks called with it; may be given repeatedly.")
@json_option
def usage(session: Session, runs: Sequence[str], template: str | None, where: Sequence[str], as_json: bool) -> None:
    """Time, memory and processor time by template, of all runs that are named together, or of the last one."""
    from dagkit.tables import usage_table

    wanted = _wanted(where)
    table = usage_table(row for run in runs or [LATEST] for row in session.run(run).tasks_where(wanted))
    if wanted and not table:
        raise click.UsageError(f"no task was called with {', '.join(where)}")
    rows = [row for row in table if template is None or row["template"] == template]
    if template is not None and not rows:
        known = ", ".join(str(row["template"]) for row in table)
        raise click.UsageError(f"no template {template!r}; there are {known}")
    if as_json:
        emit(rows)
        return
    click.echo(_usage_words(rows))


def _wanted(where: Sequence[str]) -> dict[str, Any]:
    wanted = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise click.UsageError(f"--where {text}: write the name of an argument and its value: lr=0.1")
        wanted[name] = value
    return wanted


def _usage_words(rows: Sequence[dict[str, Any]]) -> str:
    head = ["template", "tasks", "attempts"]
    for title, _, parts in _SHOWN:
        head += [f"{title} {parts[0]}", *parts[1:]]
    body = [
        [plain(str(row["template"])), f"{row['tasks']:,}", f"{row['attempts']:,}"]
        + [_measured(name, row.get(f"{name}_{part}")) for _, name, parts in _SHOWN for part in parts]
        for row in rows
    ]
    return render.table(head, body, right=range(1, len(head)))


def _measured(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return memory(value * 2**20) if name == "peak_mib" else duration(value)


@command("resources")
@click.argument("run", type=RUN, metavar="RUN")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the YAML to this file.")
@click.option("--margin", type=click.FloatRange(min=0), default=0.1, show_default=True, help="Share that is added.")
@click.option("--percentile", type=click.FloatRange(0, 100), default=99.0, show_default=True, help="Of the attempts.")
@json_option
def resources(session: Session, run: str, output: Path | None, margin: float, percentile: float, as_json: bool) -> None:
    """Suggest resources for each template, as YAML, from what its tasks used."""
    from dagkit.model.writing import write_yaml

    found = session.run(run).resources(margin=margin, percentile=percentile)
    if as_json:
        emit(found)
        return
    text = write_yaml(found)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        say(f"wrote {count(len(found), 'template')} to {output}")


@command("errors")
@run_to_look_at
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many, newest first.")
@click.option("--grouped", is_flag=True, help="What they have in common, the most frequent first.")
@json_option
def errors(session: Session, run: str, limit: int, grouped: bool, as_json: bool) -> None:
    """The failures of a run, newest first, each with its traceback and the end of its log."""
    if grouped:
        _grouped(session.run(run).error_groups()[:limit], as_json)
        return
    found = session.run(run).errors(limit)
    if as_json:
        emit(
            [
                {
                    "task": failure.task,
                    "kind": failure.kind,
                    "attempts": failure.attempts,
                    "error": failure.error,
                    "traceback": failure.traceback,
                    "log_tail": failure.log_tail,
                }
                for failure in found
            ]
        )
        return
    if not found:
        click.echo("No task has failed.")
    for failure in found:
        click.echo(f"{click.style('✗', fg='red')} {plain(str(failure), keep_lines=True)}\n")


def _grouped(groups: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit(groups)
        return
    if not groups:
        click.echo("No task has failed.")
    for group in groups:
        words = f"{group['count']:,} x {group['template']} ({group['kind']}): {group['error']}"
        click.echo(f"{plain(words)}\n  such as {plain(group['example'])}")


@command("set-status")
@click.argument("run", type=RUN, metavar="RUN")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@click.argument("status", type=click.Choice(["completed", "pending"]))
@wait_option
@json_option
def set_status(session: Session, run: str, tasks: Sequence[str], status: str, wait: bool, as_json: bool) -> int:
    """Take tasks for completed (just those), or for pending (with all that depends on them)."""
    session.export()
    session.may_drive = True
    found = session.run(run)
    number = found.set_status(tasks, status)
    if as_json:
        emit({"changed": number})
    else:
        click.echo(
            f"Workflow {plain(found.id)}: {count(number, 'task')} {'is' if number == 1 else 'are'} {status} now."
        )
    return go_on(found, wait, is_quiet=as_json) if number else 0


@command("reset")
@click.argument("run", type=RUN, metavar="RUN")
@wait_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def reset(session: Session, run: str, wait: bool, yes: bool, as_json: bool) -> int:
    """Put every task of a run back to pending, completed ones too."""
    session.export()
    session.may_drive = True
    found = session.run(run)
    if not (yes or as_json):
        done = found.counts.completed
        click.confirm(f"run everything again, {count(done, 'completed task')} too?", abort=True, err=True)
    number = found.reset()
    if as_json:
        emit({"reset": number})
    else:
        click.echo(f"Workflow {plain(found.id)}: {count(number, 'task')} will run again.")
    return go_on(found, wait, is_quiet=as_json)


commands: dict[str, Any] = {
    "usage": usage,
    "resources": resources,
    "errors": errors,
    "set-status": set_status,
    "reset": reset,
}
