"""The script of a job: a template that people can see and replace. Nothing of a task is in it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from dagkit.errors import ConfigError
from dagkit.executors.pjm.request import Request

__all__ = ["DEFAULT_TEMPLATE", "arguments_of", "script_of"]

ENTRY: Final = "dagkit.executors.job"
DEFAULT_TEMPLATE: Final = """\
#!/bin/bash
# A job of dagkit. Resources are on the command line of pjsub; what the job runs is in the manifest beside this file.
exec >>{folder}/out.{index} 2>&1
{setup}
exec {command}
"""
_PLACES: Final = ("{folder}", "{index}", "{setup}", "{command}")


def script_of(request: Request, folder: Path, *, is_bulk: bool) -> str:
    """The text of a job's script; a sub-job of a bulk job finds its number in `PJM_BULKNUM`.

    In a template `{folder}`, `{index}`, `{setup}` and `{command}` are replaced, and nothing else is touched.
    `ConfigError` for a template without `{command}`, or one that cannot be read.
    """
    index = "PJM_BULKNUM" if is_bulk else "0"
    command = [request.settings.python or sys.executable, "-m", ENTRY, str(folder), index]
    values = {
        "{folder}": shlex.quote(str(folder)),
        "{index}": '"$PJM_BULKNUM"' if is_bulk else "0",
        "{setup}": "\n".join(request.settings.setup),
        "{command}": shlex.join(command),
    }
    text = _template(request)
    for place in _PLACES:
        text = text.replace(place, values[place])
    return text


def _template(request: Request) -> str:
    path = request.settings.template
    if path is None:
        return DEFAULT_TEMPLATE
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"queue {request.queue}: template {path}: cannot be read: {error}") from error
    if "{command}" not in text:
        raise ConfigError(
            f"queue {request.queue}: template {path}: has no {{command}}, where the tasks run. Start from the one that "
            f"`dagkit pjm dry-run --template` prints"
        )
    return text


def arguments_of(request: Request, name: str, folder: Path, subjobs: int | None) -> list[str]:
    """Arguments of pjsub before the script; `subjobs` of a bulk job, None for a single one."""
    bulk = [] if subjobs is None else ["--bulk", "--sparam", f"0-{subjobs - 1}"]
    return [*bulk, "-N", name, "-j", "-o", str(folder / "pjm.out"), *request.arguments()]
