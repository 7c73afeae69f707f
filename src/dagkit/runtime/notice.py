"""The notice that a task gets before it is stopped, and the folder in which it leaves its work to the next attempt."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from dagkit.model.names import path_name
from dagkit.runtime.environment import STORE, TASK, WORKFLOW_ID

__all__ = ["CHECKPOINTS", "TIME_LIMIT", "checkpoint_dir", "forget", "give", "on_preempt", "reason"]

Callback = Callable[[str], object]

TIME_LIMIT: Final = "time limit"
_STOPPED: Final = "stopped"
#: Folder for checkpoints where the store has none that tasks can write to.
CHECKPOINTS: Final = "DAGKIT_CHECKPOINTS"

_callbacks: list[Callback] = []
_given: str | None = None
_is_served = False


def on_preempt(callback: Callback) -> None:
    """Have `callback(reason)` called once when this task is about to be stopped.

    The reason is `"time limit"` (a minute before it, on Slurm) or `"stopped"` (preempted, cancelled, timed out; what is
    left is the time between SIGTERM and SIGKILL). It is called between two steps of the task's main thread, whatever
    they are: save what is needed, or set a flag. Returning lets the task go on until it is stopped for good.

    `ValueError` outside a task.
    """
    _needed(TASK)
    if not _is_served and not _callbacks:
        _listen()
    _callbacks.append(callback)


def checkpoint_dir() -> Path:
    """A folder that all attempts of this task in this run share, made if it is missing; deleted with the run.

    `ValueError` outside a task, or where no folder is shared: then the variable DAGKIT_CHECKPOINTS must name one.
    """
    workflow_id, task = _needed(WORKFLOW_ID), _needed(TASK)
    folder = _root() / path_name(workflow_id) / path_name(task)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _root() -> Path:
    if named := os.environ.get(CHECKPOINTS):
        return Path(named)
    scheme, _, place = os.environ.get(STORE, "").partition(":")
    if scheme == "sqlite" and place:
        return Path(place) / "checkpoints"
    raise ValueError(
        f"the store of this run has no folder for checkpoints ({scheme or 'none'}:). "
        f"Set {CHECKPOINTS} to a folder that every machine on which the task may run can write to."
    )


def _needed(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise ValueError(f"this works inside a task only: {variable} is not set")
    return value


# --- for the process that runs tasks


def serve() -> None:
    """This process runs tasks and gives them their notice itself."""
    global _is_served
    _is_served = True


def give(why: str = _STOPPED) -> None:
    """Tell the task that runs here, unless it has been told. What its callbacks raise goes to its log."""
    global _given
    if _given is not None:
        return
    _given = why
    for callback in list(_callbacks):
        try:
            callback(why)
        except Exception:  # the user's; the others are told too, and the task is stopped all the same
            traceback.print_exc(file=sys.stderr)


def reason() -> str | None:
    """What the task that runs here was told."""
    return _given


def forget() -> None:
    """The next task begins."""
    global _given
    if _callbacks or _given is not None:
        _callbacks.clear()
        _given = None


# --- for a script that a shell task starts


def _listen() -> None:
    """A script gets the signals itself."""
    signal.signal(signal.SIGTERM, _on_term)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, lambda number, frame: give(TIME_LIMIT))


def _on_term(number: int, frame: FrameType | None) -> None:
    give()
    raise SystemExit(128 + number)
