"""`dagkit config`, `completion` and `version`."""

from __future__ import annotations

import platform
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from dagkit.cli import render
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.errors import UsageError
from dagkit.wording import plain

__all__ = ["commands"]

_PACKAGES = (
    "pydantic",
    "PyYAML",
    "cloudpickle",
    "click",
    "rich",
    "submitit",
    "azure-storage-blob",
    "ipywidgets",
    "textual",
)
_TEMPLATE = """\
# Settings of dagkit for this project. What is said here gives way to environment variables and options.

# store = ".dagkit"            # path or url of the store; relative to this file
# target = "local"             # what `dagkit run` uses: local, queued, or a target of yours
# slots = 4                    # local tasks at a time; default: one for each processor

# [worker]
# slots = 1
# grace_s = 5                  # what a task gets to finish when its worker is told to stop

# [coordinator]
# idle_sleep_s = 0.5

# A target maps queues to executors (local, queued):
# [targets.mycluster]
# default = "local"
# [targets.mycluster.queues]
# gpu-a100 = "queued"
"""


@command("config")
@click.argument("action", type=click.Choice(["show", "init", "set"]), default="show")
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option(
    "--path", type=click.Path(dir_okay=False, path_type=Path), help="init, set: file to write. Default: dagkit.toml."
)
@click.option("--force", is_flag=True, help="init: replace a file that exists.")
@json_option
def config(
    session: Session, action: str, key: str | None, value: str | None, path: Path | None, force: bool, as_json: bool
) -> None:
    """Show the settings that apply and where each comes from; `config init` writes a file to start with, and `config
    set KEY VALUE` (worker.slots 4) changes a setting in the file, comments kept."""
    if action == "set":
        _set(session, key, value, path)
        return
    if key is not None:
        raise click.UsageError(f"`config {action}` takes no {key!r}")
    if action == "init":
        _init(path or Path("dagkit.toml"), force)
        return
    if path is not None or force:
        raise click.UsageError("--path and --force belong to `config init` and `config set`")
    document = _document(session)
    if as_json:
        emit(document)
        return
    body = [[name, plain(_shown(value)), plain(document["sources"][name])] for name, value in _values(session).items()]
    click.echo(render.table(["Setting", "Value", "From"], body))
    click.echo(f"\ntargets: {plain(', '.join(document['targets']))}")
    click.echo(f"files: {plain(', '.join(map(str, session.settings.config_paths)) or 'none')}")


def _set(session: Session, key: str | None, value: str | None, path: Path | None) -> None:
    from dagkit.config import edit

    if key is None or value is None:
        raise click.UsageError(f"config set KEY VALUE; keys: {', '.join(edit.settable())}")
    if path is None:
        used = [file for file in session.settings.config_paths if file.suffix == ".toml"]
        path = Path(session.config_option) if session.config_option else used[0] if used else Path("dagkit.toml")
    if path.suffix != ".toml":
        raise click.UsageError(f"{path} is no TOML file; --path names another")
    edit.write(path, key, value)
    say(f"{key} is {plain(value)} in {path}")


def _init(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"{path} exists; --force replaces it")
    try:
        path.write_text(_TEMPLATE, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    say(f"wrote {path}")


def _document(session: Session) -> dict[str, Any]:
    settings = session.settings
    storage, prefix = None, None
    if settings.store.startswith("azure://"):
        storage, _, prefix = settings.store.removeprefix("azure://").rpartition("/")
    return {
        "store": settings.store,
        "storage": storage,
        "prefix": prefix,
        "queues": settings.general.queues,
        "blobs": settings.general.blobs,
        "target": settings.default_target,
        "targets": list(settings.targets),
        "config_path": str(settings.config_paths[0]) if settings.config_paths else None,
        "coordinator": _section(settings.coordinator),
        "worker": _section(settings.worker),
        "sources": settings.sources,
    }


def _values(session: Session) -> dict[str, Any]:
    """Every setting by the name that its source is kept under."""
    settings = session.settings
    values: dict[str, Any] = {"store": settings.store, **_section(settings.general)}
    for name in ("worker", "coordinator"):
        values.update({f"{name}.{key}": value for key, value in _section(getattr(settings, name)).items()})
    return values


def _section(section: Any) -> dict[str, Any]:
    return {item.name: getattr(section, item.name) for item in fields(section)}


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(_: Session, shell: str) -> None:
    """Print a completion script: eval "$(dagkit completion bash)" in ~/.bashrc, or zsh in ~/.zshrc, or for fish
    dagkit completion fish > ~/.config/fish/completions/dagkit.fish."""
    from click.shell_completion import get_completion_class

    from dagkit.cli.app import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"no completion for {shell}")
    click.echo(kind(cli, {}, "dagkit", "_DAGKIT_COMPLETE").source())


@command("version")
@json_option
def version(_: Session, as_json: bool) -> None:
    """Versions of dagkit and of what it runs on; worth pasting into a report."""
    from dagkit import __version__

    versions = {"dagkit": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if as_json:
        emit(versions)
    else:
        click.echo("\n".join(f"{name} {number}" for name, number in versions.items()))


commands = {"config": config, "completion": completion, "version": version}
