"""The picture of a workflow as data for the live view: laid out once, coloured by what comes later."""

from __future__ import annotations

from typing import Any, Final

from dagkit.model.records import Counts
from dagkit.model.states import SEGMENT_ORDER, TaskState
from dagkit.notebook.layout import place
from dagkit.notebook.palette import COLOURS, GLYPHS, LOUDEST
from dagkit.notebook.picture import Box, Picture
from dagkit.notebook.svg import curve, set_cards

__all__ = ["scene", "vocabulary"]

#: Room for what is known later: how long the tasks take and how much memory.
_ROOM_FOR_ONE: Final = "0:00:00 · 00.0 GiB"
_ROOM_FOR_MANY: Final = "median 0:00 · 00.0 GiB"


def scene(picture: Picture) -> dict[str, Any]:
    """Boxes with their corners, sizes and words, and edges as SVG paths. At most about 300 boxes."""
    tallies = [Counts(pending=len(box.members)) for box in picture.boxes]
    rooms = {box.key: _ROOM_FOR_MANY if len(box.members) > 1 else _ROOM_FOR_ONE for box in picture.boxes}
    cards = set_cards(picture, tallies, rooms)
    layout = place([card.size for card in cards], picture.edges)
    boxes = [
        _box(box, card.title[2:], layout.corners[i], card.size)
        for i, (box, card) in enumerate(zip(picture.boxes, cards, strict=True))
    ]
    return {
        "name": picture.name,
        "width": round(layout.width, 1),
        "height": round(layout.height, 1),
        "boxes": boxes,
        "edges": [curve(points) for points in layout.routes.values()],
    }


def _box(box: Box, title: str, corner: tuple[float, float], size: tuple[float, float]) -> dict[str, Any]:
    return {
        "key": box.key,
        "title": title,
        "tasks": len(box.members),
        "first": box.members[0],
        "queue": box.lines()[1] if box.queue else "",
        "more": box.lines()[2 if box.queue else 1 :],
        "dashed": bool(box.when),
        "fold": box.is_fold,
        "at": [round(corner[0], 1), round(corner[1], 1), round(size[0], 1), round(size[1], 1)],
    }


def vocabulary() -> dict[str, Any]:
    """Words, glyphs and colours of the states, in the order of every bar, and which of them speaks for a group."""
    return {
        "states": [[state.value, state.words, GLYPHS[state], COLOURS[state]] for state in SEGMENT_ORDER],
        "loudest": [SEGMENT_ORDER.index(state) for state in LOUDEST],
        "pending": SEGMENT_ORDER.index(TaskState.PENDING),
    }
