"""The `.stats` file of a job that has ended, where pjsub was asked for one (facts: pjm 2.4, 6)."""

from __future__ import annotations

import json
from pathlib import Path

from dagkit.testing.pjm.lines import Cells, lines
from dagkit.testing.pjm.processes import base_name, substituted
from dagkit.testing.pjm.selecting import Chosen
from dagkit.testing.pjm.state import State, label
from dagkit.testing.pjm.views import records

__all__ = ["write_statistics"]

_BANNER = "Job Statistical Information"


def write_statistics(state: State, job: int, sub: int) -> None:
    """Write what `pjstat -s` would say, beside the job's outputs or where `--spath` says."""
    name, kind, directory, text = state.do("SELECT name, kind, directory, options FROM jobs WHERE job = ?", job)[0]
    options, shown = json.loads(text), label(job, sub, kind)
    given = options.get("spath", f"{base_name(name)}.{shown}.stats")
    which = [Chosen(shown, (job, job), None if sub < 0 else sub, max(sub, 0))]
    found = lines(state, which, everything=True)
    path = Path(directory) / substituted(given, name, job, shown, sub)
    path.write_text(f"{_BANNER}\n\n{records(found, Cells(state), state.now())}")
