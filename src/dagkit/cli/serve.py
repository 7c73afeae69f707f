"""`dagkit coordinator`, `dagkit worker` and `dagkit exec`: the processes that serve."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagkit.azure.place import is_account_name
from dagkit.cli.failing import FAILED
from dagkit.cli.params import setting_options
from dagkit.cli.session import Session, command, say
from dagkit.cli.sources import UserCodeFailed
from dagkit.cli.start import banner
from dagkit.errors import DagkitError, UsageError
from dagkit.settings import CoordinatorSettings, WorkerSettings, options_of
from dagkit.wording import plain

if TYPE_CHECKING:
    from dagkit.coordinator import Coordinator

__all__ = ["commands"]


@command("coordinator")
@click.argument("action", required=False, type=click.Choice(["break-lease"]), metavar="[break-lease]")
@click.option("--target", metavar="TARGET", help="Which executors serve which queues. Default: workers, by queues.")
@click.option("-y", "--yes", is_flag=True, help="break-lease: do not ask.")
@setting_options("coordinator", options_of(CoordinatorSettings))
def coordinator(session: Session, action: str | None, target: str | None, yes: bool) -> None:
    """Advance every run of the store until stopped; a second one stands by and takes over.

    SIGINT and SIGTERM finish the current step. `coordinator break-lease` clears the lease of one that is gone.
    """
    if action == "break-lease":
        _break_lease(session, yes)
        return
    session.export()
    session.log_to_stderr(logging.INFO)
    _serve(session, target or _default_target(session))


def _default_target(session: Session) -> str:
    """The configured target; unless somebody chose one, workers run the tasks, not the coordinator's own process."""
    settings = session.settings
    return "queued" if settings.sources["target"] == "default" else settings.default_target


def _serve(session: Session, target_name: str) -> None:
    from dagkit.coordinator import Coordinator, Pace

    settings = session.settings
    target = settings.target(target_name)
    pace = Pace(
        idle_sleep_s=settings.coordinator.idle_sleep_s,
        cancel_poll_interval_s=settings.coordinator.cancel_poll_interval_s,
        flush_retry_limit=settings.coordinator.flush_retry_limit,
        running_timeout_s=settings.coordinator.running_timeout_s,
        log_counters_s=settings.coordinator.log_counters_s,
    )
    said = [f"{name}={value}" for name, value in vars(settings.coordinator).items() if value is not None]
    say(f"{banner('Coordinator', session)}  target={plain(target.name)}\n  {'  '.join(said)}")
    _say_standby(session)
    stop = threading.Event()
    _on_signals(stop.set)
    spans = settings.spans()
    with closing(target.route(session.shared_store, settings.coordinator)) as route:
        service = Coordinator(
            session.store, route, role="coordinator", pace=pace, discover=True, limits=target.limits, spans=spans
        )
        with _told_alive(settings.coordinator.health, service):
            service.serve(stop)
    counters = "  ".join(f"{name}={value}" for name, value in vars(service.counters).items() if value)
    say(f"stopped  {counters}")


@contextmanager
def _told_alive(where: str | None, service: Coordinator) -> Iterator[None]:
    """Others can see that the coordinator is alive, where that is wanted."""
    from dagkit.coordinator import Liveness

    if where is None:
        yield
        return
    with closing(Liveness(where, service.pulse)) as liveness:
        say(f"alive: {plain(liveness.where)}")
        yield


def _say_standby(session: Session) -> None:
    from dagkit.coordinator.ownership import is_owner_dead, owner_words

    lease = session.store.lease("coordinator")
    if lease is not None and not is_owner_dead(lease.owner):
        say(f"standing by: {plain(owner_words(lease.owner))} holds the lease")


def _break_lease(session: Session, yes: bool) -> None:
    from dagkit.coordinator.ownership import owner_words

    lease = session.store.lease("coordinator")
    if lease is None:
        click.echo("No coordinator holds the lease.")
        return
    owner = plain(owner_words(lease.owner))
    if not yes:
        click.confirm(f"break the lease of {owner}? If it is alive, two coordinators may fight", abort=True, err=True)
    session.store.break_lease("coordinator")
    click.echo(f"The lease of {owner} is broken.")


def _on_signals(act: Any) -> None:
    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), lambda *_: act())


def _split_queue(session: Session, words: str) -> tuple[str | None, str]:
    """Service and queue of `account/queue`, `sb://namespace/queue` or a bare queue of JOBQ_STORAGE or of the store."""
    settings = session.settings
    service, _, name = words.rpartition("/")
    if not settings.store.startswith("azure:"):
        if "://" in words or (is_account_name(service) and settings.sources["store"] == "default"):
            raise UsageError(f"{words}: where are the runs? Set JOBQ_WORKFLOW_PREFIX=<account>/<prefix>, or --store")
        return None, words  # a name may have slashes there
    if not service and settings.sources["queues"] == "default":
        service = os.environ.get("JOBQ_STORAGE", "")
    return service or None, name


@command("worker")
@click.argument("queue", envvar="JOBQ_QUEUE", metavar="QUEUE")
@setting_options("worker", options_of(WorkerSettings))
def worker(session: Session, queue: str) -> int:
    """Run the tasks of a queue until stopped.

    QUEUE may be account/queue, or sb://namespace/queue, where the queue is not in the account of the store.

    SIGTERM takes no new work, gives what runs its grace and returns the rest to the queue; a second one kills. SIGINT
    does so without the grace. SIGUSR1 finishes what runs, then stops.
    """
    from dagkit.worker import Worker

    session.export(tracing=session.settings.general.tracing or None)
    session.log_to_stderr(logging.INFO)
    settings = session.settings.worker
    service, name = _split_queue(session, queue)
    if service is not None:
        session.serve_from(service)
    serving = Worker(name, session.shared_store, session.transport, settings)
    say(f"{banner('Worker', session)}  queue={plain(queue)}  slots={settings.slots}")
    outcome = serving.run()
    counters = "  ".join(f"{name}={value}" for name, value in sorted(outcome.counters.items()))
    say(f"stopped: {plain(outcome.reason)}  {counters}")
    return FAILED if outcome.failed else 0


@command("exec")
@click.argument("message", required=False, metavar="[MESSAGE]")
def exec_(session: Session, message: str | None) -> None:
    """Run the `call` of a task message in this process.

    For shell workers, which know a Python task only by its command `dagkit exec`: what to call is read from the
    definition in the store, with JOBQ_WORKFLOW_ID and JOBQ_WORKFLOW_TASK. Or from MESSAGE: a file with the task's
    kwargs, `-` for stdin.
    """
    session.export()
    value = _called(session, _call(session, message))
    if os.environ.get("JOBQ_OUTPUT_FILE"):
        from dagkit.runtime.context import set_output

        try:
            set_output(value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"a shell worker can report JSON only, and {type(value).__name__} is none: {error}"
            ) from None
    elif value is not None:
        click.echo(json.dumps(value, ensure_ascii=False, default=repr))


def _call(session: Session, message: str | None) -> dict[str, Any]:
    if message is None:
        kwargs = _stored_kwargs(session)
    else:
        try:
            with click.open_file(message, encoding="utf-8") as file:
                document = json.load(file)
            kwargs = json.loads(document["kwargs"]) if isinstance(document.get("kwargs"), str) else document
        except (OSError, ValueError, AttributeError) as error:
            raise UsageError(f"{message} is not a task message: {error}") from None
    call = kwargs.get("call")
    if not isinstance(call, dict):
        raise UsageError("the task has no `call`: it is a shell task, and its command is to be run instead")
    return call


def _stored_kwargs(session: Session) -> dict[str, Any]:
    names = ("JOBQ_WORKFLOW_ID", "JOBQ_WORKFLOW_TASK")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise UsageError(f"{' and '.join(missing)} not set: `dagkit exec` is for workers; name a MESSAGE to try one")
    run = session.run(os.environ[names[0]])
    kwargs: dict[str, Any] = run.spec.tasks[run.spec.index[run.task(os.environ[names[1]]).name]].kwargs
    return kwargs


def _called(session: Session, call: dict[str, Any]) -> Any:
    from dagkit.runtime.call import Caller
    from dagkit.runtime.storage import Storage

    path = os.environ.get("JOBQ_WORKFLOW_UPSTREAM_REFS")
    upstream = {}
    if path:
        with click.open_file(path, encoding="utf-8") as file:
            upstream = json.load(file)
    sys.path.insert(0, str(Path.cwd()))
    storage = Storage(session.store.url, lambda what, key: None)
    try:
        return Caller(storage, lambda _: None).run(call, upstream)
    except DagkitError:
        raise
    except Exception as error:  # the task may raise anything; it is for the worker's log and exit code
        raise UserCodeFailed(os.environ.get("JOBQ_WORKFLOW_TASK", "task"), error) from error


commands = {"coordinator": coordinator, "worker": worker, "exec": exec_}
