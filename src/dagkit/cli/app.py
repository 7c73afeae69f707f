"""The `dagkit` command group: its commands by name, the place it works on, and how errors leave it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from dagkit.cli.failing import end
from dagkit.cli.session import Session

__all__ = ["COMMANDS", "cli"]


class Entry(NamedTuple):
    """A command that is not imported yet: its module and the line the listing shows."""

    module: str
    about: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Run": {
        "run": Entry("start", "Run a workflow here, with progress, until it is over."),
        "submit": Entry("start", "Store workflows for the coordinator to run; prints their ids."),
    },
    "Before it runs": {
        "validate": Entry("define", "Check workflow files."),
        "plan": Entry("define", "What would run, where, and what is reused."),
        "export": Entry("define", "Write a workflow as YAML or JSON."),
        "graph": Entry("define", "Draw a workflow or a run: SVG, text, Mermaid, DOT."),
    },
    "Look": {
        "status": Entry("look", "One run: progress, groups, trouble and what to type next."),
        "list": Entry("look", "Runs of the store."),
        "tasks": Entry("look", "Tasks of runs, filtered."),
        "logs": Entry("look", "What a task wrote."),
        "watch": Entry("watch", "Follow a run until it is over."),
        "tui": Entry("tui", "All of it on one screen: runs, tasks, logs, queues, and what to do about them."),
        "errors": Entry("campaign", "What failed, newest first, with its traceback and log."),
        "usage": Entry("campaign", "Time and memory by template."),
        "resources": Entry("campaign", "Suggest resources from what was used."),
        "summary": Entry("look", "Runs and tasks of the store in numbers."),
        "explain": Entry("diagnose", "What blocks what in a run."),
        "doctor": Entry("diagnose", "Find what is wrong: no coordinator, unserved queues, stale runs, ..."),
    },
    "Change": {
        "cancel": Entry("change", "Stop a run."),
        "retry": Entry("change", "Make failed tasks of a run eligible again."),
        "resume": Entry("resume", "Go on with a run whose process has ended."),
        "rerun": Entry("change", "Run tasks and everything after them again."),
        "set-status": Entry("campaign", "Take tasks for completed, or for pending."),
        "reset": Entry("campaign", "Put every task back to pending."),
        "limit": Entry("change", "Change how many tasks run at a time; 0 pauses."),
        "purge": Entry("change", "Delete runs that are over."),
    },
    "Supercomputer": {
        "bulk": Entry("bulk", "Thousands of independent jobs from a file: run, status, cancel, reset."),
        "pjm": Entry("pjm", "PJM (Fugaku): doctor, limits, dry-run."),
    },
    "Serve": {
        "coordinator": Entry("serve", "Advance every run of the store until stopped."),
        "worker": Entry("serve", "Run the tasks of a queue."),
        "exec": Entry("serve", "Run the call of a task message in this process (for shell workers)."),
    },
    "Setup": {
        "config": Entry("setup", "Show or write the configuration."),
        "completion": Entry("setup", "Shell completion for bash, zsh and fish."),
        "version": Entry("setup", "Versions of dagkit and what it runs on."),
    },
}
COMMANDS: dict[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, with an optional STORAGE/PREFIX before the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"dagkit.cli.{entry.module}")
        command: click.Command = module.commands[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and "/" in args[0]:
            ctx.ensure_object(Session).location = args.pop(0)
            if not args:
                raise click.UsageError("a command is missing after STORAGE/PREFIX", ctx)
        if args and args[0] not in COMMANDS:
            raise click.UsageError(_unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.about) for name, entry in entries.items()], col_max=14)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Like `click.Command.main`, with dagkit's words and exit codes for whatever goes wrong."""
        extra["standalone_mode"] = False
        end(lambda: super(LazyGroup, self).main(args, *rest, **extra))


def _unknown_command(word: str) -> str:
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else " `dagkit --help` lists them."
    return f"no command {word!r}.{hint}"


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from dagkit import __version__

        click.echo(f"dagkit {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="[STORAGE/PREFIX] COMMAND [ARGS]...",
)
@click.option("--store", metavar="STORE", help="Path or url of the store. Default: .dagkit of the project.")
@click.option("--queues", metavar="SERVICE", help="Service that carries the task queues. Default: the store.")
@click.option("--blobs", metavar="ACCOUNT/CONTAINER", help="Where file outputs go.")
@click.option("--config", metavar="FILE", help="Configuration file to read in place of those found.")
@click.option("-v", "--verbose", is_flag=True, help="Log more, to stderr.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print it.")
@click.pass_context
def cli(
    ctx: click.Context, store: str | None, queues: str | None, blobs: str | None, config: str | None, verbose: bool
) -> None:
    """Run workflows durably: here, on queues, on a cluster.

    dagkit works on a store: the folder .dagkit of your project unless --store, DAGKIT_STORE, a configuration file or
    STORAGE/PREFIX say otherwise.
    """
    session = ctx.ensure_object(Session)
    session.store_option, session.config_option, session.is_verbose = store, config, verbose
    session.options = {"queues": queues, "blobs": blobs}
