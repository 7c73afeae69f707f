"""Writes a picture as a Mermaid flowchart, for pages that draw it themselves (GitHub, GitLab, mkdocs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dagkit.model.records import Counts
from dagkit.notebook.lettering import clean
from dagkit.notebook.palette import COLOURS, headline
from dagkit.notebook.picture import Box, Picture

__all__ = ["draw"]

_SPECIAL: Final = frozenset("#&<>\"'`\\{}[]()|;%$*_~:/@")


def draw(picture: Picture, tallies: Sequence[Counts] | None = None) -> str:
    """The picture as Mermaid text, ending with a newline."""
    lines = ["flowchart TD"]
    for i, box in enumerate(picture.boxes):
        counts = tallies[i] if tallies else None
        lines.append(f'  n{i}["{_label(box, counts)}"]')
    lines += [f"  n{a} --> n{b}" for a, b in picture.edges]
    conditional = [f"n{i}" for i, box in enumerate(picture.boxes) if box.when]
    if conditional:
        lines += ["  classDef conditional stroke-dasharray: 4 3", f"  class {','.join(conditional)} conditional"]
    for i, counts in enumerate(tallies or ()):
        lines.append(f"  style n{i} stroke:{COLOURS[headline(counts)]},stroke-width:2px")
    return "\n".join(lines) + "\n"


def _label(box: Box, counts: Counts | None) -> str:
    return "<br/>".join(_quoted(line) for line in box.lines(counts))


def _quoted(text: str) -> str:
    """Mermaid has no quoting for most characters, but takes any as a numeric entity: `#35;`."""
    return "".join(f"#{ord(c)};" if c in _SPECIAL else c for c in clean(text))
