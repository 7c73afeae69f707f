"""How a command ends: exit codes 0, 1 and 2, and one line on stderr for whatever the user can do something about."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from dagkit.cli.sources import UserCodeFailed
from dagkit.errors import (
    DagkitError,
    MissingExtra,
    RunBusy,
    TaskFailed,
    UnknownRun,
    UnknownTask,
    UsageError,
    WorkflowExists,
)
from dagkit.wording import plain

__all__ = ["FAILED", "WRONG_USE", "end", "exit_code", "say_error"]

FAILED = 1
WRONG_USE = 2
_INTERRUPTED = 130

#: Nothing is wrong with how the command was used; what it was asked for is not there, or not possible now.
_NOT_WRONG_USE = (UnknownRun, UnknownTask, WorkflowExists, RunBusy, MissingExtra)


def end(command: Callable[[], Any]) -> NoReturn:
    """Run a command to its end and exit with its code; mistakes of the user leave no traceback."""
    try:
        code = command()
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, click.Abort):
        say_error("interrupted")
        code = _INTERRUPTED
    except click.ClickException as error:
        say_error(_click_words(error))
        code = WRONG_USE
    except UserCodeFailed as error:
        click.echo(plain("".join(error.frames), keep_lines=True), err=True, nl=False)
        say_error(str(error))
        code = FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except DagkitError as error:
        say_error(str(error))
        code = exit_code(error)
    sys.exit(code if isinstance(code, int) else 0)


def exit_code(error: DagkitError) -> int:
    """2 for wrong use, 1 for everything else that can go wrong."""
    wrong_use = isinstance(error, UsageError) and not isinstance(error, (*_NOT_WRONG_USE, TaskFailed))
    return WRONG_USE if wrong_use else FAILED


def say_error(text: str) -> None:
    """`error: ...` on stderr; control characters in it are shown, not obeyed."""
    click.echo(click.style("error: ", fg="red", bold=True) + plain(text, keep_lines=True), err=True)


def _click_words(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None and "`dagkit" not in text:
        end = "" if text.endswith(("?", ".")) else "."
        text = f"{text}{end} See `{error.ctx.command_path} --help`."
    return text
