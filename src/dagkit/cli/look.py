"""`dagkit status`, `list`, `tasks`, `logs` and `summary`: reading runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli import render
from dagkit.cli.documents import dependencies, driver_words, run_document, status_document, store_summary, task_document
from dagkit.cli.params import DURATION, RUN, RUN_STATUS, TASK_STATE, run_to_look_at
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.cli.view import RunView, layers_of, view_of
from dagkit.model.states import RunStatus, TaskState
from dagkit.wording import ago, count, plain

if TYPE_CHECKING:
    from dagkit.notebook.picture import Picture
    from dagkit.rows import TaskRow
    from dagkit.run import Run

__all__ = ["columns_of_terminal", "commands", "view_of_run"]


def columns_of_terminal() -> int:
    """Columns to fill; wide where nobody measures."""
    return shutil.get_terminal_size((120, 24)).columns


def view_of_run(run: Run, picture: Picture | None = None, *, by_layer: bool = False) -> RunView:
    """What there is to see of a run now."""
    from dagkit.notebook.graph import picture as picture_of

    tasks = run.tasks()
    groups = layers_of(run.spec, tasks) if by_layer else None
    return view_of(run.row(), picture or picture_of(run.spec), tasks, run.store.now(), groups)


@command("status")
@run_to_look_at
@click.option("-v", "--verbose", is_flag=True, help="Whole error texts in the table of tasks.")
@click.option("--by-layer", is_flag=True, help="Groups by depth in the graph instead of by template.")
@click.option("--tasks/--no-tasks", "with_tasks", default=False, help="Also the table of tasks.")
@json_option
def status(session: Session, run: str, verbose: bool, by_layer: bool, with_tasks: bool, as_json: bool) -> None:
    """One run: progress, groups, trouble and what to type next."""
    found = session.run(run)
    if as_json:
        emit(status_document(found.row(), found.spec, found.tasks()))
        return
    click.echo(render.status_view(view_of_run(found, by_layer=by_layer), columns_of_terminal()))
    if with_tasks or verbose:
        click.echo("\n" + _task_table(found, found.tasks(), verbose))


@command("list")
@click.option("--status", "wanted", type=RUN_STATUS, help="Only runs with this status.")
@click.option("--recent", type=click.IntRange(min=1), metavar="N", help="Only the N that changed last.")
@json_option
def list_(session: Session, wanted: str | None, recent: int | None, as_json: bool) -> None:
    """Runs of the store, the one that changed last first."""
    rows = session.store.rows([RunStatus(wanted)] if wanted else None, recent)
    if as_json:
        emit([run_document(row) for row in rows])
        return
    if not rows:
        click.echo("No workflows found.")
        return
    now = session.store.now()
    body = [
        [
            plain(row.workflow_id),
            plain(row.name),
            render.state_words(row.status),
            render.progress_words(row.counts),
            ago(now - row.updated_at),
            plain(driver_words(row) or "–"),
        ]
        for row in rows
    ]
    click.echo(render.table(["ID", "Name", "Status", "Progress", "Age", "Driven by"], body))


@command("tasks")
@click.argument("runs", nargs=-1, type=RUN, metavar="[RUN]...")
@click.option("--workflow", "more_runs", multiple=True, metavar="RUN", help="The same as the argument.")
@click.option("--status", "wanted", type=TASK_STATE, help="Only tasks in this state.")
@click.option("--queue", metavar="QUEUE", help="Only tasks of this queue.")
@click.option("--prefix", default="", metavar="TEXT", help="Only tasks whose names begin so.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many; 0 = all.")
@click.option("-v", "--verbose", is_flag=True, help="Whole error texts.")
@json_option
def tasks(
    session: Session,
    runs: Sequence[str],
    more_runs: Sequence[str],
    wanted: str | None,
    queue: str | None,
    prefix: str,
    limit: int,
    verbose: bool,
    as_json: bool,
) -> None:
    """Tasks of runs, filtered; without RUN those of all runs."""
    found = [session.run(words) for words in (*runs, *more_runs)]
    is_all = not found
    if is_all:
        found = [session.run(row.workflow_id) for row in session.store.rows()]
    selected, is_cut = _select(found, wanted, queue, prefix, limit)
    if as_json:
        emit([document for run, rows in selected for document in _task_documents(run, rows)])
        return
    if not any(rows for _, rows in selected):
        click.echo("No tasks found.")
    for place, (run, rows) in enumerate(selected):
        if is_all and not rows:
            continue
        if len(selected) > 1:
            click.echo(("\n" if place else "") + f"{plain(run.id)}:")
        click.echo(_task_table(run, rows, verbose))
    if is_cut:
        say(f"showing first {limit}; --limit 0 shows all")
    if not verbose and any(render.has_long_errors(rows) for _, rows in selected):
        say("long errors are cut; --verbose shows them")


def _select(
    runs: Iterable[Run], wanted: str | None, queue: str | None, prefix: str, limit: int
) -> tuple[list[tuple[Run, list[TaskRow]]], bool]:
    """The tasks of each run that pass the filters, and whether the limit left some out."""
    selected: list[tuple[Run, list[TaskRow]]] = []
    room = limit or sys.maxsize
    is_cut = False
    for run in runs:
        rows = run.tasks(state=TaskState(wanted) if wanted else None, prefix=prefix, queue=queue)
        is_cut = is_cut or len(rows) > room
        selected.append((run, rows[:room]))
        room -= len(rows[:room])
    return selected, is_cut


def _task_documents(run: Run, rows: Sequence[TaskRow]) -> Iterator[dict[str, Any]]:
    by_name = {row.name: row for row in run.tasks()}
    return ({"workflow_id": run.id, **task_document(run.spec, row, by_name)} for row in rows)


def _task_table(run: Run, rows: Sequence[TaskRow], verbose: bool) -> str:
    by_name = {row.name: row for row in run.tasks()}
    lines = []
    for row in rows:
        done, _, total = dependencies(run.spec.tasks[run.spec.index[row.name]], by_name)
        lines.append((row, done, total))
    return render.task_table(lines, verbose=verbose)


@command("logs")
@click.argument("run", type=RUN, metavar="RUN")
@click.argument("task", required=False, metavar="[TASK]")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the task has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of an earlier attempt. Default: the last.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines.")
@click.option("--since", type=DURATION, help="Without TASK: only tasks that ran within this time (1h).")
def logs(
    session: Session,
    run: str,
    task: str | None,
    follow: bool,
    attempt: int | None,
    tail: int | None,
    since: float | None,
) -> None:
    """What a task wrote to stdout and stderr; without TASK, all tasks one after the other."""
    found = session.run(run)
    if task is not None:
        if follow:
            for piece in found.logs(task, follow=True):
                click.echo(piece, nl=False)
        else:
            _print_log(found.logs(task, attempt=attempt), tail, f"{task} has written nothing")
        return
    if follow or attempt is not None:
        raise click.UsageError("--follow and --attempt need TASK")
    _print_all_logs(found, tail, since)


def _print_all_logs(run: Run, tail: int | None, since: float | None) -> None:
    earliest = 0.0 if since is None else run.store.now() - since
    is_first = True
    for task in run.tasks():
        if task.attempt == 0 or (since is not None and (task.completed_at or task.started_at or 0.0) < earliest):
            continue
        text = run.logs(task.name)
        if text:
            click.echo(("" if is_first else "\n") + click.style(f"==> {plain(task.name)} <==", bold=True))
            _print_log(text, tail, "")
            is_first = False
    if is_first:
        say("nothing was written")


def _print_log(text: str, tail: int | None, otherwise: str) -> None:
    if tail is not None:
        text = "".join(text.splitlines(keepends=True)[-tail:])
    if text:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        say(otherwise)


@command("summary")
@json_option
def summary(session: Session, as_json: bool) -> None:
    """Runs and tasks of the store in numbers."""
    document = store_summary(session.store.rows())
    if as_json:
        emit(document)
        return
    total, done = document["total_tasks"], document["completed_tasks"] + document["skipped_tasks"]
    body = [[render.state_words(status), f"{number:,}"] for status, number in document["workflows"].items()]
    if not body:
        click.echo("No workflows found.")
        return
    click.echo(render.table(["Runs", ""], body, right=[1]))
    names = ("completed", "running", "failed", "pending", "skipped")
    click.echo("tasks: " + ", ".join(f"{document[f'{name}_tasks']:,} {name}" for name in names))
    click.echo(f"{100 * done // total if total else 0}% complete — {count(total, 'total task')}")


commands = {"status": status, "list": list_, "tasks": tasks, "logs": logs, "summary": summary}
