"""Draws a picture as a tree of lines for terminals: each box once, under the deepest of its parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dagkit.model.records import Counts
from dagkit.notebook.folding import levels_of
from dagkit.notebook.lettering import cells, clean, shorten
from dagkit.notebook.palette import GLYPHS, headline, present
from dagkit.notebook.picture import Box, Picture

__all__ = ["draw", "walk"]

_NAME_LIMIT, _WHEN_LIMIT = 40, 60
_PLAIN: Final = str.maketrans({"└": "`", "├": "|", "─": "-", "│": "|"})


def draw(
    picture: Picture,
    tallies: Sequence[Counts] | None = None,
    details: Mapping[str, str] | None = None,
    *,
    plain: bool = False,
) -> str:
    """The picture as lines without a trailing newline.

    Args:
        tallies: Counts of each box (`Picture.tally`); without them no states are shown.
        details: More words for a box, by box key or title.
        plain: Branches of ASCII characters, for terminals that have no others.
    """
    details = details or {}
    rows = []
    for index, branch, others in walk(picture):
        box, counts = picture.boxes[index], tallies[index] if tallies else None
        glyph = f"{GLYPHS[headline(counts)]} " if counts is not None else ""
        detail = details.get(box.key) or details.get(box.title) or ""
        branch = branch.translate(_PLAIN) if plain else branch
        rows.append(
            (f"{branch}{glyph}{shorten(box.title, _NAME_LIMIT)}", clean(box.queue), _notes(box, others, detail, counts))
        )
    first, second = (max((cells(row[k]) for row in rows), default=0) for k in (0, 1))
    lines = [f"{_padded(name, first)}  {_padded(queue, second)}  {notes}".rstrip() for name, queue, notes in rows]
    return "\n".join(
        [f"{shorten(picture.name, 60)}  {picture.total:,} task{'' if picture.total == 1 else 's'}", *lines]
    )


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _notes(box: Box, others: Sequence[str], detail: str, counts: Counts | None) -> str:
    tally = ""
    if counts is not None and len(box.members) > 1:
        tally = "  ".join(f"{GLYPHS[state]} {number:,}" for state, number in present(counts))
    also = ", ".join(shorten(name, 24) for name in others[:2]) + (
        f" and {len(others) - 2} more" if len(others) > 2 else ""
    )
    notes = [tally, detail, box.needs, shorten(box.when, _WHEN_LIMIT), f"also after {also}" if also else ""]
    return " · ".join(filter(None, notes))


def walk(picture: Picture) -> Iterator[tuple[int, str, list[str]]]:
    """(box, branch drawn before it, titles of its other parents), depth first, without recursion."""
    levels = levels_of(len(picture.boxes), picture.edges)
    parents: dict[int, list[int]] = {}
    for a, b in picture.edges:
        parents.setdefault(b, []).append(a)
    trunk = {b: max(found, key=lambda p: (levels[p], p)) for b, found in parents.items()}
    children: dict[int, list[int]] = {}
    for b, a in sorted(trunk.items()):
        children.setdefault(a, []).append(b)

    stack = [(i, "", "") for i in reversed(range(len(picture.boxes))) if i not in trunk]
    while stack:
        index, branch, margin = stack.pop()
        yield index, branch, [picture.boxes[p].title for p in parents.get(index, []) if p != trunk[index]]
        below = children.get(index, [])
        for child in reversed(below):
            is_last = child == below[-1]
            stack.append((child, margin + ("└─ " if is_last else "├─ "), margin + ("   " if is_last else "│  ")))
