"""Writes a picture in Graphviz' DOT language, and has `dot` lay it out where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from dagkit.errors import BackendError, UsageError
from dagkit.model.records import Counts
from dagkit.notebook.lettering import clean
from dagkit.notebook.palette import COLOURS, headline
from dagkit.notebook.picture import Box, Picture

__all__ = ["draw", "render"]

_LIMIT_S = 60
_WITHOUT = "leave --engine out: dagkit draws without it."


def draw(picture: Picture, tallies: Sequence[Counts] | None = None) -> str:
    """The picture as DOT text, ending with a newline."""
    lines = [
        f"digraph {_quoted(picture.name)} {{",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded", fontname="Helvetica", fontsize=11, color="#8b97a4"];',
        '  edge [color="#b9c2cc", arrowsize=0.6];',
    ]
    for i, box in enumerate(picture.boxes):
        lines.append(f"  n{i} [{_attributes(box, tallies[i] if tallies else None)}];")
    lines += [f"  n{a} -> n{b};" for a, b in picture.edges]
    return "\n".join([*lines, "}"]) + "\n"


def render(source: str, form: str = "svg") -> bytes:
    """What `dot -T<form>` makes of DOT text.

    Raises:
        UsageError: The `dot` program is not installed; nothing in dagkit needs it.
        BackendError: `dot` failed or took longer than a minute.
    """
    program = shutil.which("dot")
    if program is None:
        raise UsageError(f"the `dot` program is not installed. Install Graphviz, or {_WITHOUT}")
    command = [program, f"-T{form}"]
    try:
        done = subprocess.run(command, input=source.encode(), capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"dot did not finish within {_LIMIT_S} s; {_WITHOUT}") from error
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise BackendError(f"dot failed with exit code {done.returncode}: {reason}")
    return done.stdout


def _attributes(box: Box, counts: Counts | None) -> str:
    label = "\\n".join(_escaped(line) for line in box.lines(counts))
    parts = [f'label="{label}"']
    if box.when:
        parts.append('style="rounded,dashed"')
    if len(box.members) > 1:
        parts.append("peripheries=2")
    if counts is not None:
        parts.append(f'color="{COLOURS[headline(counts)]}"')
    return ", ".join(parts)


def _quoted(text: str) -> str:
    return '"' + _escaped(text) + '"'


def _escaped(text: str) -> str:
    """Safe within double quotes; a backslash would start an escape sequence such as `\\N`, the node's name."""
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')
