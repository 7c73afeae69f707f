"""What one call of the program works on: options, settings, the store, runs by what people type for them."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli.params import LATEST
from dagkit.cli.repeats import Repeats

if TYPE_CHECKING:
    from dagkit.config import Settings
    from dagkit.queues.base import Transport
    from dagkit.run import Run
    from dagkit.stores.base import Store

__all__ = ["Session", "command", "emit", "json_option", "place_options", "say"]

_SEARCHED_RUNS = 2000


class Session:
    """Made once for each call; settings and store are opened when a command first needs them."""

    def __init__(self) -> None:
        self.store_option: str | None = None
        self.config_option: str | None = None
        self.location: str | None = None
        self.options: dict[str, Any] = {}
        self.is_verbose = False
        self.may_drive = False

    @cached_property
    def settings(self) -> Settings:
        """`ConfigError` if something in the options, the environment or a file is wrong."""
        from dagkit.config import load_settings

        return load_settings(self.options, store=self.store_option, config=self.config_option, location=self.location)

    @cached_property
    def store(self) -> Store:
        store = self.settings.open_store()
        click.get_current_context().find_root().call_on_close(self._close_store)
        return store

    def _close_store(self) -> None:
        if self.may_drive:
            _end_coordinators()
        self.store.close()

    @property
    def shared_store(self) -> Store:
        """The store, for commands that leave work in it for other processes; a usage error if they could not see it."""
        if self.settings.store.startswith("memory:"):
            raise click.UsageError("a memory: store ends with this process; name one that others can open")
        return self.store

    @cached_property
    def transport(self) -> Transport:
        """The queues of the store, or of the service that was configured."""
        transport = self.settings.open_transport()
        click.get_current_context().find_root().call_on_close(transport.close)
        return transport

    def serve_from(self, service: str) -> None:
        """Use the queues of this service in place of the configured one."""
        from dagkit.queues import open_transport, service_url

        self.transport = open_transport(service_url(service, self.settings.store))
        click.get_current_context().find_root().call_on_close(self.transport.close)

    def export(self, **more: Any) -> None:
        """Put what was said on the command line into the environment, where the rest of this process finds it."""
        said = {"DAGKIT_CONFIG": self.config_option, "DAGKIT_STORE": self.settings.store}
        said.update({f"DAGKIT_{name.upper()}": value for name, value in {**self.options, **more}.items()})
        os.environ.update({name: str(value) for name, value in said.items() if value is not None})

    def run(self, words: str) -> Run:
        """The run that is meant: by id, the beginning of an id, `name-<beginning of the id>`, name, or `latest`."""
        from dagkit.run import Run

        return Run(self.store, self.find(words), self.settings)

    def find(self, words: str) -> str:
        """Id of the run that is meant; `UnknownRun` with what looks similar, a usage error if several fit."""
        from dagkit.errors import UnknownRun, UsageError
        from dagkit.model.names import closest

        try:
            return self.store.row(words).workflow_id
        except UnknownRun:
            rows = self.store.rows(limit=_SEARCHED_RUNS)
        fitting = [row for row in rows if words and _means(words, row.workflow_id, row.name)]
        if len(fitting) == 1:
            return fitting[0].workflow_id
        if words == LATEST and rows:
            return rows[0].workflow_id
        if fitting:
            shown = ", ".join(row.workflow_id for row in fitting[:5]) + (", ..." if len(fitting) > 5 else "")
            raise UsageError(f"{words!r} may mean {len(fitting)} runs, newest first: {shown}")
        raise UnknownRun(words, self.store.url, closest(words, [row.workflow_id for row in rows], limit=2))

    def log_to_stderr(self, default: int = logging.WARNING) -> None:
        """Show what the library logs, as daemons do, unless the `[logging]` table says what is to become of it."""
        if self.settings.configure_logging():
            if self.is_verbose:
                logging.getLogger("dagkit").setLevel(logging.DEBUG)
            return
        level = logging.DEBUG if self.is_verbose else default
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handler.addFilter(Repeats())
        logging.basicConfig(level=level, handlers=[handler])
        for chatty in ("azure", "urllib3"):  # at INFO a line or two for every request
            logging.getLogger(chatty).setLevel(max(level, logging.INFO) if self.is_verbose else logging.ERROR)


def _end_coordinators() -> None:
    """Let coordinators of this process hand back what they drive and write their last words."""
    from dagkit import embedded

    embedded.close_all()


def _means(words: str, workflow_id: str, name: str) -> bool:
    if words == name:
        return True
    return len(words) >= 4 and (workflow_id.startswith(words) or f"{name}-{workflow_id}".startswith(words))


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--store` and `--config` after the command too, where people expect them."""

    def store(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(Session).store_option = value

    def config(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(Session).config_option = value

    function = click.option("--config", metavar="FILE", expose_value=False, callback=config, hidden=True)(function)
    return click.option(
        "--store", metavar="STORE", expose_value=False, callback=store, help="Path or url of the store."
    )(function)


def command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command whose function gets the `Session` first, and whose return value, if any, is the exit code."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        def call(*args: Any, **kwargs: Any) -> Any:
            ctx = click.get_current_context()
            if os.environ.get("NO_COLOR"):
                ctx.color = False
            return function(ctx.ensure_object(Session), *args, **kwargs)

        make: Callable[[Callable[..., Any]], click.Command] = click.command(name, **attributes)
        return make(place_options(update_wrapper(call, function)))

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def emit(document: Any) -> None:
    """JSON on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def say(text: str) -> None:
    """A line for people, on stderr: banners and progress never mix with data."""
    click.echo(text, err=True)
