"""`dagkit watch`: a run as it changes, until it is over."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from dagkit.cli import render
from dagkit.cli.look import columns_of_terminal, view_of_run
from dagkit.cli.params import DURATION, run_to_look_at
from dagkit.cli.session import Session, command, say
from dagkit.errors import BackendError
from dagkit.model.states import RunStatus

if TYPE_CHECKING:
    from dagkit.run import Run

__all__ = ["commands"]

_LEAST_REST = 5
#: Exit code of a process that was interrupted by a person, as shells have it.
INTERRUPTED = 130


@command("watch")
@run_to_look_at
@click.option("--interval", type=DURATION, default=1.0, show_default=True, help="Between looks.")
def watch(session: Session, run: str, interval: float) -> int:
    """Follow a run until it is over; ends with 1 if it failed or was cancelled. Ctrl-C leaves the run alone."""
    found = session.run(run)
    try:
        status = _watch_screen(found, interval) if sys.stdout.isatty() else _watch_lines(found, interval)
    except KeyboardInterrupt:
        say(f"stopped watching; the run goes on: dagkit watch {found.id} follows it again")
        return INTERRUPTED
    click.echo(f"Workflow {found.id} reached terminal state: {status}.")
    return 0 if status == RunStatus.COMPLETED else 1


def _watch_screen(run: Run, interval: float) -> RunStatus:
    """Redraw in place. Drawing a large run may not take more than a fraction of the time."""
    from rich.live import Live
    from rich.text import Text

    from dagkit.notebook.graph import picture

    drawn = picture(run.spec)
    shown = ""
    with Live(auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            try:
                view = view_of_run(run, drawn)
                shown = render.status_view(view, columns_of_terminal())
                live.update(Text.from_ansi(shown), refresh=True)
                if RunStatus(view.row.status).is_over:
                    return RunStatus(view.row.status)
            except BackendError as error:
                live.update(Text.from_ansi(f"{shown}\n\n").append(f"cannot refresh: {error}", "red"), refresh=True)
            time.sleep(max(interval, _LEAST_REST * (time.monotonic() - began)))


def _watch_lines(run: Run, interval: float) -> RunStatus:
    from dagkit.progress import LineProgress

    with LineProgress(sys.stdout, at_once=True) as progress:
        while True:
            try:
                row = run.row()
                progress.update(row)
                if RunStatus(row.status).is_over:
                    return RunStatus(row.status)
            except BackendError as error:
                click.echo(f"cannot refresh: {error}", err=True)
            time.sleep(interval)


commands = {"watch": watch}
