"""The states of tasks and runs, and the kinds of failure: the words shared by every layer.

The values are the words stored in state documents (facts: jobq, section 3) and shown to people.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["ACTIVE", "FAILED_STATES", "SATISFIED", "SEGMENT_ORDER", "TERMINAL", "FailureKind", "RunStatus", "TaskState"]


class TaskState(str, Enum):
    """Where one task of a run stands."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    __str__ = str.__str__

    @property
    def words(self) -> str:
        """The state as people read it: `upstream failed`."""
        return self.value.replace("_", " ")


class RunStatus(str, Enum):
    """Where a run stands; the last three are final until a user retries."""

    PENDING = "pending"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    __str__ = str.__str__

    @property
    def is_over(self) -> bool:
        return self in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class FailureKind(str, Enum):
    """Why an attempt did not succeed; retry policy reads this, never text."""

    USER = "user"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PREEMPTED = "preempted"
    NODE = "node"
    LOST = "lost"
    CANCELLED = "cancelled"
    CONFIG = "config"
    UNKNOWN = "unknown"

    __str__ = str.__str__

    @property
    def is_charged(self) -> bool:
        """Whether a failure of this kind uses up one of the task's retries."""
        return self not in (FailureKind.PREEMPTED, FailureKind.NODE, FailureKind.LOST)


ACTIVE: Final = frozenset({TaskState.PENDING, TaskState.READY, TaskState.RUNNING})
TERMINAL: Final = frozenset(TaskState) - ACTIVE
SATISFIED: Final = frozenset({TaskState.COMPLETED, TaskState.SKIPPED})
FAILED_STATES: Final = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED})

#: The order of segments in any bar and of columns in any table of counts.
SEGMENT_ORDER: Final = (
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.UPSTREAM_FAILED,
    TaskState.SKIPPED,
    TaskState.CANCELLED,
    TaskState.RUNNING,
    TaskState.READY,
    TaskState.PENDING,
)
