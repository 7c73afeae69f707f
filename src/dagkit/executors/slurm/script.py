"""The script of a job, made by submitit with the options that a request names."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dagkit.errors import ConfigError, MissingExtra
from dagkit.executors.slurm.request import Request

__all__ = ["check_installed", "job_name", "script_of"]

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.+-]+", re.ASCII)
_NAME_LIMIT: Final = 60


def check_installed() -> None:
    """`MissingExtra` without submitit, `ConfigError` where there is no Slurm."""
    _submitit_executor(Path())
    for command in ("sbatch", "squeue", "scancel"):
        if shutil.which(command) is None:
            raise ConfigError(
                f"{command} is not on PATH: run dagkit on a machine from which Slurm can be reached, a login node"
            )


def job_name(template: str, submission: str) -> str:
    """A name that no other submission has, and that a person recognizes: `fit.1f3a9c`."""
    plain = _NOT_IN_NAMES.sub("-", template)[:_NAME_LIMIT]
    return f"{plain if plain[:1].isalpha() else f't{plain}'}.{submission}"


def script_of(request: Request, name: str, folder: Path, count: int, arguments: Sequence[str]) -> str:
    """The text that sbatch is given for `count` jobs; `arguments` are those of the Python that they run.

    `ConfigError` for an option that submitit does not take, `MissingExtra` without submitit.
    """
    executor = _submitit_executor(folder)
    options = dict(request.options)
    known = {"partition", "account", "qos", "constraint", "gres", "time", "mem", "cpus-per-task", "nodes"}
    named = {key.replace("-", "_"): value for key, value in options.items() if key in known}
    others: dict[str, Any] = {key: value for key, value in options.items() if key not in known}
    others["signal"] = _signal(request)
    others.update(_logs(folder, count))
    others["requeue" if request.settings.requeue else "no-requeue"] = True
    try:
        executor.update_parameters(
            job_name=name,
            setup=_setup(request),
            use_srun=False,
            additional_parameters=others,
            array_parallelism=request.settings.parallelism or count,
            wckey=None,
            **{"time": None, "nodes": None, **named},
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"queue {request.queue}: {error}") from error
    if count > 1:
        executor.parameters["map_count"] = count
    return str(executor._make_submission_file_text(_command(request, arguments), name))


def _submitit_executor(folder: Path) -> Any:
    try:
        from submitit.slurm.slurm import SlurmExecutor
    except ImportError as error:
        raise MissingExtra("submitit", "slurm", "running tasks on Slurm") from error
    try:
        return SlurmExecutor(folder=folder)
    except RuntimeError as error:
        raise ConfigError(
            f"Slurm is not here ({error}). Run dagkit on a machine from which it can be reached, a login node"
        ) from error


def _logs(folder: Path, count: int) -> dict[str, str]:
    """submitit's own files; a percent sign in the folder is no pattern of sbatch's (sbatch(1), "filename pattern")."""
    stem = f"{str(folder).replace('%', '%%')}/{'%A_%a' if count > 1 else '%j'}_0_log"
    return {"output": f"{stem}.out", "error": f"{stem}.err"}


def _signal(request: Request) -> str:
    """`B:` sends it to the batch process, which is the job's Python; steps of srun are sent it without (sbatch(1))."""
    seconds = max(1, min(65535, round(request.settings.notice_s)))
    return f"{'' if request.srun else 'B:'}USR1@{seconds}"


def _setup(request: Request) -> list[str]:
    modules = [f"module load {shlex.quote(module)}" for module in request.settings.modules]
    return [*modules, *request.settings.setup]


def _command(request: Request, arguments: Sequence[str]) -> str:
    """`exec`: the signals of Slurm must reach Python, and not the shell around it."""
    settings = request.settings
    srun = ["srun", "--unbuffered", "--kill-on-bad-exit=1"] if request.srun else []
    container = shlex.split(settings.container) if settings.container else []
    return "exec " + shlex.join([*srun, *container, settings.python or sys.executable, *arguments])
