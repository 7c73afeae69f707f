"""Workflows to draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.states import TaskState

Build = Callable[..., WorkflowSpec]


@pytest.fixture(scope="session")
def build() -> Build:
    """A workflow from rows of (name, dependencies) or (name, dependencies, fields)."""

    def make(*rows: tuple, name: str = "drawn") -> WorkflowSpec:
        tasks = [TaskSpec(name=row[0], depends_on=tuple(row[1]), **(row[2] if len(row) > 2 else {})) for row in rows]
        return WorkflowSpec(name=name, tasks=tuple(tasks), default_queue="cpu")

    return make


@pytest.fixture(scope="session")
def sweep(build: Build) -> WorkflowSpec:
    """The workflow of the reference picture: a map of 128, a partial join, a condition."""
    train = [(f"train-{i}", ["featurize"], {"queue": "gpu-a100", "template": "train"}) for i in range(128)]
    return build(
        ("featurize", []),
        ("split", ["featurize"]),
        *train,
        ("compare", [name for name, *_ in train], {"dep_policy": 100}),
        ("deploy", ["compare"], {"condition": "inputs.compare.mae < 0.1"}),
        ("report", ["compare", "split"]),
        name="sweep",
    )


@pytest.fixture(scope="session")
def sweep_states(sweep: WorkflowSpec) -> dict[str, TaskState]:
    """The sweep under way: 90 trained, 2 failed, 8 running, 5 ready, the rest pending."""
    states = {"featurize": TaskState.COMPLETED, "split": TaskState.COMPLETED}
    for count, state in ((90, "completed"), (2, "failed"), (8, "running"), (5, "ready"), (23, "pending")):
        names = [task.name for task in sweep.tasks[2:130] if task.name not in states]
        states.update(dict.fromkeys(names[:count], TaskState(state)))
    return states


@pytest.fixture(scope="session")
def chain() -> Callable[[int], WorkflowSpec]:
    def make(length: int, template: str | None = "step") -> WorkflowSpec:
        tasks = [
            TaskSpec.trusted(f"step-{i}", depends_on=(f"step-{i - 1}",) if i else (), template=template)
            for i in range(length)
        ]
        return WorkflowSpec.trusted("chain", tasks)

    return make


@pytest.fixture(scope="session")
def lattice() -> Callable[[int, int], WorkflowSpec]:
    def make(levels: int, width: int) -> WorkflowSpec:
        tasks = [
            TaskSpec.trusted(
                f"cell-{level}-{at}",
                depends_on=tuple(f"cell-{level - 1}-{(at + step) % width}" for step in range(10)) if level else (),
                template="cell",
            )
            for level in range(levels)
            for at in range(width)
        ]
        return WorkflowSpec.trusted("lattice", tasks)

    return make
