"""`dagkit resume`: going on with a run by its id alone."""

from __future__ import annotations

from typing import Any

import click

from dagkit.cli.change import go_on, wait_option
from dagkit.cli.params import DURATION, RUN
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.wording import plain

__all__ = ["commands"]


@command("resume")
@click.argument("run", type=RUN, metavar="RUN")
@click.option("--cold", is_flag=True, help="Stop what still runs somewhere and run it again. Default: adopt it.")
@click.option(
    "--increase-resources", is_flag=True, help="What ended for want of memory or time asks for more than it last had."
)
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="How long stopping may take.")
@click.option("--run-timeout", type=DURATION, help="How long to wait; then the run is left as it is, exit code 1.")
@wait_option
@json_option
def resume(
    session: Session,
    run: str,
    cold: bool,
    increase_resources: bool,
    timeout: float,
    run_timeout: float | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Go on with a run whose process has ended, with its definition as it was stored.

    What is completed is kept; what failed or was cancelled is tried afresh. Refused while somebody drives the run.
    """
    session.export()
    session.may_drive = True
    found = session.run(run)
    found.resume("cold" if cold else "hot", increase_resources=increase_resources, timeout=timeout)
    if as_json:
        emit({"workflow_id": found.id, "status": str(found.status)})
    else:
        say(f"Workflow {plain(found.id)} goes on.")
    return go_on(found, wait, is_quiet=as_json, timeout=run_timeout)


commands: dict[str, Any] = {"resume": resume}
