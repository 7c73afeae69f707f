"""`dagkit run` and `dagkit submit`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagkit.cli import render
from dagkit.cli.documents import run_document
from dagkit.cli.failing import FAILED, say_error
from dagkit.cli.params import DURATION
from dagkit.cli.session import Session, command, emit, json_option, say
from dagkit.cli.sources import UserCodeFailed, load_flow, read_parameters
from dagkit.errors import DagkitError
from dagkit.wording import count, plain

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec
    from dagkit.run import Run
    from dagkit.workflow import Flow

__all__ = ["commands"]

resources_option = click.option(
    "--resources",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What tasks ask for instead of what they say, by template: as `dagkit resources -o FILE` writes it.",
)


@command("run")
@click.argument("source", metavar="FILE|MODULE:NAME")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of a workflow function.")
@click.option("--target", metavar="TARGET", help="Which executors serve which queues. Default: local processes.")
@click.option("--id", "workflow_id", metavar="ID", help="Id of the run. Default: a new one.")
@click.option("--slots", type=click.IntRange(min=1), help="Local tasks at a time. Default: one for each processor.")
@click.option("--max-parallelism", type=click.IntRange(min=1), help="Tasks of the run at a time.")
@click.option("--fail-fast/--no-fail-fast", default=None, help="Start nothing more after the first failure.")
@resources_option
@click.option("--timeout", type=DURATION, help="How long to wait; then the run is left as it is, exit code 1.")
@click.option("--resume", is_flag=True, help="Go on with the run of this id: what is completed and unchanged is kept.")
@click.option("--progress/--no-progress", default=True, help="Show progress on stderr.")
@json_option
def run(
    session: Session,
    source: str,
    params: Sequence[str],
    target: str | None,
    workflow_id: str | None,
    slots: int | None,
    max_parallelism: int | None,
    fail_fast: bool | None,
    resources: Path | None,
    timeout: float | None,
    resume: bool,
    progress: bool,
    as_json: bool,
) -> int:
    """Run a workflow in this process, with progress, until it is over.

    \b
    dagkit run sweep.yaml
    dagkit run pipeline.py:sweep -p rates='[0.1, 0.01]'
    dagkit run mypackage.flows:nightly --id nightly --resume
    """
    from dagkit.launch import start

    if resume and workflow_id is None:
        raise click.UsageError("--resume needs --id: which run is to go on?")
    session.export(slots=slots)
    session.may_drive = True
    session.settings.target(target)
    flow = load_flow(source, read_parameters(params))
    run = start(
        flow.spec,
        flow.payloads,
        store=session.store,
        target=target,
        id=workflow_id,
        fail_fast=fail_fast,
        max_parallelism=max_parallelism,
        resume=resume,
        wait=False,
        resources=resources,
        flow=flow,
    )
    try:
        run.wait(timeout, progress=progress or False)
    except KeyboardInterrupt:
        say(f"go on with: dagkit run {render.shell_word(source)} --id {render.shell_word(run.id)} --resume")
        raise
    return report_end(run, as_json)


def report_end(run: Run, as_json: bool) -> int:
    """Print the result of a run that is over, and what went wrong in it; returns the exit code."""
    from dagkit.cli.look import view_of_run
    from dagkit.model.states import RunStatus

    row = run.row()
    is_completed = row.status == RunStatus.COMPLETED
    result = run.result() if is_completed else None
    if as_json:
        emit({**run_document(row), "result": _as_data(result)})
    else:
        say("\n" + render.status_view(view_of_run(run)))
        if result is not None:
            click.echo(_as_text(result))
    return 0 if is_completed else FAILED


def _as_data(value: Any) -> Any:
    """The value if JSON can hold it, else its repr."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def _as_text(value: Any) -> str:
    data = _as_data(value)
    return data if isinstance(data, str) else json.dumps(data, indent=2, ensure_ascii=False)


@command("submit")
@click.argument("files", nargs=-1, metavar="[FILE|MODULE:NAME]...")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of a workflow function.")
@click.option("--id", "workflow_id", metavar="ID", help="Id of the run; for one workflow only.")
@click.option("--concurrency", type=click.IntRange(min=1), default=20, show_default=True, help="Submits at a time.")
@click.option("--max-fan-in", type=click.IntRange(min=2), metavar="N", help="Cut wider dependencies into batches of N.")
@resources_option
@json_option
def submit(
    session: Session,
    files: Sequence[str],
    params: Sequence[str],
    workflow_id: str | None,
    concurrency: int,
    max_fan_in: int | None,
    resources: Path | None,
    as_json: bool,
) -> int:
    """Store workflows for the coordinator to run. Prints one id a line; without FILES, paths come from stdin."""
    sources = list(files) or _paths_from_stdin()
    if workflow_id is not None and len(sources) > 1:
        raise click.UsageError("--id names one run, but there are several workflows")
    session.export()
    say(banner("Submit", session))
    flows = _load_all(sources, params)
    store = session.shared_store
    if any(isinstance(flow, Exception) for flow in flows):
        # All are checked before any is submitted, so that a typo in the last file does not leave half a batch behind.
        outcomes: list[Any] = flows
    else:
        with _bar(len(flows)) as advance, ThreadPoolExecutor(min(concurrency, len(flows))) as pool:
            more = {"id": workflow_id, "max_fan_in": max_fan_in, "resources": resources}
            outcomes = list(pool.map(lambda flow: _submit_one(flow, store, more, advance), flows))
    return _report(session, sources, outcomes, as_json)


def _paths_from_stdin() -> list[str]:
    paths = [] if sys.stdin.isatty() else [line.strip() for line in sys.stdin if line.strip()]
    if not paths:
        raise click.UsageError("no workflow: name files, or write their paths to stdin, one a line")
    return paths


def _load_all(sources: Sequence[str], params: Sequence[str]) -> list[Any]:
    parameters = read_parameters(params)
    flows: list[Any] = []
    for source in sources:
        try:
            flow = load_flow(source, parameters)
            _ = flow.spec
            flows.append(flow)
        except (DagkitError, UserCodeFailed) as error:
            flows.append(error)
    return flows


def _submit_one(flow: Flow, store: Any, more: dict[str, Any], advance: Any) -> Any:
    from dagkit.launch import submit

    began = time.monotonic()
    try:
        run = submit(flow.spec, flow.payloads, store=store, **more)
    except DagkitError as error:
        return error
    finally:
        advance()
    return {"workflow_id": run.id, "spec": flow.spec, "elapsed_s": time.monotonic() - began}


def _report(session: Session, sources: Sequence[str], outcomes: Sequence[Any], as_json: bool) -> int:
    documents = [_outcome_document(source, outcome) for source, outcome in zip(sources, outcomes, strict=True)]
    for outcome, document in zip(outcomes, documents, strict=True):
        if document["error"]:
            say_error(document["error"])
        elif document["workflow_id"]:
            if len(sources) == 1:
                say(f"{_submitted(outcome['spec'])} to {session.settings.store} → {document['workflow_id']}")
            if not as_json:
                click.echo(document["workflow_id"])
    done = [document for document in documents if document["workflow_id"]]
    if len(sources) > 1:
        say(f"Submitted {len(done)}/{len(sources)} workflows ({count(sum(d['task_count'] for d in done), 'task')})")
    if as_json:
        emit(documents)
    return 0 if len(done) == len(sources) else FAILED


def _outcome_document(source: str, outcome: Any) -> dict[str, Any]:
    document = {"file": source, "workflow_id": None, "task_count": 0, "elapsed_s": 0.0, "error": None}
    if isinstance(outcome, Exception):
        return {**document, "error": str(outcome) if str(outcome).startswith(source) else f"{source}: {outcome}"}
    if isinstance(outcome, dict):
        return {
            **document,
            "workflow_id": outcome["workflow_id"],
            "task_count": len(outcome["spec"].tasks),
            "elapsed_s": outcome["elapsed_s"],
        }
    return document


def _submitted(spec: WorkflowSpec) -> str:
    """`Submitted "name" (5 tasks, 2 root: a, b)`."""
    roots = [spec.tasks[index].name for index in spec.graph.roots]
    shown = ", ".join(roots[:3]) + (f", +{len(roots) - 3} more" if len(roots) > 3 else "")
    return plain(f'Submitted "{spec.name}" ({count(len(spec.tasks), "task")}, {len(roots)} root: {shown})')


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    """A progress bar on stderr for a batch, on a terminal; gives the function that advances it."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=total, label="submitting", file=sys.stderr) as shown:
        yield lambda: shown.update(1)


def banner(verb: str, session: Session) -> str:
    """`▶ Submit acct/proj(flag)  queues=sb://ns(env)`: what is addressed and where each value came from."""
    settings = session.settings
    parts = [f"▶ {verb} {settings.store}{_tag(settings.sources['store'])}"]
    for name in ("queues", "blobs"):
        value = getattr(settings.general, name)
        if value:
            parts.append(f"{name}={value}{_tag(settings.sources[name])}")
    return plain("  ".join(parts))


def _tag(source: str) -> str:
    word = source.partition(" ")[0]
    return "" if word == "default" else f"({word})"


commands = {"run": run, "submit": submit}
