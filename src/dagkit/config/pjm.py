"""Settings of queues that are served by PJM, and the executor that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.settings import Option, parse_duration

if TYPE_CHECKING:
    from dagkit.executors.pjm.executor import PjmExecutor
    from dagkit.executors.pjm.request import PjmQueue
    from dagkit.executors.pjm.watch import Patience
    from dagkit.stores.base import Store

__all__ = ["PJM_OPTIONS", "PJM_SETTINGS", "make_pjm", "pjm_patience", "pjm_queue"]

#: Settings of the executor rather than of one queue.
_WIDE: Final = frozenset(("folder", "ledgers", "submit_workers"))
_TIMEOUTS: Final = ("pjstat_s", "pjsub_s", "pjdel_s")
_PATIENCE: Final = {
    "refill_s": "between two refills, and between two questions for the limits",
    "submit_interval_s": "between two calls of pjsub",
    "settle_s": "how long a submission without an answer may be missing from the list",
    "missing_s": "how long a job may be unknown to PJM before it is lost",
    "stop_s": "until a job that was deleted and is still there is deleted again",
    "retry_s": "until a queue that was paused is tried with one job",
    # The rest as for Slurm: look_s, most_look_s, grace_s, short_grace_s, files_s.
}
_SHARED_PATIENCE: Final = ("look_s", "most_look_s", "grace_s", "short_grace_s", "files_s")
_GATE: Final = {
    "safety_margin": "slots of each limit that are left to others",
    "max_active_jobs": "most of your own jobs in the queue",
    "target_active_jobs": "the same, for who would rather have fewer",
    "initial_submit_count": "size of the first refill",
    "max_submit_per_refill": "most jobs in one refill",
}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(character) < 32 for character in value):
        raise ValueError(f"{value!r:.60} is not a text of one line")
    return value.strip()


def _node(value: Any) -> str:
    return str(value) if type(value) is int else _text(value)


def _texts(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{value!r:.60} is not a list of texts")
    return tuple(items)


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not all(type(item) in (str, int) for item in value.values()):
        raise ValueError(f"{value!r:.60} is not a table of texts and numbers")
    return tuple((str(key).replace("_", "-"), str(item)) for key, item in value.items())


def _rsc_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((key.replace("-", "_"), item) for key, item in _pairs(value))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.60} is not a whole number")
    return value


def _mode(value: Any) -> str:
    if value not in ("single", "bulk", "auto"):
        raise ValueError(f"{value!r:.60} is none of single, bulk, auto")
    return str(value)


def _elapse(value: Any) -> float:
    from dagkit.model.resources import ResourceRequest, resource_faults

    faults = resource_faults({"runtime": value}, refs_allowed=False)
    if faults:
        raise ValueError("; ".join(fault for _, fault in faults))
    return float(ResourceRequest.of({"runtime": value}).runtime_s or 0)


def _option(name: str, parse: Callable[[Any], Any], about: str) -> Option:
    return Option(name, None, parse, (), about)


#: Options whose names Slurm has too must read the same values: a target may mix both.
PJM_OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        _option("rscgrp", _text, "the resource group of the jobs"),
        _option("rscunit", _text, "the resource unit, where there are several"),
        _option("group", _text, "the project that pays (pjsub -g)"),
        _option("node", _node, "nodes of a job, with a shape if wanted: 12, 2x3x2:torus"),
        _option("elapse", _elapse, "limit of a job: 2h, 01:30:00"),
        _option("gfscache", _texts, "volumes for PJM_LLIO_GFSCACHE"),
        _option("llio", _pairs, "options of pjsub --llio"),
        _option("mpi", _pairs, "options of pjsub --mpi: proc, max-proc-per-node, shape"),
        _option("rsc", _rsc_pairs, "further keys of pjsub -L: freq, eco_state"),
        _option("arguments", _texts, "further arguments of pjsub, as they are"),
        _option("mode", _mode, "single, bulk, or auto"),
        _option("group_size", _count, "most sub-jobs of one bulk job"),
        _option("template", _text, "file with a job script of your own"),
        _option("submit_workers", _count, "calls of pjsub at a time"),
        *(_option(name, parse_duration, about) for name, about in _PATIENCE.items()),
        *(_option(name, _count, about) for name, about in _GATE.items()),
        *(_option(name, parse_duration, "how long one call may take") for name in _TIMEOUTS),
    )
}

#: All settings of the kind, those included whose option stands with Slurm's.
PJM_SETTINGS: Final = (*PJM_OPTIONS, "setup", "python", "pack", "folder", "ledgers", *_SHARED_PATIENCE)


def pjm_queue(name: str, table: Mapping[str, Any]) -> PjmQueue:
    """What the table of a queue says, checked. `ConfigError` naming the key."""
    from dagkit.engine.gate import GateOptions
    from dagkit.executors.pjm.request import PjmQueue, checked_queue

    others = {*_WIDE, *_TIMEOUTS, *_PATIENCE, *_SHARED_PATIENCE, *_GATE, "elapse"}
    own = {key: value for key, value in table.items() if key not in others}
    gate = GateOptions(**{key: value for key, value in table.items() if key in _GATE})
    return checked_queue(name, PjmQueue(**own, elapse_s=table.get("elapse"), gate=gate))


def pjm_patience(table: Mapping[str, Any]) -> Patience:
    """How long the executor waits for what."""
    from dagkit.executors.pjm.watch import Patience

    return Patience(**{key: table[key] for key in (*_PATIENCE, *_SHARED_PATIENCE) if key in table})


def make_pjm(store: Store, queues: Mapping[str, Mapping[str, Any]], default: Mapping[str, Any] | None) -> PjmExecutor:
    """The executor for these queues. `ConfigError` where PJM cannot be reached."""
    from dagkit.executors.pjm.client import Client, Timeouts, check_installed
    from dagkit.executors.pjm.executor import PjmExecutor

    check_installed()
    tables = [*([default] if default is not None else []), *queues.values()]
    wide: dict[str, Any] = {}
    for table in reversed(tables):
        wide.update(table)
    folder, ledgers = wide.get("folder"), wide.get("ledgers")
    return PjmExecutor(
        store,
        folder=Path(folder).expanduser() if folder else _folder_for(store),
        queues={name: pjm_queue(name, table) for name, table in queues.items()},
        default=pjm_queue("default", default or {}),
        ledgers=Path(ledgers).expanduser() if ledgers else None,
        patience=pjm_patience(wide),
        client=Client(Timeouts(**{key: wide[key] for key in _TIMEOUTS if key in wide})),
        submit_workers=max(1, wide.get("submit_workers", 4)),
    )


def _folder_for(store: Store) -> Path:
    """Beside the runs of a store in a folder; in the home directory, which nodes share, for other stores."""
    scheme, _, place = store.url.partition(":")
    if scheme == "sqlite":
        return Path(place) / "pjm"
    return Path.home() / ".dagkit" / "pjm" / hashlib.sha256(store.url.encode()).hexdigest()[:16]
