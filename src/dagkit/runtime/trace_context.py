"""The span of an attempt as the current one of OpenTelemetry, for what the task's own code reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")


def within(traceparent: str, call: Callable[[], T]) -> T:
    """What `call` returns; spans that it makes are below the given one. Without OpenTelemetry it is just called."""
    try:
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return call()
    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        return call()
    finally:
        context.detach(token)
