"""What is wrong with a store and those who work on it; finds, and says what to do. Changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dagkit.config import Settings
from dagkit.coordinator.ownership import is_owner_dead, owner_words
from dagkit.errors import AccessDenied, BackendError, DagkitError
from dagkit.executors.queued import completion_queue_name
from dagkit.model.records import RunRow
from dagkit.model.states import RunStatus, TaskState
from dagkit.queues.base import Transport
from dagkit.run import Run
from dagkit.stores.base import Store

__all__ = ["Check", "Thresholds", "examine", "report"]

_ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLING)
_COMPLETIONS_OLD_S = 60.0
_NAMED = 5


@dataclass(frozen=True)
class Check:
    """One finding: `status` is `pass`, `warn` or `fail`; `hint` says what to do."""

    name: str
    status: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Thresholds:
    """From which age on, in seconds, something is worth a word."""

    pending_s: float = 120.0
    running_s: float = 3600.0
    ready_s: float = 3600.0


class _Patient:
    """What the checks look at."""

    def __init__(self, settings: Settings, store: Store, thresholds: Thresholds) -> None:
        self.settings, self.store, self.thresholds = settings, store, thresholds
        self.now = store.now()
        self.active = store.rows(status=_ACTIVE)
        self.queued = [row for row in self.active if "driver" not in store.load_definition(row.workflow_id)]


def examine(settings: Settings, thresholds: Thresholds | None = None) -> list[Check]:
    """Every check in order. A service that cannot be reached is a finding, not an exception."""
    checks = [Check("config", "pass", _config_words(settings))]
    store = settings.open_store()
    try:
        basics = [Check(f"store: {name}", status, message) for name, status, message in store.check()]
        checks += basics
        if any(check.status == "fail" for check in basics):
            return checks
        patient = _Patient(settings, store, thresholds or Thresholds())
        for look in (_coordinator, _pending_runs, _stale_runs, _tasks):
            checks += _asked(look.__name__.strip("_"), lambda look=look: look(patient))  # type: ignore[misc]
        checks += _asked("queues", lambda: _on_queues(patient))
        checks += _asked("slurm", lambda: _slurm(settings))
    except DagkitError as error:
        checks.append(Check("store", "fail", str(error)))
    finally:
        store.close()
    return checks


def report(checks: Sequence[Check]) -> dict[str, Any]:
    """The JSON document of `dagkit doctor --json`."""
    counts = {status: sum(check.status == status for check in checks) for status in ("pass", "warn", "fail")}
    return {"checks": [asdict(check) for check in checks], "summary": counts}


def _asked(name: str, question: Callable[[], Iterator[Check]]) -> list[Check]:
    try:
        return list(question())
    except DagkitError as error:
        return [Check(name, "fail", str(error))]


def _config_words(settings: Settings) -> str:
    files = ", ".join(map(str, settings.config_paths)) or "no configuration file"
    return f"store {settings.store} ({settings.sources['store']}); {files}"


def _slurm(settings: Settings) -> Iterator[Check]:
    """Where a target of the configuration, or the default one, has queues on Slurm."""
    own = [target for name, target in settings.targets.items() if name not in ("local", "queued", "slurm")]
    chosen = [*own, settings.target()]
    if any(choice.kind == "slurm" for target in chosen for choice in (target.default, *target.queues.values())):
        from dagkit.executors.slurm.check import check

        for status, message, hint in check():
            yield Check("slurm", status, message, hint)


def _coordinator(patient: _Patient) -> Iterator[Check]:
    lease = patient.store.lease("coordinator")
    if lease is not None and is_owner_dead(lease.owner):
        yield Check(
            "coordinator",
            "fail" if patient.queued else "warn",
            f"{owner_words(lease.owner)} is gone and its lease runs for another {lease.expires_at - patient.now:.0f} s",
            "start `dagkit coordinator`; it takes over",
        )
    elif lease is not None:
        yield Check("coordinator", "pass", f"driven by {owner_words(lease.owner)}")
    elif patient.queued:
        number = len(patient.queued)
        yield Check(
            "coordinator", "fail", f"no coordinator, and {number} submitted runs need one", "start `dagkit coordinator`"
        )
    else:
        yield Check("coordinator", "pass", "none runs and no submitted run needs one")


def _pending_runs(patient: _Patient) -> Iterator[Check]:
    limit = patient.thresholds.pending_s
    old = [r for r in patient.active if r.status == RunStatus.PENDING and patient.now - r.created_at > limit]
    if old:
        text = f"{_named(old)}: pending for more than {limit:g} s"
        yield Check("pending runs", "warn", text, "is a coordinator running, with a target that serves their queues?")
    else:
        yield Check("pending runs", "pass", "none has been waiting for long")


def _stale_runs(patient: _Patient) -> Iterator[Check]:
    stale = []
    for row in patient.active:
        if row.status == RunStatus.PENDING:
            continue
        lease = patient.store.lease(f"run/{row.workflow_id}")
        if lease is None or is_owner_dead(lease.owner):
            stale.append(row)
    if stale:
        text = f"{_named(stale)}: under way, but nobody drives {'it' if len(stale) == 1 else 'them'}"
        hint = f"go on with dagkit.attach({stale[0].workflow_id!r}) in Python, or start `dagkit coordinator`"
        yield Check("stale runs", "fail", text, hint)
    else:
        yield Check("stale runs", "pass", "every run that is under way is driven by somebody")


def _tasks(patient: _Patient) -> Iterator[Check]:
    stuck: list[str] = []
    waiting: list[str] = []
    for row in patient.active:
        if row.counts.running or row.counts.ready:
            _sort_tasks(patient, row, stuck, waiting)
    running_min, ready_min = patient.thresholds.running_s / 60, patient.thresholds.ready_s / 60
    if stuck:
        text = f"running for more than {running_min:g} min: {_few(stuck)}"
        yield Check("running tasks", "warn", text, "look at their logs; give them a timeout_s, or cancel the run")
    else:
        yield Check("running tasks", "pass", f"none has been running for more than {running_min:g} min")
    if waiting:
        text = f"ready for more than {ready_min:g} min: {_few(waiting)}"
        yield Check("ready tasks", "warn", text, "is there room? see max_parallelism, slots and `dagkit explain`")
    else:
        yield Check("ready tasks", "pass", f"none has been waiting for more than {ready_min:g} min")


def _sort_tasks(patient: _Patient, row: RunRow, stuck: list[str], waiting: list[str]) -> None:
    run = Run(patient.store, row.workflow_id, patient.settings)
    for task in run.tasks(state=TaskState.RUNNING):
        if task.started_at is not None and patient.now - task.started_at > patient.thresholds.running_s:
            stuck.append(f"{row.workflow_id}/{task.name}")
    if patient.now - row.updated_at > patient.thresholds.ready_s:
        waiting += [f"{row.workflow_id}/{task.name}" for task in run.tasks(state=TaskState.READY)]


def _on_queues(patient: _Patient) -> Iterator[Check]:
    with contextlib.closing(patient.settings.open_transport()) as transport:
        found = transport.check()
        for name, status, message in found:
            yield Check(f"queues: {name}", status, message)
        if any(status == "fail" for _, status, _ in found):
            return
        try:
            transport.names()
        except AccessDenied:
            yield from _of_queues_that_cannot_be_listed(patient, transport)
            return
        yield _completions(patient, transport)
        yield from _served(patient, transport)


def _of_queues_that_cannot_be_listed(patient: _Patient, transport: Transport) -> Iterator[Check]:
    """Whether those that are needed can be used; nobody tells how deep they are."""
    needed = {queue for row in patient.queued for queue in row.queues_used}
    for name in sorted(needed | {completion_queue_name(patient.store.url)}):
        try:
            transport.open(name).stats()
        except BackendError as error:
            yield Check("queues", "fail", str(error))
        else:
            yield Check("queues", "pass", f"{name} can be used")


def _completions(patient: _Patient, transport: Transport) -> Check:
    name = completion_queue_name(patient.store.url)
    if name not in transport.names():
        return Check("completion queue", "pass", f"{name} does not exist yet")
    stats = transport.open(name).stats()
    if stats.waiting and (stats.oldest_age_s or 0.0) > _COMPLETIONS_OLD_S:
        text = f"{stats.waiting} completions have been waiting, the oldest for {stats.oldest_age_s:.0f} s"
        return Check("completion queue", "fail", text, "nobody takes them: start `dagkit coordinator`")
    return Check("completion queue", "pass", f"{stats.waiting} waiting, {stats.locked} being taken")


def _served(patient: _Patient, transport: Transport) -> Iterator[Check]:
    """Queues with waiting messages, or used by submitted runs, that no worker serves."""
    skipped = completion_queue_name(patient.store.url)
    needed = {queue for row in patient.queued for queue in row.queues_used}
    names = sorted({*transport.names(), *needed} - {skipped})
    if names and transport.workers(names[0]) is None:
        yield from _waiting(transport, sorted(needed))
        return
    unserved = 0
    for name in names:
        workers = transport.workers(name)
        stats = transport.open(name).stats() if name in transport.names() else None
        waiting = stats.waiting if stats else 0
        if workers is None or workers or name.endswith("-failed") or not (waiting or name in needed):
            continue
        unserved += 1
        text = f"nobody serves queue {name}: {waiting} messages wait there"
        yield Check("queues", "fail" if waiting else "warn", text, f"start `dagkit worker {name}`")
    if not unserved:
        yield Check("queues", "pass", "every queue that is needed is served" if names else "none in use")


def _waiting(transport: Transport, needed: Sequence[str]) -> Iterator[Check]:
    """Queues of submitted runs, where the service does not know who serves them."""
    there = set(transport.names())
    stats = [transport.open(name).stats() for name in needed if name in there]
    words = ", ".join(f"{one.waiting} on {one.name}" for one in stats if one.waiting)
    old = [one.name for one in stats if one.waiting and (one.oldest_age_s or 0.0) > _COMPLETIONS_OLD_S]
    if old:
        hint = f"is a worker there? `dagkit worker {old[0]}`"
        yield Check("queues", "warn", f"messages wait: {words}; some for more than {_COMPLETIONS_OLD_S:g} s", hint)
    else:
        yield Check("queues", "pass", f"messages wait: {words}" if words else "no message waits")


def _named(rows: Sequence[RunRow]) -> str:
    return _few([f"{row.name} ({row.workflow_id})" for row in rows])


def _few(words: Sequence[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more
