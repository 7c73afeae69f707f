"""Settings of queues that are served by Slurm, and the executor that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import ConfigError
from dagkit.settings import Option, parse_duration

if TYPE_CHECKING:
    from dagkit.executors.base import Executor
    from dagkit.executors.slurm.request import SlurmQueue
    from dagkit.stores.base import Store

__all__ = ["SLURM_OPTIONS", "make_slurm", "shared_by", "slurm_queue"]

#: Settings of the executor rather than of one queue.
_WIDE: Final = frozenset(
    ("folder", "ledgers", "collect_s", "look_s", "most_look_s", "grace_s", "short_grace_s", "gone_s", "settle_s")
) | {"files_s", "command_timeout_s"}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(character) < 32 for character in value):
        raise ValueError(f"{value!r:.60} is not a text of one line")
    return value.strip()


def _lines(value: Any) -> tuple[str, ...]:
    items = value.splitlines() if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{value!r:.60} is not a list of texts")
    return tuple(line for item in items for line in item.splitlines() if line.strip())


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r:.60} is not a whole number of at least 1")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.60} is neither true nor false")
    return value


def _options(value: Any) -> tuple[tuple[str, Any], ...]:
    from dagkit.executors.slurm.request import check_option

    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r:.60} is not a table of options of sbatch")
    for key, item in value.items():
        if not isinstance(item, (str, int, float, bool)) or (isinstance(item, str) and "\n" in item):
            raise ValueError(f"{key}: {item!r:.60} is no text, number or true")
    return tuple(sorted((check_option(key), item) for key, item in value.items()))


def _option(name: str, parse: Callable[[Any], Any], about: str) -> Option:
    return Option(name, None, parse, (), about)


SLURM_OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        _option("partition", _text, "the partition of the jobs"),
        _option("account", _text, "the account that they are charged to"),
        _option("qos", _text, "their quality of service"),
        _option("constraint", _text, "features that nodes must have"),
        _option("gres", _text, "generic resources, gpu:a100:1"),
        _option("setup", _lines, "lines of shell before Python starts"),
        _option("modules", _lines, "modules that are loaded, in order"),
        _option("container", _text, "a command that runs another in a container: apptainer exec --nv image.sif"),
        _option("python", _text, "the interpreter in the job; default: the one that submits"),
        _option("srun", _switch, "start the processes of a job with srun"),
        _option("pack", _count, "how many short tasks of one kind share a job"),
        _option("submit_limit", _count, "how many jobs you may have in the queue"),
        _option("max_array", _count, "largest number of elements in an array"),
        _option("parallelism", _count, "how many elements of an array run at a time"),
        _option("requeue", _switch, "let Slurm run a job again after a preemption"),
        _option("notice_s", parse_duration, "how long before its time limit a task is told of it"),
        _option("sbatch", _options, "further options of sbatch by their long names"),
        _option("folder", _text, "where jobs find their tasks; on a file system that the nodes share"),
        _option("ledgers", _text, "where submissions are written down; on a local disk"),
        _option("collect_s", parse_duration, "how long to wait for more tasks to become ready for an array"),
        _option("look_s", parse_duration, "shortest time between looks at the scheduler"),
        _option("most_look_s", parse_duration, "longest time between looks while nothing changes"),
        _option("grace_s", parse_duration, "how long a completion may take to appear after its job has ended"),
        _option("short_grace_s", parse_duration, "the same after a job that was killed"),
        _option("gone_s", parse_duration, "how long a job may be unknown to Slurm before it is lost"),
        _option("settle_s", parse_duration, "how long a submission without an answer may be missing from the list"),
        _option("files_s", parse_duration, "longest time between looks at the folder of completions"),
        _option("command_timeout_s", parse_duration, "how long one command of Slurm may take"),
    )
}


def shared_by(settings: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """What queues must have in common to be served by one executor."""
    return tuple((name, value) for name, value in settings if name in _WIDE)


def slurm_queue(table: Mapping[str, Any]) -> SlurmQueue:
    """What one queue is on the cluster, from its settings."""
    from dagkit.executors.slurm.request import SlurmQueue

    return SlurmQueue(**{name: value for name, value in table.items() if name not in _WIDE})


def make_slurm(store: Store, queues: Mapping[str, Mapping[str, Any]], default: Mapping[str, Any] | None) -> Executor:
    """The executor for these queues. `ConfigError` where Slurm cannot be reached, `MissingExtra` without submitit."""
    from dagkit.executors.slurm.commands import Commands
    from dagkit.executors.slurm.executor import SlurmExecutor
    from dagkit.executors.slurm.script import check_installed
    from dagkit.executors.slurm.watch import Patience

    check_installed()
    if store.url.startswith("memory:"):
        raise ConfigError("jobs of Slurm cannot open a store in memory: choose one in a folder that the nodes share")
    tables = [*queues.values(), *([default] if default is not None else [])]
    wide = {name: value for name, value in tables[0].items() if name in _WIDE}
    folder, ledgers = wide.pop("folder", None), wide.pop("ledgers", None)
    command_timeout_s = wide.pop("command_timeout_s", 30.0)
    return SlurmExecutor(
        store,
        folder=Path(folder).expanduser() if folder else _folder_for(store),
        queues={name: slurm_queue(table) for name, table in queues.items()},
        default=slurm_queue(default or {}),
        ledgers=Path(ledgers).expanduser() if ledgers else None,
        patience=Patience(**wide),
        commands=Commands(command_timeout_s),
    )


def _folder_for(store: Store) -> Path:
    """Beside the runs of a store in a folder; in the home directory, which nodes share, for other stores."""
    scheme, _, place = store.url.partition(":")
    if scheme == "sqlite":
        return Path(place) / "slurm"
    return Path.home() / ".dagkit" / "slurm" / hashlib.sha256(store.url.encode()).hexdigest()[:16]
