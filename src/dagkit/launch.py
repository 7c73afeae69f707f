"""Starting runs: embedded in this process, submitted for a coordinator elsewhere, resumed, or attached to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from dagkit import tables
from dagkit.config import Settings, load_settings
from dagkit.engine import fan_in
from dagkit.engine.identity import identities
from dagkit.engine.scaling import QueueLimits, over_limit
from dagkit.engine.state import WorkflowState
from dagkit.errors import UnknownRun, UsageError, WorkflowExists
from dagkit.gc_pause import no_gc
from dagkit.model.names import check_workflow_id
from dagkit.model.resources import format_memory, format_runtime
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import RunStatus
from dagkit.resource_settings import with_resources
from dagkit.resume import carried_over, keep_cached
from dagkit.run import Run
from dagkit.stores.base import Store, StoredRun

if TYPE_CHECKING:
    from dagkit.workflow import Flow

__all__ = ["attach", "runs", "start", "submit", "submit_many"]

_SUBMITTED_AT_A_TIME: Final = 8
_STOP_S: Final = 60.0


def start(
    spec: WorkflowSpec,
    payloads: Mapping[str, bytes] | None = None,
    *,
    store: Store | str | Path | None = None,
    target: str | None = None,
    id: str | None = None,  # noqa: A002 - the word users know
    wait: bool = True,
    fail_fast: bool | None = None,
    max_parallelism: int | None = None,
    timeout: float | None = None,
    resume: bool | Literal["hot", "cold"] = False,
    progress: bool | None = None,
    resources: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
    flow: Any = None,
) -> Run:
    """Run a workflow in this process and return its handle; arguments as those of `Flow.run`.

    Args:
        spec: What to run; `payloads` are the content-addressed bytes it refers to.
        flow: What it was compiled from, if it was: names nodes for the handle.
    """
    if max_parallelism is not None and max_parallelism < 1:
        raise UsageError(f"max_parallelism={max_parallelism}: at least 1 task has to be able to run")
    if resume not in (True, False, "hot", "cold"):
        raise UsageError(
            f"resume={resume!r}: allowed are True or 'hot' (adopt what still runs), and 'cold' (stop it first)"
        )
    settings, opened = _open(store)
    changes = {"fail_fast": fail_fast, "max_parallelism": max_parallelism}
    spec = spec.model_copy(update={key: value for key, value in changes.items() if value is not None})
    spec = with_resources(spec, resources) if resources is not None else spec
    target = target or settings.default_target
    spec = with_defaults(spec, settings.target(target).defaults)
    check_limits(spec, settings.target(target).limits)
    workflow_id = check_workflow_id(id) if id is not None else new_workflow_id()
    _put_payloads(opened, payloads)
    run = Run(opened, workflow_id, settings, flow=flow, spec=spec)
    with no_gc():
        found = _stored(opened, workflow_id) if id is not None else None
        if found is not None and resume == "cold":
            found = _stopped(opened, workflow_id, settings, found)
        _drive(run, found, target, bool(resume))
    if wait:
        run.wait(timeout, progress=progress)
    return run


def with_defaults(spec: WorkflowSpec, defaults: Mapping[str, Mapping[str, Any]]) -> WorkflowSpec:
    """The workflow in which tasks ask for what their queue says, where they do not say themselves."""
    if not defaults:
        return spec
    tasks = []
    for task in spec.tasks:
        asked = task.resources or {}
        missing = {key: value for key, value in defaults.get(spec.queue_of(task), {}).items() if key not in asked}
        is_decided_here = not isinstance(asked.get("queue"), Mapping)  # else an upstream task names the queue
        tasks.append(
            task.model_copy(update={"resources": {**missing, **asked}}) if missing and is_decided_here else task
        )
    return spec.model_copy(update={"tasks": tuple(tasks)})


def check_limits(spec: WorkflowSpec, limits: Mapping[str, QueueLimits]) -> None:
    """`UsageError` that names every task that asks for more than its queue, and those it may fall back to, hold."""
    if not limits:
        return
    problems = []
    for task in spec.tasks:
        queue = spec.queue_of(task)
        over = over_limit(task.resources or {}, limits.get(queue))
        if over is not None:
            key, limit = over
            most = {"memory": format_memory, "runtime": format_runtime}.get(key, str)(int(limit))
            problems.append(f"{task.name} asks for {key} {(task.resources or {})[key]}, and queue {queue} holds {most}")
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise UsageError(f"{'; '.join(problems[:5])}{more}. Ask for less, or name another queue.")


def _drive(run: Run, found: StoredRun | None, target: str, resume: bool) -> None:
    """Have this process drive the run: a new one, one that nobody drives, or one that it drives already."""
    store, spec, driver = run.store, run.spec, {"target": target}
    if found is None:
        definition = _definition(spec, run.id, driver)
        run.driver.create(target, spec, definition, lambda state: keep_cached(state, store, store.now()))
    elif not run.driver.is_driven():
        _take_up(store, found, spec, run.id, driver, resume)
        run.driver.take_over()
    elif not _same_work(found, spec):
        raise WorkflowExists(run.id, "it is running, with another definition")


def _stopped(store: Store, workflow_id: str, settings: Settings, found: StoredRun) -> StoredRun:
    """The stored run after what it still had running, somewhere, was stopped."""
    before = Run(store, workflow_id, settings)
    before.driver.refuse_if_driven()
    if before.counts.running:
        before.driver.stop_what_runs(before.spec, time.monotonic() + _STOP_S)
        found = store.load(workflow_id)
    return found


def _put_payloads(store: Store, payloads: Mapping[str, bytes] | None) -> None:
    for data in (payloads or {}).values():
        store.put_payload(data)


def submit(
    spec: WorkflowSpec,
    payloads: Mapping[str, bytes] | None = None,
    *,
    store: Store | str | Path | None = None,
    id: str | None = None,  # noqa: A002 - the word users know
    max_fan_in: int | None = None,
    resources: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
    flow: Any = None,
) -> Run:
    """Store a workflow for the coordinator of the store to run, and return its handle.

    Args:
        max_fan_in: Cut dependencies of tasks with more than this many into batches (facts: jobq 14).
        resources: As in `Flow.run`.
    """
    settings, opened = _open(store)
    spec = with_resources(spec, resources) if resources is not None else spec
    _put_payloads(opened, payloads)
    workflow_id = check_workflow_id(id) if id is not None else new_workflow_id()
    return _submitted(opened, settings, spec, workflow_id, max_fan_in, flow)


def submit_many(
    flows: Iterable[Flow | WorkflowSpec],
    *,
    store: Store | str | Path | None = None,
    ids: Iterable[str] | None = None,
    max_fan_in: int | None = None,
) -> list[Run]:
    """Store many workflows for the coordinator of the store to run, some at a time; their handles in the same order.

    Code and data that they share are stored once. All of them are checked before the first is stored.

    Args:
        flows: Traced workflows, or definitions.
        store: As in `Flow.submit`.
        ids: One for each flow; random ones by default.
        max_fan_in: As in `Flow.submit`.

    Raises `UsageError` if ids are missing or named twice. If storing one fails (`WorkflowExists`, `BackendError`), its
    error is raised once the others have been tried: those stay, and `dagkit.runs()` lists them.
    """
    wanted = list(flows)
    names = [new_workflow_id() for _ in wanted] if ids is None else [check_workflow_id(one) for one in ids]
    if len(names) != len(wanted) or len(set(names)) != len(names):
        raise UsageError(f"{len(wanted)} flows need as many ids, each another; there are {len(set(names))}")
    specs = [(one, None) if isinstance(one, WorkflowSpec) else (one.spec, one) for one in wanted]
    settings, opened = _open(store)
    _put_payloads(opened, {digest: data for _, flow in specs if flow for digest, data in flow.payloads.items()})

    def store_one(place: int) -> Run:
        spec, flow = specs[place]
        return _submitted(opened, settings, spec, names[place], max_fan_in, flow)

    with ThreadPoolExecutor(_SUBMITTED_AT_A_TIME, "dagkit-submit") as pool:
        futures = [pool.submit(store_one, place) for place in range(len(specs))]
    return [future.result() for future in futures]


def _submitted(
    store: Store, settings: Settings, spec: WorkflowSpec, workflow_id: str, max_fan_in: int | None, flow: Any
) -> Run:
    if max_fan_in is not None:
        spec = fan_in.split(spec, max_fan_in)
    state = WorkflowState.create(spec, workflow_id, store.now())
    keep_cached(state, store, store.now())
    store.create(workflow_id, _definition(spec, workflow_id, None), state.document())
    return Run(store, workflow_id, settings, flow=flow, spec=spec)


def attach(id: str, store: Store | str | Path | None = None, *, drive: bool = True) -> Run:  # noqa: A002 - the word users know
    """The handle on a run that was started elsewhere or earlier.

    A run that some process had driven itself and that nobody drives any more (its kernel died) goes on in this process;
    `drive=False` only looks. `UnknownRun` if the store has no such run.
    """
    settings, opened = _open(store)
    run = Run(opened, id, settings)
    over = RunStatus(run.row().status).is_over
    if drive and not over and run.driver.is_embedded() and not run.driver.is_driven():
        run.driver.take_over()
    return run


def runs(store: Store | str | Path | None = None, *, status: str | None = None, limit: int | None = 50) -> tables.Table:
    """The runs of a store, most recently updated first, as a table."""
    _, opened = _open(store)
    wanted = None if status is None else [RunStatus(status)]
    return tables.runs_table(opened.rows(wanted, limit))


def new_workflow_id() -> str:
    """32 lower-case hex digits (facts: jobq 1.2)."""
    return uuid.uuid4().hex


def _open(store: Store | str | Path | None) -> tuple[Settings, Store]:
    if store is None or isinstance(store, (str, Path)):
        settings = load_settings(store=None if store is None else str(store))
        settings.configure_logging()
        return settings, settings.open_store()
    settings = load_settings(store=store.url)
    settings.configure_logging()
    return settings, store


def _stored(store: Store, workflow_id: str) -> StoredRun | None:
    try:
        return store.load(workflow_id)
    except UnknownRun:
        return None


def _take_up(
    store: Store, found: StoredRun, spec: WorkflowSpec, workflow_id: str, driver: dict[str, str], resume: bool
) -> None:
    """Prepare a run that nobody drives to go on, with the definition as it is now."""
    old = WorkflowSpec.from_definition(found.definition)
    is_over = RunStatus(found.state["workflow_state"]).is_over
    if not resume and (is_over or not _same_work(found, spec)):
        raise WorkflowExists(workflow_id, f"it is {found.state['workflow_state']}")
    carried = carried_over(old, found.state, spec)
    document = {**found.state, "workflow_state": "pending", "cancel_requested": False, "error": None, "tasks": carried}
    state = WorkflowState.load(spec, document)
    keep_cached(state, store, store.now())
    store.clear_cancel(workflow_id)
    store.replace(workflow_id, _definition(spec, workflow_id, driver), state.document(), found.etag)


def _same_work(found: StoredRun, spec: WorkflowSpec) -> bool:
    """Whether a stored run does the work of `spec`; pickled code is compared by what it does, not by its bytes."""
    stored = WorkflowSpec.from_definition(found.definition)
    if [task.name for task in stored.tasks] != [task.name for task in spec.tasks]:
        return False
    known = identities(spec)
    return stored.to_dict() == spec.to_dict() or (None not in known and identities(stored) == known)


def _definition(spec: WorkflowSpec, workflow_id: str, driver: dict[str, str] | None) -> dict[str, Any]:
    document = spec.definition(workflow_id, datetime.now(timezone.utc).isoformat())
    return document if driver is None else {**document, "driver": driver}
