"""`dagkit tui`: the terminal application on a store."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import click

from dagkit.cli.params import RUN
from dagkit.cli.session import Session, command
from dagkit.errors import MissingExtra, UsageError

__all__ = ["commands"]


@command("tui")
@click.argument("run", type=RUN, metavar="[RUN]", required=False)
@click.option("--light", is_flag=True, help="Colours for a light background.")
def tui(session: Session, run: str | None, light: bool) -> None:
    """All of it on one screen: runs, tasks, logs, queues, and what to do about them; RUN opens that one."""
    if importlib.util.find_spec("textual") is None:
        raise MissingExtra("textual", "tui", "dagkit tui")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("dagkit tui needs a terminal; dagkit status and dagkit watch print lines")
    session.may_drive = True
    found = None if run is None else session.find(run)
    application = importlib.import_module("dagkit_tui")  # by name: it lies above this package
    application.DagkitApp(session.settings, session.shared_store, found, is_dark=not light).run()


commands = {"tui": tui}
