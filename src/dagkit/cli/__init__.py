"""The command line. Each command's module is imported when the command is used, so that `dagkit --help` stays quick."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the `dagkit` program."""
    from dagkit.cli.app import cli

    cli(prog_name="dagkit")
