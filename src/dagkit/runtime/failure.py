"""The words for what went wrong inside a task."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import dagkit

__all__ = ["describe", "error_text", "kind_of", "signal_name"]

_OURS: Final = str(Path(dagkit.__file__).parent)
_MESSAGE_LIMIT: Final = 4_000
_TEXT_LIMIT: Final = 24_000
_FRAME_LIMIT: Final = 60


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; the number itself where the platform has no name for it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(error: BaseException) -> str:
    """`Type: message`, also for exceptions whose message cannot be made."""
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException as problem:  # the user's __str__ may raise anything, and must not hide the failure
        message = f"<its message cannot be shown: {type(problem).__name__}>"
    if len(message) > _MESSAGE_LIMIT:
        message = message[:_MESSAGE_LIMIT] + f"... ({len(message):,} characters)"
    return f"{name}: {message}" if message else name


def error_text(error: BaseException) -> str:
    """`Type: message` on the first line, then the traceback from the task's own first frame on."""
    summary = describe(error)
    first_line = next(iter(summary.splitlines()), summary)
    try:
        shown = traceback.TracebackException(
            type(error), error, _without_ours(error.__traceback__), limit=-_FRAME_LIMIT, compact=True
        )
        trace = "".join(shown.format())
    except BaseException:  # notes, causes and __repr__ are the user's code too
        trace = summary
    if len(trace) > _TEXT_LIMIT:
        trace = trace[: _TEXT_LIMIT // 2] + "\n  ...\n" + trace[-_TEXT_LIMIT // 2 :]
    return f"{first_line}\n{trace.rstrip()}"


def kind_of(error: BaseException) -> str:
    """The failure kind of an exception raised by a task."""
    return "memory" if isinstance(error, MemoryError) else "user"


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the leading frames of dagkit and of asyncio's runner; all of it if these are all."""
    step = trace
    while step is not None and _is_ours(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return step or trace


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS) or "/asyncio/" in filename
