"""OpenTelemetry spans of runs, tasks and attempts. Imported only where they are wanted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, cast

from dagkit.engine.state import Dispatch, WorkflowState
from dagkit.errors import ConfigError, MissingExtra
from dagkit.model.messages import Completion
from dagkit.model.states import TERMINAL
from dagkit.model.trace_ids import attempt_span, run_span, task_span, trace_id

try:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtra("opentelemetry-sdk", "otel", "tracing") from error

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["Spans", "configured_provider"]

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_USAGE: Final = {
    "host": "host.name",
    "pid": "process.pid",
    "exit_code": "process.exit.code",
    "signal": "dagkit.signal",
    "cpu_s": "dagkit.cpu_s",
    "peak_rss_bytes": "dagkit.peak_rss_bytes",
}


class _GivenIds(IdGenerator):
    """Gives the next span the ids that were set before."""

    trace = span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Spans:
    """Reports what has ended as spans: one for the run, below it one for each task, below that its attempts.

    A span is made when what it is about has ended, with the times of its beginning and end. What a coordinator that
    died had dispatched begins, for its successor, when it began executing. Used by the coordinator's thread only.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._ids = _GivenIds()
        self._tracer = cast(Any, provider.get_tracer("dagkit"))
        self._tracer.id_generator = self._ids
        self._first: dict[tuple[str, str, int], float] = {}
        self._last: dict[tuple[str, str, int], float] = {}

    def dispatched(self, workflow_id: str, items: Iterable[Dispatch], now: float) -> None:
        """These attempts were handed to an executor."""
        for item in items:
            key = (workflow_id, item.name, item.generation)
            self._last[key] = now
            self._first.setdefault(key, now)

    def ended(self, state: WorkflowState, completion: Completion, now: float) -> None:
        """An attempt has ended, and `state` knows; with it, perhaps, its task."""
        task, index = completion.task, state.index[completion.task]
        entry = state.entry(index)
        run, generation = completion.workflow_id, entry.get("generation", 0)
        attempt = entry["attempt_no"] if completion.attempt is None else completion.attempt
        key = (run, task, generation)
        usage = completion.usage or {}
        handed_over = self._last.pop(key, now)
        began = usage.get("started_at", handed_over)
        ended = began + usage["wall_s"] if "wall_s" in usage else now
        template = state.spec.tasks[index].template or task
        said = {
            "dagkit.run": run,
            "dagkit.task": task,
            "dagkit.queue": state.queue_of(index),
            "dagkit.attempt": attempt,
            "dagkit.waited_s": max(0.0, began - handed_over),
            **{name: usage[key] for key, name in _USAGE.items() if key in usage},
        }
        if completion.kind is not None:
            said["dagkit.failure"] = completion.kind.value
        error = None if completion.success else (completion.error or "failed").partition("\n")[0]
        span, parent = attempt_span(run, task, generation, attempt), task_span(run, task, generation)
        self._report(f"{template} attempt", run, span, parent, began, max(began, ended), said, error)
        if state.state_of(index) in TERMINAL:
            first = min(self._first.pop(key, began), began)
            self._task_ended(state, index, run, generation, first, max(first, ended, now))

    def _task_ended(
        self, state: WorkflowState, index: int, run: str, generation: int, began: float, ended: float
    ) -> None:
        task, entry = state.spec.tasks[index], state.entry(index)
        said = {
            "dagkit.run": run,
            "dagkit.task": task.name,
            "dagkit.state": state.state_of(index).value,
            "dagkit.attempts": entry["attempt_no"],
        }
        error = (entry.get("error") or "").partition("\n")[0] if entry["state"] != "completed" else None
        span = task_span(run, task.name, generation)
        self._report(task.template or task.name, run, span, run_span(run), began, ended, said, error)

    def run_ended(self, state: WorkflowState, began: float, now: float) -> None:
        """The run is over, and that is saved."""
        counts = {f"dagkit.tasks.{name}": number for name, number in state.counts.grouped().items()}
        said = {"dagkit.run": state.workflow_id, "dagkit.status": state.status.value, **counts}
        run = state.workflow_id
        error = None if state.status.value == "completed" else state.status.value
        again = max(state.entry(task).get("generation", 0) for task in range(len(state.names)))
        parent = run_span(run) if again else None
        self._report(state.spec.name, run, run_span(run, again), parent, began, max(began, now), said, error)
        for known in (self._first, self._last):
            for key in [key for key in known if key[0] == run]:
                del known[key]

    def _report(
        self,
        name: str,
        run: str,
        span_id: int,
        parent_id: int | None,
        began: float,
        ended: float,
        said: Mapping[str, Any],
        error: str | None,
    ) -> None:
        self._ids.trace, self._ids.span = trace_id(run), span_id
        parent = _context(run, parent_id)
        span = self._tracer.start_span(name, context=parent, attributes=said, start_time=int(began * 1e9))
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_time=int(ended * 1e9))


def _context(run: str, span_id: int | None) -> Context:
    """What a span is below; of a root nothing, whatever surrounds this thread."""
    if span_id is None:
        return trace.set_span_in_context(trace.INVALID_SPAN)
    known = SpanContext(trace_id(run), span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(known))


def configured_provider() -> TracerProvider:
    """What the program has set up, else what the variables of OpenTelemetry say (`OTEL_TRACES_EXPORTER`, ...).

    `ConfigError` if the exporter is not installed.
    """
    current = trace.get_tracer_provider()
    if isinstance(current, TracerProvider):
        return current
    if not isinstance(current, trace.ProxyTracerProvider):
        raise ConfigError(f"tracing needs a TracerProvider of opentelemetry-sdk; this process has {current!r:.100}")
    name = os.environ.get(_EXPORTER) or "otlp"
    provider = TracerProvider(resource=Resource.create(_service()))
    if name != "none":
        found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
        if not found:
            raise ConfigError(
                f"tracing: no exporter {name!r} is installed. Run: pip install opentelemetry-exporter-otlp, set "
                f"{_EXPORTER} to another (console), or set up a TracerProvider before the run."
            )
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    trace.set_tracer_provider(provider)
    return provider


def _service() -> dict[str, Any]:
    return {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "dagkit"}
