"""Plays the coordinator around a WorkflowState without threads, services or clocks: for case files and properties."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError, RunBusy
from dagkit.model.messages import Completion, Started, TaskMessage
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind

CASES = Path(__file__).parents[1] / "cases"


def cases(name: str) -> list[Any]:
    """The cases of a file in tests/cases, as pytest parameters by id."""
    import pytest

    loaded = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in loaded if "worker" not in case]


class Rehearsal:
    """One run under a coordinator that can die at the two moments that matter.

    Attributes:
        saved: What the store holds, kept by applying changes as a store would.
        dispatched: Names that the last step handed to the executor.
        sent: Every (attempt number, generation, message id) ever dispatched, by task.
    """

    def __init__(self, spec: WorkflowSpec, *, clock: str = "dispatch", workflow_id: str = "w") -> None:
        self.spec, self.workflow_id, self.now = spec, workflow_id, 1_000_000.0
        self._starts = (lambda queue: True) if clock == "start" else None
        self.blobs: dict[str, Any] = {}
        self.sent: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.dispatched: list[str] = []
        self.upstream: dict[str, dict[str, Any]] = {}
        self.ignored = 0
        self.state = WorkflowState.create(
            spec, workflow_id, self.now, read_output=self.read_output, starts_reported=self._starts
        )
        self.saved = self.state.document()
        self.state.take_changes()

    def read_output(self, ref: str) -> Any:
        if ref not in self.blobs:
            raise BackendError(f"{ref} is not there")
        return self.blobs[ref]

    def load(self) -> None:
        document = json.loads(json.dumps(self.saved))
        self.state = WorkflowState.load(self.spec, document, read_output=self.read_output, starts_reported=self._starts)

    def step(self, capacity: int | None = None, crash: str | None = None) -> None:
        """Dispatch, submit, save; or die before the save, or after it."""
        state = self.state
        state.expire(self.now)
        chosen = state.dispatch(self.now, None if capacity is None else (lambda queue: capacity))
        self.dispatched = [item.name for item in chosen]
        for item in chosen:
            message = TaskMessage(self.workflow_id, item.name, item.attempt, item.generation, item.queue, {})
            self.sent[item.name].append((item.attempt, item.generation, message.id))
            self.upstream[item.name] = {
                parent: None if ref is None else self.decode(ref) for parent, ref in state.upstream(item.index).items()
            }
        if crash != "before_save":
            self.save()

    def save(self) -> None:
        changes = self.state.take_changes()
        for _, name, entry in changes.tasks:
            if entry:
                self.saved["tasks"][name] = entry
            else:
                self.saved["tasks"].pop(name, None)
        self.saved = {**changes.head, "tasks": self.saved["tasks"]}

    def decode(self, ref: str) -> Any:
        if ref.startswith("blob:"):
            return self.blobs[ref]
        try:
            return json.loads(ref)
        except ValueError:
            return ref

    def complete(self, reports: list[dict[str, Any]]) -> None:
        """Apply the reports of a case; `ignored` counts those that changed nothing."""
        self.ignored = sum(not self.state.apply(self._completion(report), self.now) for report in reports)

    def _completion(self, report: dict[str, Any]) -> Completion:
        success = "ok" in report
        task = report["ok"] if success else report["fail"]
        attempt, generation = self._answers(task, report)
        kind = report.get("kind")
        return Completion(
            self.workflow_id,
            task,
            success,
            self._output(task, report),
            None if success else report.get("error"),
            attempt,
            generation,
            FailureKind(kind) if kind else None,
        )

    def _answers(self, task: str, report: dict[str, Any]) -> tuple[int | None, int | None]:
        if "attempt" in report:
            return (None if report["attempt"] == "none" else report["attempt"]), None
        if not self.sent[task]:
            return 1, 0
        attempt, generation, _ = self.sent[task][report.get("of", 0) - 1]
        return attempt, generation

    def _output(self, task: str, report: dict[str, Any]) -> str | None:
        if "text" in report:
            return str(report["text"])
        if "output" not in report:
            return None
        if not report.get("stored"):
            return json.dumps(report["output"])
        ref = f"blob:{self.workflow_id}/{task}.json"
        self.blobs[ref] = report["output"]
        return ref

    def start(self, task: str) -> None:
        attempt, generation, _ = self.sent[task][-1]
        assert self.state.started(Started(self.workflow_id, task, generation, attempt, self.now), self.now)

    # --- one step of a case

    def play(self, step: dict[str, Any]) -> dict[str, Any]:
        """Do what a case's step says; returns what a retry answered."""
        answer: dict[str, Any] = {}
        self.ignored, self.dispatched = 0, []
        do = step["do"]
        if do == "complete":
            self.complete(step["with"])
        elif do == "restart":
            self.load()
        elif do == "cancel":
            self.state.request_cancel(self.now)
        elif do in ("retry", "reset"):
            answer = self._retry()
        elif do == "advance":
            self.now += step["seconds"]
        elif do == "started":
            self.start(step["task"])
        elif do == "load":
            self._begin_from(step["state"])
        if do not in ("create", "reset", "started", "load"):
            self.step(step.get("capacity"), step.get("crash"))
        return answer

    def _retry(self) -> dict[str, Any]:
        try:
            counts = self.state.user_retry(self.now)
        except RunBusy as refusal:
            return {"refused": str(refusal)}
        return {"reset": counts.reset, "now_ready": counts.now_ready, "still_pending": counts.still_pending}

    def _begin_from(self, states: dict[str, Any]) -> None:
        tasks = {}
        for name, given in states.items():
            entry = {"state": given} if isinstance(given, str) else dict(given)
            was_dispatched = entry["state"] in ("running", "completed", "failed")
            output = entry.get("output")
            tasks[name] = {
                "state": entry["state"],
                "attempt_no": entry.get("attempt", int(was_dispatched)),
                "output_ref": None if output is None else json.dumps(output),
                "started_at": "1970-01-12T13:46:40+00:00" if was_dispatched else None,
            }
            if tasks[name]["attempt_no"]:
                self.sent[name].append((tasks[name]["attempt_no"], 0, f"w/{name}/{tasks[name]['attempt_no']}"))
        self.saved = {**self.saved, "workflow_state": "running", "tasks": tasks}
        self.load()
