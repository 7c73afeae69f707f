"""Spans of runs, tasks and attempts, and what processes that run tasks know of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dagkit.coordinator import Coordinator, Pace
from dagkit.coordinator.spans import Spans
from dagkit.engine.state import WorkflowState
from dagkit.model import trace_ids
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import FailureKind, RunStatus
from dagkit.testing import FakeExecutor, MemoryStore

QUICK = Pace(idle_sleep_s=0.01, cancel_poll_interval_s=0.01, close_grace_s=0.2)


class Bench:
    """A coordinator that is stepped by hand, with the spans that it reported."""

    def __init__(self, *tasks: dict[str, Any]) -> None:
        self.store, self.executor, self.exporter = MemoryStore(), FakeExecutor(), InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        spec = WorkflowSpec.from_dict({"name": "flow", "tasks": list(tasks)})
        state = WorkflowState.create(spec, "w", self.store.now())
        created = datetime.now(timezone.utc).isoformat()
        self.store.create("w", spec.definition("w", created), state.document())
        self.begin()

    def begin(self) -> None:
        spans = Spans(self.provider)
        self.coordinator = Coordinator(self.store, lambda queue: self.executor, pace=QUICK, spans=spans)
        self.outcome = self.coordinator.drive("w")

    def step_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "the coordinator did not get there"
            self.coordinator.step(0.001)

    def until_running(self, task: str, attempt: int = 1) -> None:
        self.step_until(lambda: any((m.task, m.attempt) == (task, attempt) for m in self.executor.running.values()))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def close(self) -> None:
        self.coordinator.close()
        self.provider.shutdown()
        self.store.close()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*tasks: dict[str, Any]) -> Bench:
        made.append(Bench(*tasks))
        return made[-1]

    yield make
    for one in made:
        one.close()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_run_holds_its_tasks_and_they_their_attempts(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a-0", "template": "a", "num_retries": 1})
    flow.until_running("a-0")
    flow.executor.fail("a-0", "no\nTraceback", FailureKind.USER)
    flow.until_running("a-0", 2)
    flow.executor.succeed("a-0")
    flow.step_until(flow.outcome.done)

    (run,), (task,) = flow.spans("flow"), flow.spans("a")
    first, second = flow.spans("a attempt")
    assert parent_of(run) is None
    assert parent_of(task) == run.context.span_id
    assert [parent_of(first), parent_of(second)] == [task.context.span_id] * 2
    assert len({span.context.trace_id for span in (run, task, first, second)}) == 1
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "no")
    assert first.attributes["dagkit.failure"] == "user"
    assert (second.attributes["dagkit.attempt"], second.attributes["dagkit.task"]) == (2, "a-0")
    assert (task.attributes["dagkit.attempts"], task.attributes["dagkit.state"]) == (2, "completed")
    assert (run.attributes["dagkit.status"], run.attributes["dagkit.tasks.completed"]) == ("completed", 1)
    assert run.start_time <= task.start_time <= first.start_time <= first.end_time <= task.end_time <= run.end_time


def test_the_context_of_an_attempt_is_known_before_its_span_is_made(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a"})
    flow.until_running("a")
    told = trace_ids.traceparent("w", "a", 0, 1)
    flow.executor.succeed("a")
    flow.step_until(flow.outcome.done)

    (attempt,) = flow.spans("a attempt")
    assert told == f"00-{attempt.context.trace_id:032x}-{attempt.context.span_id:016x}-01"


def test_a_coordinator_that_takes_over_goes_on_with_the_same_trace(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a"}, {"name": "b", "depends_on": ["a"]})
    flow.until_running("a")
    flow.executor.succeed("a")
    flow.until_running("b")
    flow.coordinator.close()
    flow.begin()
    flow.step_until(lambda: "b" in flow.executor.tasks_running())
    flow.executor.succeed("b")
    flow.step_until(flow.outcome.done)

    (run,), (a,), (b,) = flow.spans("flow"), flow.spans("a"), flow.spans("b")
    assert parent_of(a) == parent_of(b) == run.context.span_id
    assert a.context.trace_id == b.context.trace_id


def test_a_duplicate_of_a_completion_is_no_second_span(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a"}, {"name": "b"})
    flow.until_running("b")
    done = flow.executor.succeed("a")
    flow.executor.repeat([done])
    flow.executor.succeed("b")
    flow.step_until(flow.outcome.done)
    assert len(flow.spans("a attempt")) == 1


def test_a_timeout_ends_the_attempt(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a", "timeout_s": 1})
    flow.step_until(flow.outcome.done)
    (attempt,) = flow.spans("a attempt")
    assert (attempt.attributes["dagkit.failure"], attempt.status.status_code) == ("timeout", StatusCode.ERROR)


def test_a_run_that_goes_on_after_a_retry_ends_with_another_span(bench: Callable[..., Bench]) -> None:
    flow = bench({"name": "a"})
    flow.until_running("a")
    flow.executor.fail("a")
    flow.step_until(flow.outcome.done)
    stored = flow.store.load("w")
    state = WorkflowState.load(WorkflowSpec.from_definition(stored.definition), stored.state)
    state.user_retry(flow.store.now())
    flow.store.save("w", state.take_changes(), stored.etag)
    flow.coordinator.close()
    flow.begin()
    flow.until_running("a")
    flow.executor.succeed("a")
    flow.step_until(flow.outcome.done)

    assert flow.outcome.result() is RunStatus.COMPLETED
    first, second = flow.spans("flow")
    assert parent_of(second) == first.context.span_id
    assert len({span.context.span_id for span in flow.exporter.get_finished_spans()}) == 6


# --- as users switch it on

SCRIPT = """
import os
from dagkit import shell, task, workflow

@task
def inner():
    from opentelemetry import trace
    found = trace.get_current_span().get_span_context()
    return f"{os.environ['TRACEPARENT']} {found.trace_id:032x}-{found.span_id:016x}"

@workflow
def flow():
    return inner(), shell("echo $TRACEPARENT > $JOBQ_OUTPUT_FILE.x; mv $JOBQ_OUTPUT_FILE.x out", name="told")()

if __name__ == "__main__":
    run = flow().run(progress=False, id="w")
    print("RESULT", run["inner"])
"""


def run_script(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "DAGKIT_"))}
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_switched_on_in_dagkit_toml_tasks_find_the_span_of_their_attempt(tmp_path: Path) -> None:
    tmp_path.joinpath("dagkit.toml").write_text("tracing = true\n")
    done = run_script(tmp_path, OTEL_TRACES_EXPORTER="console")

    assert done.returncode == 0, done.stderr
    told = trace_ids.traceparent("w", "inner", 0, 1)
    assert f"RESULT {told} {told[3:-3]}\n" in done.stdout
    assert tmp_path.joinpath("out").read_text().strip() == trace_ids.traceparent("w", "told", 0, 1)
    assert f'"span_id": "0x{told[36:52]}"' in done.stdout


def test_an_exporter_that_is_not_installed_is_one_clear_error(tmp_path: Path) -> None:
    done = run_script(tmp_path, DAGKIT_TRACING="1", OTEL_TRACES_EXPORTER="nowhere")
    assert "no exporter 'nowhere' is installed" in done.stderr.splitlines()[-1]


def test_without_the_setting_nothing_is_told_and_nothing_imported(tmp_path: Path) -> None:
    code = SCRIPT.replace("os.environ['TRACEPARENT']", "os.environ.get('TRACEPARENT')")
    tmp_path.joinpath("script.py").write_text(code + "    import sys\n    print('opentelemetry.sdk' in sys.modules)\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert "RESULT None " in done.stdout
    assert done.stdout.endswith("False\n")
