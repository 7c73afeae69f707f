"""Drives bulk jobs: registers them, submits what there is room for, follows what runs, and says how it ended."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.bulk.jobs import (
    BulkJob,
    BulkStatus,
    CommandProfile,
    ExecutionProfile,
    HpcProfile,
    command_of,
    fingerprint_of,
)
from dagkit.bulk.places import Places
from dagkit.bulk.registry import Record, Registry
from dagkit.config import Settings, load_settings
from dagkit.errors import BackendError, UsageError
from dagkit.executors.base import Executor
from dagkit.executors.pjm.names import job_name
from dagkit.model.messages import AttemptKey, Completion, Started, TaskMessage
from dagkit.model.resources import ResourceRequest
from dagkit.model.states import FailureKind
from dagkit.stores import open_store

__all__ = ["BulkRunner", "Tick"]

log = logging.getLogger("dagkit.bulk")

_RUN: Final = "bulk"
_OUTPUTS_S: Final = 90.0
_OFFERED: Final = 5000
#: Ends that cost no attempt, and how many of each (facts: pjm 9).
_SPARED: Final = {FailureKind.NODE: 3, FailureKind.PREEMPTED: 100, FailureKind.LOST: 1}
_GROWN: Final = {FailureKind.TIMEOUT: "runtime", FailureKind.MEMORY: "memory"}
_STATES: Final = {
    "": BulkStatus.SUBMITTED,
    **dict.fromkeys(("ACC", "QUE", "HLD"), BulkStatus.QUEUED),
    **dict.fromkeys(("RNA", "RNP", "RUN", "RNE", "RNO", "SPP", "SPD", "RSM"), BulkStatus.RUNNING),
}


@dataclass(frozen=True, slots=True)
class Tick:
    """What one step has done."""

    submitted: int
    ended: int


class BulkRunner:
    """Bulk jobs of one registry. One thread's; a context manager.

    Args:
        registry: The SQLite file; what the jobs need besides is kept beside it.
        command, execution, hpc: For jobs that do not bring their own.
        settings: Of dagkit; default: what dagkit.toml and the environment say.
    """

    def __init__(
        self,
        command: CommandProfile | Sequence[str],
        *,
        registry: str | Path,
        execution: ExecutionProfile | None = None,
        hpc: HpcProfile | None = None,
        settings: Settings | None = None,
    ) -> None:
        command = command if isinstance(command, CommandProfile) else CommandProfile(command)
        self.command, self.execution, self.hpc = command, execution or ExecutionProfile(), hpc or HpcProfile()
        path = Path(registry).absolute()
        self._registry = Registry(path)
        self._folder = path.with_suffix(".files")
        self._store = open_store(self._folder / "store")
        self._places = Places(self._store, settings or load_settings())
        self._by_name = {record.name: record for record in self._registry.records.values()}
        self._is_recovered: set[int] = set()
        self._changed: dict[str, Record] = {}
        self._saved: list[tuple[Executor, Completion]] = []
        self._began: dict[str, float] = {}

    def __enter__(self) -> BulkRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop driving. Jobs of a scheduler go on; those of this machine are stopped, and pending the next time."""
        self._places.close()
        self._registry.close()
        self._store.close()

    # --- what is to run

    def register(self, jobs: Iterable[BulkJob]) -> int:
        """Make jobs known; returns how many are new or are to run again because what would run has changed.

        May be called at any time, with the same jobs again too. `UsageError` for a key that is given twice with
        different jobs, or whose former job still runs; `RunBusy` if another process drives the registry.
        """
        self._registry.lock()
        self._by_name = {record.name: record for record in self._registry.records.values()}
        fresh: dict[str, Record] = {}
        for job in jobs:
            record = self._record(job)
            former = fresh.get(job.job_key) or self._registry.records.get(job.job_key)
            if former is not None and former.fingerprint == record.fingerprint:
                self._update(former, record)
                continue
            if job.job_key in fresh:
                raise UsageError(f"job_key {job.job_key!r} is given to two different jobs")
            if former is not None:
                if former.status.is_active:
                    raise UsageError(
                        f"job_key {job.job_key!r} is {former.status.value} with another command or other arguments: "
                        f"cancel it first, or give the new job another key"
                    )
                record.generation = former.generation + 1
            fresh[job.job_key] = record
        self._registry.records.update(fresh)
        self._by_name.update({record.name: record for record in fresh.values()})
        self._registry.save(fresh.values())
        return len(fresh)

    def _update(self, former: Record, record: Record) -> None:
        """What may change without a new run, as long as it has not begun."""
        record_queue = record.queue
        former.stage, former.wave, former.target = record.stage, record.wave, record.target
        former.priority, former.max_submits = record.priority, record.max_submits
        former.queue = record_queue
        if not former.status.is_active and not former.attempt:
            former.resources = record.resources
        self._changed[former.job_key] = former

    def _record(self, job: BulkJob) -> Record:
        execution, hpc = job.execution_profile or self.execution, job.hpc_profile or self.hpc
        name = job_name(job.job_key)
        manifest = self._folder / "manifests" / name.rpartition(".")[2][:2] / f"{name}.json"
        known = self._registry.records.get(job.job_key)
        fingerprint = fingerprint_of(self.command, execution, job)
        if known is None or known.fingerprint != fingerprint or not manifest.exists():
            manifest.parent.mkdir(parents=True, exist_ok=True)
            arguments = dict(job.command_args) if isinstance(job.command_args, Mapping) else list(job.command_args)
            manifest.write_text(json.dumps({"job_key": job.job_key, "command_args": arguments}, default=str))
        variables = {"DAGKIT_BULK_MANIFEST": str(manifest), "DAGKIT_BULK_KEY": job.job_key}
        variables |= {"QCSC_BULK_MANIFEST": str(manifest), "QCSC_BULK_MANIFEST_DIR": str(manifest.parent)}
        return Record(
            job.job_key,
            fingerprint,
            name,
            stage=job.stage_id,
            wave=job.wave_id,
            target=job.target_id,
            priority=job.priority,
            queue=self._places.queue_of(hpc),
            cmd=command_of(self.command, job),
            cwd=str(Path(job.work_dir).absolute()),
            env={**variables, **execution.env},
            resources=dict(execution.resources),
            outputs=list(job.expected_outputs),
            max_submits=job.max_submit_attempts,
        )

    # --- the step

    def tick(self, wait_s: float = 0.0) -> Tick:
        """One step: take in what happened, submit what there is room for. Waits at most `wait_s` for something to
        happen. `RunBusy` if another process drives the registry."""
        self._registry.lock()
        self._recover()
        ended = 0
        executors = self._places.made
        for executor in executors:
            for report in self._poll(executor, wait_s / len(executors)):
                ended += self._take(executor, report)
        ended += self._check_outputs()
        self._expire()
        self._note_states()
        submitted = self._submit()
        self._registry.save(self._changed.values())
        self._acknowledge()
        self._changed.clear()
        return Tick(submitted, ended)

    def _poll(self, executor: Executor, wait_s: float) -> Sequence[Completion | Started]:
        try:
            return executor.poll(wait_s)
        except BackendError as error:
            log.warning("%s: %s", executor.name, error)
            return []

    def _recover(self) -> None:
        """Find again what was active when a former process ended."""
        active: dict[int, tuple[Executor, list[Record]]] = {}
        for record in self._registry.records.values():
            if record.status.is_active:
                executor = self._executor(record)
                if executor is not None and id(executor) not in self._is_recovered:
                    active.setdefault(id(executor), (executor, []))[1].append(record)
        for executor in self._places.made:
            self._is_recovered.add(id(executor))
        for executor, records in active.values():
            for lost in executor.recover([self._message(record) for record in records]):
                record = self._by_name[lost.task]  # it ended with a process of ours: that costs it nothing
                record.submits -= 1
                self._set(record, BulkStatus.PENDING)

    def _executor(self, record: Record) -> Executor | None:
        try:
            return self._places.of(record.queue)
        except KeyError:  # registered by a former process with a profile that nobody has named here yet
            return None

    def _message(self, record: Record) -> TaskMessage:
        kwargs = {"cmd": record.cmd, "cwd": record.cwd, "env": record.env}
        return TaskMessage(
            _RUN,
            record.name,
            record.attempt,
            record.generation,
            record.queue,
            kwargs,
            template=record.stage or "bulk",
            resources=record.resources or None,
            priority=record.priority,
        )

    def _submit(self) -> int:
        waiting = [
            record
            for record in self._registry.records.values()
            if record.status in (BulkStatus.PENDING, BulkStatus.SUBMIT_DEFERRED)
        ]
        waiting.sort(key=lambda record: -record.priority)
        groups: dict[int, tuple[Executor, list[Record]]] = {}
        for record in waiting:
            executor = self._executor(record)
            if executor is not None:
                groups.setdefault(id(executor), (executor, []))[1].append(record)
        return sum(self._submit_to(executor, records) for executor, records in groups.values())

    def _submit_to(self, executor: Executor, records: Sequence[Record]) -> int:
        room = executor.capacity()
        self._is_recovered.add(id(executor))
        if room == 0:
            return 0
        offered = list(records[: _OFFERED if room is None else room])
        for record in offered:
            record.attempt += 1
            self._prepare(record)
        # Written down before they are handed over, so that none of them is forgotten if this process is killed.
        for record in offered:
            record.status = BulkStatus.SUBMITTED
        self._registry.save(offered)
        try:
            taken = executor.submit([self._message(record) for record in offered])
        except BackendError as error:
            log.warning("%s: %s", executor.name, error)
            taken = 0
        for record in offered[taken:]:
            record.attempt -= 1
            record.status = BulkStatus.SUBMIT_DEFERRED
            self._changed[record.job_key] = record
        for record in offered[:taken]:
            record.submits += 1
            record.reason = ""
            self._changed[record.job_key] = record
        return taken

    def _prepare(self, record: Record) -> None:
        folder = Path(record.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        record.before = {}
        for name in record.outputs:
            found = _stamp(folder / name)
            if found is not None:
                record.before[name] = found

    # --- what happened

    def _take(self, executor: Executor, report: Completion | Started) -> int:
        record = self._by_name.get(report.task)
        if isinstance(report, Started):
            if record is not None and record.status.is_active:
                self._began[record.name] = time.monotonic()
                self._set(record, BulkStatus.RUNNING)
            return 0
        self._began.pop(report.task, None)
        self._saved.append((executor, report))
        if record is None or (record.generation, record.attempt) != (report.generation, report.attempt):
            return 0
        if not record.status.is_active:
            return 0
        if not report.success:
            return self._failed(record, report)
        if record.outputs:
            record.ended_at = time.time()
            self._changed[record.job_key] = record
            return 0
        self._set(record, BulkStatus.SUCCEEDED)
        return 1

    def _acknowledge(self) -> None:
        saved, self._saved = self._saved, []
        by_executor: dict[int, tuple[Executor, list[Completion]]] = {}
        for executor, report in saved:
            by_executor.setdefault(id(executor), (executor, []))[1].append(report)
        for executor, reports in by_executor.values():
            executor.acknowledge(reports)

    def _failed(self, record: Record, report: Completion) -> int:
        kind, text = report.kind or FailureKind.USER, (report.error or "").partition("\n")[0]
        record.reason = f"{kind}: {text}"
        if kind is FailureKind.CANCELLED:
            self._set(record, BulkStatus.CANCELLED)
            return 1
        if kind in _SPARED and record.spared.get(kind.value, 0) < _SPARED[kind]:
            record.spared[kind.value] = record.spared.get(kind.value, 0) + 1
            self._set(record, BulkStatus.PENDING)
            return 0
        grown = _GROWN.get(kind)
        if grown is not None and record.submits < record.max_submits and _grow(record.resources, grown):
            self._set(record, BulkStatus.PENDING)
            return 0
        self._set(record, BulkStatus.FAILED)
        return 1

    def _expire(self) -> None:
        """Stop what runs longer here than it asked for; schedulers do that themselves."""
        now = time.monotonic()
        for name, began in list(self._began.items()):
            record = self._by_name[name]
            executor, runtime_s = self._executor(record), ResourceRequest.of(record.resources).runtime_s
            if executor is None or runtime_s is None or getattr(executor, "lives_on", False):
                del self._began[name]
            elif now - began > runtime_s:
                del self._began[name]
                executor.cancel([self._message(record).key], FailureKind.TIMEOUT)

    def _check_outputs(self) -> int:
        ended = 0
        for record in self._registry.records.values():
            if record.ended_at is None or not record.status.is_active:
                continue
            missing = [name for name in record.outputs if not self._is_new(record, name)]
            if missing and time.time() - record.ended_at < self._outputs_s(record):
                continue
            record.ended_at = None
            record.reason = f"user: ended well, but did not write {', '.join(missing)}" if missing else ""
            self._set(record, BulkStatus.FAILED if missing else BulkStatus.SUCCEEDED)
            ended += 1
        return ended

    def _outputs_s(self, record: Record) -> float:
        executor = self._executor(record)
        return _OUTPUTS_S if getattr(executor, "lives_on", False) else 0.0

    @staticmethod
    def _is_new(record: Record, name: str) -> bool:
        found = _stamp(Path(record.cwd) / name)
        return found is not None and found != record.before.get(name)

    def _note_states(self) -> None:
        for executor in self._places.made:
            states: Callable[[], dict[AttemptKey, str]] | None = getattr(executor, "states", None)
            for key, word in (states() if states is not None else {}).items():
                record = self._by_name.get(key.task)
                if record is not None and record.status.is_active and record.ended_at is None:
                    self._set(record, _STATES.get(word, BulkStatus.UNKNOWN))

    def _set(self, record: Record, status: BulkStatus) -> None:
        if record.status is not status:
            record.status = status
            self._changed[record.job_key] = record
        if status.is_over or status is BulkStatus.PENDING:
            record.ended_at = None
            self._changed[record.job_key] = record

    # --- questions

    def records(self, stage: str | None = None) -> list[Record]:
        """What is known of the jobs, of one stage or of all."""
        return [one for one in self._registry.records.values() if stage is None or one.stage == stage]

    def status_counts(self, stage: str | None = None) -> dict[BulkStatus, int]:
        """Jobs by status."""
        return dict(Counter(record.status for record in self.records(stage)))

    def all_submitted(self, stage: str | None = None) -> bool:
        """Whether no job waits to be submitted."""
        waiting = (BulkStatus.PENDING, BulkStatus.SUBMIT_DEFERRED)
        return all(record.status not in waiting for record in self.records(stage))

    def is_wave_ready(self, wave: str) -> bool:
        """Whether the wave has jobs and all of them have succeeded."""
        return wave in self.ready_waves()

    def ready_waves(self) -> list[str]:
        """Waves whose jobs have all succeeded."""
        waves: dict[str, bool] = {}
        for record in self.records():
            if record.wave is not None:
                waves[record.wave] = waves.get(record.wave, True) and record.status is BulkStatus.SUCCEEDED
        return sorted(wave for wave, is_ready in waves.items() if is_ready)

    def problems(self) -> list[str]:
        """What keeps work from going on, for people."""
        return [text for executor in self._places.made for text in getattr(executor, "problems", list)()]

    @property
    def is_stuck(self) -> bool:
        """Whether nothing more happens before somebody changes something."""
        return any(getattr(executor, "is_stuck", False) for executor in self._places.made)

    # --- changes

    def reset(self, keys: Iterable[str] | None = None, *, stage: str | None = None) -> int:
        """Make jobs that are over run again: these, those of a stage, or all that failed or were cancelled."""
        self._registry.lock()
        chosen = self._chosen(keys, stage)
        if keys is None:
            chosen = [one for one in chosen if one.status in (BulkStatus.FAILED, BulkStatus.CANCELLED)]
        chosen = [record for record in chosen if record.status.is_over]
        for record in chosen:
            record.generation, record.attempt, record.submits = record.generation + 1, 0, 0
            record.spared, record.status, record.reason = {}, BulkStatus.PENDING, ""
        self._registry.save(chosen)
        return len(chosen)

    def cancel(self, keys: Iterable[str] | None = None, *, stage: str | None = None) -> int:
        """Stop jobs: these, those of a stage, or all. What runs is CANCELLED once it is gone."""
        self._registry.lock()
        self._recover()
        chosen = [record for record in self._chosen(keys, stage) if not record.status.is_over]
        strange = [record for record in chosen if record.status.is_active and self._executor(record) is None]
        if strange:
            raise UsageError(
                f"job_key {strange[0].job_key!r} is active where this runner has no profile for: register it"
            )
        for record in chosen:
            executor = self._executor(record) if record.status.is_active else None
            if executor is None:
                record.status, record.reason = BulkStatus.CANCELLED, "cancelled before it was submitted"
            else:
                executor.cancel([self._message(record).key], FailureKind.CANCELLED)
        self._registry.save(chosen)
        return len(chosen)

    def _chosen(self, keys: Iterable[str] | None, stage: str | None) -> list[Record]:
        if keys is None:
            return self.records(stage)
        wanted = list(keys)
        unknown = [key for key in wanted if key not in self._registry.records]
        if unknown:
            raise UsageError(f"no job has the key {unknown[0]!r}")
        return [self._registry.records[key] for key in wanted]


def _grow(resources: dict[str, Any], name: str) -> bool:
    """Ask for half as much again; False where nothing was asked for."""
    request = ResourceRequest.of(resources)
    before = request.runtime_s if name == "runtime" else request.memory_bytes
    if before is None:
        return False
    resources[name] = int(before * 1.5 + 0.999)
    return True


def _stamp(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]
