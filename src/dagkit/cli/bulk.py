"""`dagkit bulk run`, `status`, `cancel` and `reset`: a campaign of bulk jobs in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagkit.cli.params import DURATION
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.wording import count, plain

if TYPE_CHECKING:
    from dagkit.bulk import BulkRunner
    from dagkit.bulk.file import Campaign

__all__ = ["commands"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command("run")
@click.argument("file", type=_FILE)
@click.option("--timeout", type=DURATION, help="Stop waiting after this time; jobs in a scheduler go on.")
@json_option
def run(session: Session, file: Path, timeout: float | None, as_json: bool) -> int:
    """Run the jobs of FILE to their end; with the same file again, go on with them. Exit code 1 if any has failed."""
    from dagkit.bulk import BulkStatus, run_bulk
    from dagkit.bulk.file import read_campaign

    session.log_to_stderr()
    campaign, last = read_campaign(file), [""]

    def progress(runner: BulkRunner) -> None:
        line = _counts_line(runner)
        if line != last[0] and not as_json:
            last[0] = line
            say(line)

    result = run_bulk(
        campaign.jobs,
        campaign.command,
        registry=campaign.registry,
        execution=campaign.execution,
        hpc=campaign.hpc,
        settings=session.settings,
        progress=progress,
        timeout_s=timeout,
    )
    counts = {status.value: number for status, number in result.status_counts.items()}
    if as_json:
        emit({"status_counts": counts, "is_complete": result.is_complete, "problems": list(result.problems)})
    else:
        click.echo(", ".join(f"{number} {word}" for word, number in sorted(counts.items())))
        for problem in result.problems:
            say(plain(problem))
    return 0 if set(result.status_counts) <= {BulkStatus.SUCCEEDED} else 1


def _counts_line(runner: BulkRunner) -> str:
    counts = runner.status_counts()
    return "  ".join(f"{status.value} {counts[status]}" for status in sorted(counts, key=lambda one: one.value))


@command("status")
@click.argument("file", type=_FILE)
@click.option("--stage", metavar="STAGE", help="Only the jobs of this stage.")
@click.option("--failed", is_flag=True, help="List the jobs that failed, and why.")
@json_option
def status(session: Session, file: Path, stage: str | None, failed: bool, as_json: bool) -> None:
    """How the jobs of FILE stand, by its registry; asks no scheduler."""
    with _runner(session, file) as runner:
        counts = {one.value: number for one, number in runner.status_counts(stage).items()}
        bad = [record for record in runner.records(stage) if record.status.value == "FAILED"]
        if as_json:
            jobs = [
                {"job_key": one.job_key, "status": one.status.value, "reason": one.reason}
                for one in runner.records(stage)
            ]
            emit({"status_counts": counts, "ready_waves": runner.ready_waves(), "jobs": jobs})
            return
        click.echo(", ".join(f"{number} {word}" for word, number in sorted(counts.items())) or "nothing is registered")
        for record in bad if failed else ():
            click.echo(f"  {plain(record.job_key)}: {plain(record.reason)}")
        if bad and not failed:
            say("`--failed` lists what failed; `dagkit bulk reset FILE` makes it run again")


@command("cancel")
@click.argument("file", type=_FILE)
@click.argument("keys", nargs=-1, metavar="[JOB_KEY]...")
@click.option("--stage", metavar="STAGE", help="Only the jobs of this stage.")
@click.option("--timeout", type=DURATION, default=300.0, help="How long to wait until they are gone.")
def cancel(session: Session, file: Path, keys: tuple[str, ...], stage: str | None, timeout: float) -> int:
    """Stop jobs of FILE, and wait until they are gone."""
    import time

    session.log_to_stderr()
    with _runner(session, file) as runner:
        runner.register(_campaign(file).jobs)
        number = runner.cancel(list(keys) or None, stage=stage)
        deadline = time.monotonic() + timeout
        concerned = [one for one in runner.records(stage) if not keys or one.job_key in keys]
        while any(record.status.is_active for record in concerned) and time.monotonic() < deadline:
            runner.tick(1.0)
        left = sum(record.status.is_active for record in concerned)
    click.echo(f"cancelled {count(number - left, 'job')}" + (f"; {left} are not gone yet" if left else ""))
    return 1 if left else 0


@command("reset")
@click.argument("file", type=_FILE)
@click.argument("keys", nargs=-1, metavar="[JOB_KEY]...")
@click.option("--stage", metavar="STAGE", help="Only the jobs of this stage.")
def reset(session: Session, file: Path, keys: tuple[str, ...], stage: str | None) -> None:
    """Make jobs of FILE run again: these, or all that failed or were cancelled."""
    with _runner(session, file) as runner:
        click.echo(f"{count(runner.reset(list(keys) or None, stage=stage), 'job')} will run again")


def _campaign(file: Path) -> Campaign:
    from dagkit.bulk.file import read_campaign

    return read_campaign(file)


def _runner(session: Session, file: Path) -> BulkRunner:
    from dagkit.bulk import BulkRunner

    campaign = _campaign(file)
    return BulkRunner(
        campaign.command,
        registry=campaign.registry,
        execution=campaign.execution,
        hpc=campaign.hpc,
        settings=session.settings,
    )


bulk = click.Group(
    "bulk", help="Thousands of independent jobs from a file, kept in the queue.", commands=[run, status, cancel, reset]
)
commands = {"bulk": bulk}
