"""Runs of random workflows under a coordinator that crashes and an executor that repeats and reorders itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dagkit.engine import fan_in
from dagkit.engine.state import Dispatch, WorkflowState
from dagkit.errors import DefinitionError, RunBusy
from dagkit.model.condition import Condition
from dagkit.model.messages import Completion
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FAILED_STATES, SATISFIED, TERMINAL, FailureKind, TaskState

START = 1_000_000.0
WORKFLOW_ID = "w"
OUTPUTS = [None, "true", "false", '{"x": 1}', '{"x": -1}', "not json", "blob:w/a.json", "blob:w/b.json"]
BLOBS = {"blob:w/a.json": {"x": 1}, "blob:w/b.json": {"x": -5}}
CONDITIONS = ["{0}", "{0}.x > 0", "{0}.x > 0 or {1}", "{0} and {1}.x > 0", 'any(inputs["*"])', 'all(inputs["*"].x > 0)']
Op = tuple[Any, ...]


MIXED, WIDE, WAITING = "mixed", "wide", "waiting"


@st.composite
def specs(draw: st.DrawFn) -> WorkflowSpec:
    """Any small workflow, in any order of definition; many have wide fan-ins in batches, or conditions that wait."""
    flavour = draw(st.sampled_from([MIXED, WIDE, WAITING]))
    n = draw(st.integers(1 if flavour == MIXED else 3, 7))
    tasks = [_task(draw, number, flavour) for number in range(n)]
    data = {
        "name": "w",
        "tasks": draw(st.permutations(tasks)),
        "max_parallelism": draw(st.none() | st.integers(1, 3)),
        "result_policy": draw(st.sampled_from(["all_tasks_succeed", "all_sinks_succeed"])),
        "fail_fast": draw(st.sampled_from([False, False, True])),
        "concurrency": draw(st.sampled_from([{}, {"T": 1}, {"T": 2, "t1": 1}])),
    }
    spec = WorkflowSpec.from_dict(data)
    if flavour == WIDE:
        with suppress(DefinitionError):  # the order of some depends_on contradicts the graph
            spec = fan_in.split(spec, 2)
    return spec


def _task(draw: st.DrawFn, number: int, flavour: str) -> dict[str, Any]:
    earlier = [f"t{other}" for other in range(number)]
    parents = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4)) if earlier else []
    if flavour != MIXED and number >= 2 and draw(st.booleans()):
        parents = draw(st.permutations(earlier))[:5]
    task: dict[str, Any] = {
        "name": f"t{number}",
        "depends_on": parents,
        "num_retries": draw(st.integers(0, 2)),
        "queue": draw(st.sampled_from(["a", "b"])),
        "priority": draw(st.sampled_from([0, 0, 5])),
        "template": draw(st.sampled_from([None, "T"])),
        "timeout_s": draw(st.sampled_from([None, None, 30])),
        "retry_delay_s": draw(st.sampled_from([None, None, 7, (0, 20)])),
        "resource_scales": draw(st.sampled_from([None, {"memory": 2}])),
    }
    if task["resource_scales"]:
        task["resources"] = {"memory": "1G"}
    if parents:
        policies: list[str | int] = ["all", "any", "all_settled", draw(st.integers(1, len(parents)))]
        task["dep_policy"] = draw(st.sampled_from(policies if flavour != WAITING else ["any", 1, "all_settled"]))
        if draw(st.booleans()) and not (flavour == WIDE and len(parents) > 2):
            names = [f'inputs["{draw(st.sampled_from(parents))}"]' for _ in range(2)]
            task["condition"] = draw(st.sampled_from(CONDITIONS)).format(*names)
    return {key: value for key, value in task.items() if value is not None}


def read_output(ref: str) -> Any:
    return BLOBS[ref]


class Simulation:
    """One run: what the coordinator holds, what the store holds, and the executor's attempts.

    Attributes:
        ops: Everything that happened, to be replayed.
        saved: The state document as the changes left it in the store.
        answers: What the executor says of each attempt it was ever given; always the same.
    """

    def __init__(self, spec: WorkflowSpec, on_dispatch: Callable[[Dispatch], None] | None = None) -> None:
        self.spec, self.now, self.ops = spec, START, list[Op]()
        self.state = WorkflowState.create(spec, WORKFLOW_ID, START, read_output=read_output)
        self.saved: dict[str, Any] = json.loads(json.dumps(self.state.document()))
        self.state.take_changes()
        self.reloads = False
        self.in_flight: dict[tuple[str, int, int], Dispatch] = {}
        self.unsaved: list[Completion] = []
        self.old: list[Completion] = []
        self.counted: dict[tuple[str, int, int | None], int] = {}
        self.counted_when_saved: dict[tuple[str, int, int | None], int] = {}
        self._on_dispatch = on_dispatch or (lambda item: None)

    def run(self, op: Op) -> None:
        self.ops.append(op)
        getattr(self, op[0])(*op[1:])

    def replayed(self, reloads: bool) -> Simulation:
        """The same facts given to a new state, which is loaded anew after every save if `reloads`."""
        twin = Simulation(self.spec)
        twin.reloads = reloads
        for op in self.ops:
            twin.run(op)
        return twin

    # --- what may happen

    def deliver(self, completions: list[Completion]) -> None:
        for completion in completions:
            self.unsaved.append(completion)
            self.in_flight.pop((completion.task, completion.generation or 0, completion.attempt or 0), None)
            if self.state.apply(completion, self.now):
                key = (completion.task, completion.generation or 0, completion.attempt)
                self.counted[key] = self.counted.get(key, 0) + 1

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def step(self, capacity: int | None, refused: int, crashes: bool) -> None:
        for key in self.state.expire(self.now):
            self.in_flight.pop((key.task, key.generation, key.attempt), None)
        chosen = self.state.dispatch(self.now, None if capacity is None else {"a": capacity, "b": capacity})
        for item in chosen:
            self._on_dispatch(item)
        taken = chosen[: len(chosen) - refused] if refused else chosen
        self.state.undo(chosen[len(taken) :])
        for item in taken:
            self.in_flight[item.name, item.generation, item.attempt] = item
        if crashes:
            self._reload()
            self.counted = dict(self.counted_when_saved)
            self.old += self.unsaved
            again, self.unsaved = self.unsaved, []
            self.deliver(again)
        else:
            self.save()

    def save(self) -> None:
        changes = self.state.take_changes()
        for _, name, entry in changes.tasks:
            self.saved["tasks"].pop(name, None)
            if entry:
                self.saved["tasks"][name] = json.loads(json.dumps(entry))
        self.saved = {**changes.head, "tasks": self.saved["tasks"]}
        self.old += self.unsaved
        self.unsaved = []
        self.counted_when_saved = dict(self.counted)
        self.mirrored = changes.document
        if self.reloads:
            self._reload()

    def cancel(self) -> None:
        self.state.request_cancel(self.now)

    def retry(self, names: list[str] | None) -> None:
        try:
            self.state.user_retry(self.now, names)
        except RunBusy:
            return
        self.counted.clear()

    def rerun(self, names: list[str]) -> None:
        try:
            self.state.rerun(names, self.now)
        except RunBusy:
            return
        self.counted.clear()

    def keep(self, outputs: dict[int, str | None]) -> None:
        self.state.keep(outputs, self.now)

    def _reload(self) -> None:
        document = json.loads(json.dumps(self.saved))
        self.state = WorkflowState.load(self.spec, document, read_output=read_output)

    # --- what has to hold

    def check_counters(self) -> None:
        """Every cached number equals a recount, and nobody waits for something that has been decided."""
        state = self.state
        merges = {i for i, task in enumerate(self.spec.tasks) if task.name.startswith("__")}
        states = [state.state_of(i) for i in range(len(state.names))]
        for kind in TaskState:
            assert state.counts.of(kind) == sum(s is kind and i not in merges for i, s in enumerate(states))
        for task in range(len(states)):
            parents = [states[p] for p in state._shape.parents[task]]
            satisfied, failed = sum(p in SATISFIED for p in parents), sum(p in FAILED_STATES for p in parents)
            entry = state.entry(task)
            assert entry.get("completed_parents", 0) == satisfied
            assert entry.get("failed_parents", 0) == failed
        assert state.is_over == all(s in TERMINAL for i, s in enumerate(states) if i not in merges)

    def policy_holds(self, name: str) -> bool:
        """By the words of facts: jobq, section 4, from the states of the parents as they are now."""
        task = self.state.index[name]
        parents = [self.state.state_of(p) for p in self.state._shape.parents[task]]
        c, f, n = sum(p in SATISFIED for p in parents), sum(p in FAILED_STATES for p in parents), len(parents)
        policy = self.spec.tasks[task].dep_policy
        if not n:
            return True
        if policy == "all_settled":
            return c + f == n and c >= 1
        return c >= (n if policy == "all" else 1 if policy == "any" else int(policy))

    def condition_holds(self, name: str) -> bool:
        task = self.state.index[name]
        text = self.spec.tasks[task].condition
        if text is None:
            return True
        inputs: dict[str, Any] = {}
        pending = []
        for parent in self.state._shape.parents[task]:
            state, ref = self.state.state_of(parent), self.state.output_ref(parent)
            if state not in TERMINAL:
                pending.append(self.state.names[parent])
            else:
                has = ref is not None and state in (TaskState.COMPLETED, TaskState.FAILED)
                inputs[self.state.names[parent]] = _decoded(ref) if has and ref is not None else None
        return Condition.parse(text, None).evaluate(inputs, pending).value is True

    def barriers_are_open(self, name: str) -> bool:
        """Every task of an earlier batch of every wide fan-in that this task belongs to has ended."""
        index = self.state.index
        for above in self.spec.tasks[index[name]].depends_on:
            if above.startswith("__"):
                members = [m for m in self.spec.tasks[index[above]].depends_on if not m.startswith("__")]
                if any(self.state.state_of(index[member]) not in TERMINAL for member in members):
                    return False
        return True

    # --- how an executor answers

    def completion(self, item: Dispatch, success: bool, output: str | None, kind: FailureKind | None) -> Completion:
        error = None if success else "boom\nTraceback"
        return Completion(
            WORKFLOW_ID, item.name, success, output, error, item.attempt, item.generation, None if success else kind
        )


def without_generation(completion: Completion) -> Completion:
    """As a worker that knows no generations reports it."""
    return replace(completion, generation=None)


def _decoded(ref: str) -> Any:
    if ref.startswith("blob:"):
        return BLOBS[ref]
    try:
        return json.loads(ref)
    except ValueError:
        return ref
