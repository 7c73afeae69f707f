"""Kinds of values that options take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import click
from click.shell_completion import CompletionItem

from dagkit.model.states import RunStatus, TaskState
from dagkit.settings import Option, parse_duration

__all__ = ["DURATION", "LATEST", "RUN", "RUN_STATUS", "TASK_STATE", "run_to_look_at", "setting_options"]

#: The run that changed last, where a command that only looks is not told which.
LATEST = "latest"

_COMPLETED_RUNS = 200


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds from `2s`, `10m`, `1h` or a number."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RunWords(click.ParamType):  # type: ignore[type-arg]
    """A run, as people type it; completed by the ids in the store."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from dagkit.cli.session import Session
        from dagkit.errors import DagkitError

        try:
            with closing(ctx.ensure_object(Session).settings.open_store()) as store:
                rows = store.rows(limit=_COMPLETED_RUNS)
        except DagkitError:  # a prompt is no place for errors
            return []
        return [
            CompletionItem(row.workflow_id, help=f"{row.name}: {row.status}")
            for row in rows
            if row.workflow_id.startswith(incomplete)
        ]


def run_to_look_at(function: Callable[..., Any]) -> Callable[..., Any]:
    """An argument `[RUN]`: the run that changed last, unless another one is named."""
    return click.argument("run", type=RUN, metavar="[RUN]", default=LATEST)(function)


DURATION = Duration()
RUN = RunWords()
TASK_STATE = click.Choice([state.value for state in TaskState], case_sensitive=False)
RUN_STATUS = click.Choice([status.value for status in RunStatus], case_sensitive=False)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def setting_options(section: str, options: Mapping[str, Option]) -> Decorator:
    """A decorator that adds one command option for each setting of a section; what is given lands in the session.

    An option is called as its setting; what ends in `_s` takes a duration and may be written without the ending.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(list(options.values())):
            function = _setting_option(section, option)(function)
        return function

    return decorate


def _setting_option(section: str, option: Option) -> Decorator:
    dashed = option.name.replace("_", "-")
    spellings = ([f"--{dashed[:-2]}"] if dashed.endswith("-s") else []) + [f"--{dashed}"]
    variables = ", ".join(option.env)
    default = "" if option.default is None else f" Default: {option.default:g}." if _is_number(option.default) else ""
    about = f"{option.about[0].upper()}{option.about[1:]}.{default} [{variables}]"

    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            from dagkit.cli.session import Session

            session = ctx.ensure_object(Session)
            session.options[f"{section}.{option.name}"] = value

    metavar = "DURATION" if dashed.endswith("-s") else "N" if _is_number(option.default) else "VALUE"
    return click.option(*spellings, option.name, metavar=metavar, expose_value=False, callback=keep, help=about)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
