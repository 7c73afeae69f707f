"""Completions of attempts that an executor has to put into words itself."""

from __future__ import annotations

from typing import Any

from dagkit.model.messages import Completion, TaskMessage
from dagkit.model.states import FailureKind

__all__ = ["completion", "failure", "mark_failed", "stop_text"]


def completion(
    message: TaskMessage,
    ref: str | None,
    error: str | None = None,
    kind: FailureKind | None = None,
    usage: dict[str, Any] | None = None,
) -> Completion:
    """The completion of a message's attempt; a success unless there is an error."""
    return Completion(
        message.workflow_id, message.task, error is None, ref, error, message.attempt, message.generation, kind, usage
    )


def failure(message: TaskMessage, text: str, kind: FailureKind, usage: dict[str, Any] | None = None) -> Completion:
    """A failure without an output."""
    return completion(message, None, text, kind, usage)


def mark_failed(done: Completion, text: str, kind: FailureKind) -> None:
    """Make it a failure for another reason than the one it was reported with."""
    done.success, done.error, done.kind = False, text, kind


def stop_text(message: TaskMessage, kind: FailureKind) -> str:
    """What is said of an attempt that was stopped."""
    if kind is FailureKind.MEMORY and message.resources:
        return f"held more than the {message.resources.get('memory')} of memory that it asked for"
    if kind is not FailureKind.TIMEOUT:
        return str(kind)
    if message.timeout_s is not None:
        return f"timed out after {message.timeout_s} s"
    asked = (message.resources or {}).get("runtime")
    return "timed out" if asked is None else f"timed out after the {asked} that it asked for"
