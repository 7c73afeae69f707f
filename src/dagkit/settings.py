"""Every setting there is: its name, its environment variables, its default and how a text becomes its value.

Names, variables and defaults are those of ai4s-jobq where it has them (facts: jobq, section 9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dagkit.errors import ConfigError

__all__ = ["CoordinatorSettings", "GeneralSettings", "Option", "WorkerSettings", "options_of", "parse_duration"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any) -> float:
    """Seconds from a number or from `2s`, `500ms`, `10m`, `1h`, `2d`; ValueError for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(
                f"{value!r} is not a duration; write seconds (30) or a number with a unit (2s, 500ms, 10m, 1h)"
            )
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{value!r} is not a duration that can be waited for")
    return seconds


def _positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError("must be more than 0 seconds")
    return seconds


def _count(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value.strip()):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _positive(value: Any) -> int:
    number = _count(value)
    if number == 0:
        raise ValueError("must be at least 1")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value.strip()


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def _lock_lost(value: Any) -> str:
    if value not in ("sigkill", "sigterm"):
        raise ValueError(f"{value!r} is neither sigkill nor sigterm")
    return str(value)


def _container(value: Any) -> str:
    account, slash, container = _text(value).rpartition("/")
    if not (slash and account and container):
        raise ValueError(f"{value!r} is not <account>/<container>")
    return f"{account}/{container}"


def _setting(default: Any, parse: Callable[[Any], Any], *env: str, about: str) -> Any:
    return field(default=default, metadata={"parse": parse, "env": env, "about": about})


@dataclass(frozen=True)
class GeneralSettings:
    """Where things are. The store has rules of its own and is no option of this table (`dagkit.config`)."""

    target: str = _setting("local", _text, "DAGKIT_TARGET", about="the target that runs use")
    slots: int | None = _setting(None, _positive, "DAGKIT_SLOTS", about="tasks at a time on this machine")
    python: str | None = _setting(None, _text, "DAGKIT_PYTHON", about="the interpreter that local tasks run in")
    queues: str | None = _setting(
        None, _text, "DAGKIT_QUEUES", "JOBQ_WORKFLOW_QUEUES", about="the service that carries the task queues"
    )
    tracing: bool = _setting(False, _switch, "DAGKIT_TRACING", about="report runs, tasks and attempts to OpenTelemetry")
    blobs: str | None = _setting(
        None, _container, "DAGKIT_BLOBS", "JOBQ_WORKFLOW_BLOBS", about="<account>/<container> for file outputs"
    )


@dataclass(frozen=True)
class WorkerSettings:
    """How a worker serves its queue; times in seconds."""

    slots: int = _setting(1, _positive, "DAGKIT_WORKER_SLOTS", about="tasks at a time")
    cancel_poll_s: float | None = _setting(
        None,
        _positive_duration,
        "JOBQ_CANCEL_POLL_INTERVAL",
        about="between looks at the cancel flag; default 30, or 2 where the store is on this machine",
    )
    kill_timeout_s: float = _setting(
        600.0, parse_duration, "JOBQ_KILL_TIMEOUT", about="from SIGTERM to SIGKILL; 0 = never"
    )
    grace_s: float = _setting(
        5.0, parse_duration, "DAGKIT_GRACE", about="what a task gets to finish when the worker is told to stop"
    )
    lock_s: float = _setting(60.0, _positive_duration, "DAGKIT_LOCK", about="how long a message is locked at a time")
    lock_lost: str = _setting(
        "sigkill", _lock_lost, "JOBQ_LOCK_LOST_BEHAVIOR", about="sigkill or sigterm for a task whose lock was lost"
    )
    max_idle_backoff_s: float | None = _setting(
        None,
        parse_duration,
        "JOBQ_MAX_IDLE_BACKOFF",
        about="longest pause between looks at an empty queue; default 30, or 0 where looking waits by itself",
    )
    idle_timeout_s: float | None = _setting(
        None, parse_duration, "DAGKIT_IDLE_TIMEOUT", about="stop after so long without a task"
    )
    preemption_timeout_s: float | None = _setting(
        None,
        _positive_duration,
        "JOBQ_PREEMPTION_TIMEOUT",
        about="after a SIGTERM, how long to wait for the machine to go away before taking work again; default: stop",
    )
    time_limit_s: float | None = _setting(
        None, _positive_duration, "JOBQ_TIME_LIMIT", about="take nothing new after so long, finish what runs, stop"
    )
    login_shell: bool = _setting(
        False, _switch, "JOBQ_USE_LOGIN_SHELL", about="run commands in a login shell, which reads the user's profile"
    )
    disable_scheduled_events: bool = _setting(
        False,
        _switch,
        "JOBQ_DISABLE_SCHEDULED_EVENTS",
        about="do not ask Azure whether this machine will be taken away",
    )
    completion_attempts: int = _setting(
        5, _count, "JOBQ_COMPLETION_SEND_MAX_ATTEMPTS", about="tries to report a completion; 0 = unlimited"
    )
    max_deliveries: int = _setting(
        10, _positive, "DAGKIT_MAX_DELIVERIES", about="how often a task may be started without ever ending"
    )
    max_failures: int = _setting(
        20, _count, "DAGKIT_MAX_FAILURES", about="stop after so many failures in a row; 0 = never"
    )


@dataclass(frozen=True)
class CoordinatorSettings:
    """How a coordinator works; times in seconds."""

    batch_size: int = _setting(
        32, _positive, "JOBQ_COMPLETION_BATCH_SIZE", "JOBQ_COORDINATOR_BATCH_SIZE", about="completions taken at a time"
    )
    visibility_timeout_s: float = _setting(
        60.0,
        _positive_duration,
        "JOBQ_COMPLETION_VISIBILITY_TIMEOUT_S",
        "JOBQ_COORDINATOR_VISIBILITY_TIMEOUT_S",
        about="how long a completion is locked",
    )
    idle_sleep_s: float = _setting(
        0.5, _positive_duration, "JOBQ_COORDINATOR_IDLE_SLEEP_S", about="longest wait when nothing happens"
    )
    cancel_poll_interval_s: float = _setting(
        1.0, _positive_duration, "JOBQ_COORDINATOR_CANCEL_POLL_INTERVAL_S", about="between looks at the cancel flags"
    )
    flush_retry_limit: int = _setting(
        2, _count, "JOBQ_COORDINATOR_FLUSH_RETRY_LIMIT", about="tries to save after a conflict"
    )
    ready_sweep_interval_s: float = _setting(
        60.0, _positive_duration, "JOBQ_COORDINATOR_READY_SWEEP_INTERVAL_S", about="between searches for unsent tasks"
    )
    ready_repair_threshold_s: float = _setting(
        300.0, parse_duration, "JOBQ_COORDINATOR_READY_REPAIR_THRESHOLD_S", about="age at which one is sent again"
    )
    running_timeout_s: float | None = _setting(
        None, _positive_duration, "JOBQ_COORDINATOR_RUNNING_TIMEOUT_S", about="limit for tasks that have none"
    )
    health: str | None = _setting(
        None, _text, "DAGKIT_COORDINATOR_HEALTH", about="PORT, HOST:PORT or file that says whether it is alive"
    )
    log_counters_s: float = _setting(
        60.0, parse_duration, "DAGKIT_COORDINATOR_LOG_COUNTERS", about="between log lines with its counters; 0 = never"
    )
    running_sweep_interval_s: float = _setting(
        60.0, _positive_duration, "JOBQ_COORDINATOR_RUNNING_SWEEP_INTERVAL_S", about="between checks of that limit"
    )


@dataclass(frozen=True)
class Option:
    """One setting: where it can be set and how its text is read."""

    name: str
    default: Any
    parse: Callable[[Any], Any]
    env: tuple[str, ...]
    about: str

    def read(self, value: Any, where: str) -> Any:
        """The value of the setting; `ConfigError` that says where it was found."""
        try:
            return self.parse(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None


def options_of(section: type[Any]) -> Mapping[str, Option]:
    """The settings of a section by name."""
    return {
        item.name: Option(item.name, item.default, item.metadata["parse"], item.metadata["env"], item.metadata["about"])
        for item in fields(section)
    }
