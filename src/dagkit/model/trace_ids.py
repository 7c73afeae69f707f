"""Ids of OpenTelemetry spans. They follow from what a span is about, so that every process knows them unasked:
a coordinator that took over, a worker on another machine, a job that was submitted days ago."""

from __future__ import annotations

import hashlib

__all__ = ["TRACEPARENT", "attempt_span", "run_span", "task_span", "trace_id", "traceparent"]

#: The variable in which a task finds the span of its attempt (W3C Trace Context, as OpenTelemetry's tools read it).
TRACEPARENT = "TRACEPARENT"


def trace_id(workflow_id: str) -> int:
    """128 bits: one trace for each run."""
    return _number(16, "run", workflow_id)


def run_span(workflow_id: str, generation: int = 0) -> int:
    """A run that went on after a person's retry ends again, with another span."""
    return _number(8, "run", workflow_id, str(generation))


def task_span(workflow_id: str, task: str, generation: int) -> int:
    """A task that a person has had tried again has another span."""
    return _number(8, "task", workflow_id, task, str(generation))


def attempt_span(workflow_id: str, task: str, generation: int, attempt: int) -> int:
    return _number(8, "attempt", workflow_id, task, str(generation), str(attempt))


def traceparent(workflow_id: str, task: str, generation: int, attempt: int) -> str:
    """The context of an attempt, for what it calls."""
    span = attempt_span(workflow_id, task, generation, attempt)
    return f"00-{trace_id(workflow_id):032x}-{span:016x}-01"


def _number(size: int, *parts: str) -> int:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:size], "big") or 1  # zero is no id
