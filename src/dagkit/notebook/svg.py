"""Draws a picture as one self-contained SVG, in light and dark.

Colours stand as attributes (light), so that the drawing survives viewers that strip `<style>`; the style sheet then
follows the theme of the front end where it says which one it has (JupyterLab, VS Code, Colab), else the system's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.notebook.layout import Layout, Point, place
from dagkit.notebook.lettering import pixels, shorten, xml
from dagkit.notebook.palette import COLOURS, GLYPHS, headline, present
from dagkit.notebook.picture import Box, Picture

__all__ = ["Card", "curve", "draw", "set_cards"]

_LIGHT: Final = {
    "ink": "#1f2933",
    "soft": "#6b7785",
    "hair": "#d9dee4",
    "bg": "#ffffff",
    "panel": "#f7f9fb",
    "edge": "#b9c2cc",
    "idle": "#9ca8b4",
    "pending": COLOURS[TaskState.PENDING],
}
_DARK: Final = {
    "ink": "#e6eaee",
    "soft": "#9aa5b1",
    "hair": "#39424c",
    "bg": "#15191d",
    "panel": "#1d2329",
    "edge": "#56616d",
    "idle": "#6b7785",
    "pending": "#4a545f",
}

_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_MARGIN, _PAD = 16.0, 12.0
_TITLE_PX, _SUB_PX = 12.0, 10.5
_MIN_WIDTH, _MAX_TITLE, _MAX_SUB = 120.0, 34, 44


def _style() -> str:
    def variables(theme: Mapping[str, str]) -> str:
        return "".join(f"--dk-{name}:{colour};" for name, colour in theme.items())

    dark, light = variables(_DARK), variables(_LIGHT)
    darks = '[data-jp-theme-light="false"] .dagkit-graph,.vscode-dark .dagkit-graph,html[theme="dark"] .dagkit-graph'
    lights = '[data-jp-theme-light="true"] .dagkit-graph,.vscode-light .dagkit-graph,html[theme="light"] .dagkit-graph'
    rules = "".join(f".dk-{name}{{fill:var(--dk-{name})}}" for name in _FILLS)
    rules += "".join(f".dk-{name}-line{{stroke:var(--dk-{name})}}" for name in _STROKES)
    return (
        f".dagkit-graph{{{light}}}@media (prefers-color-scheme:dark){{.dagkit-graph{{{dark}}}}}"
        f"{darks}{{{dark}}}{lights}{{{light}}}{rules}"
    )


_FILLS, _STROKES = ("ink", "soft", "bg", "panel", "pending"), ("hair", "edge", "idle", "pending")


@dataclass(frozen=True, slots=True)
class Card:
    """A box with its words set: what is written, in which state, how large."""

    box: Box
    title: str
    lines: tuple[str, ...]
    counts: Counts | None
    size: Point

    @property
    def has_bar(self) -> bool:
        return self.counts is not None and len(self.box.members) > 1


def draw(
    picture: Picture,
    tallies: Sequence[Counts] | None = None,
    details: Mapping[str, str] | None = None,
    *,
    heading: bool = True,
) -> str:
    """The picture as SVG text.

    Args:
        tallies: Counts of each box (`Picture.tally`); without them no states are shown.
        details: More words for the second line of a box, by box key or title (`median 38 s`).
        heading: Whether the workflow's name stands above and a legend of states below.
    """
    cards = set_cards(picture, tallies, details or {})
    layout = place([card.size for card in cards], picture.edges)
    top = _MARGIN + (26.0 if heading else 0.0)
    legend = _legend(tallies) if heading and tallies else []
    width = max(layout.width, pixels(picture.size, _SUB_PX) + 60, sum(w for _, _, w in legend)) + 2 * _MARGIN
    height = top + layout.height + _MARGIN + (22.0 if legend else 0.0)
    shift = (width - layout.width) / 2 if layout.width < width - 2 * _MARGIN else _MARGIN
    parts = [
        _open(picture, width, height),
        f"<style>{_style()}</style>",
        _plate((0.5, 0.5), (width - 1, height - 1), "panel", radius=8),
        *([_text(_MARGIN, 24.0, _heading(picture), _TITLE_PX + 1)] if heading else []),
        f'<g transform="translate({_n(shift)},{_n(top)})">',
        *_edges(layout),
        *(_card(card, layout.corners[i]) for i, card in enumerate(cards)),
        "</g>",
        *_legend_marks(legend, height - 14.0),
        "</svg>",
    ]
    return "".join(parts)


def _open(picture: Picture, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dagkit-graph" role="img" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}" '
        f'style="max-width:100%;height:auto" font-family="{_SANS}">'
        f"<title>{xml(picture.name)}: {picture.size}</title>"
    )


def _heading(picture: Picture) -> str:
    name = xml(shorten(picture.name, 60))
    soft = f'class="dk-soft" fill="{_LIGHT["soft"]}" font-weight="400" font-size="{_SUB_PX + 1}"'
    return f'<tspan font-weight="600">{name}</tspan><tspan dx="8" {soft}>{picture.size}</tspan>'


# --- boxes --------------------------------------------------------------------------------------------------------


def set_cards(picture: Picture, tallies: Sequence[Counts] | None, details: Mapping[str, str]) -> list[Card]:
    return [
        _set_card(box, tallies[i] if tallies else None, details.get(box.key) or details.get(box.title) or "")
        for i, box in enumerate(picture.boxes)
    ]


def _set_card(box: Box, counts: Counts | None, detail: str) -> Card:
    title = shorten(box.title, _MAX_TITLE)
    if counts is not None:
        title = f"{GLYPHS[headline(counts)]} {title}"
    second = " · ".join(filter(None, [box.queue, detail]))
    lines = tuple(shorten(line, _MAX_SUB) for line in (second, box.needs, box.when) if line)
    text_width = max(pixels(title, _TITLE_PX), *(pixels(line, _SUB_PX) for line in lines))
    width = max(_MIN_WIDTH, 20.0 * -(-(text_width + 2 * _PAD) // 20.0))
    has_bar = counts is not None and len(box.members) > 1
    return Card(box, title, lines, counts, (width, 28.0 + 14.0 * len(lines) + (12.0 if has_bar else 0.0)))


def _card(card: Card, corner: Point) -> str:
    width, height = card.size
    state = headline(card.counts) if card.counts is not None else None
    is_loud = state in (TaskState.FAILED, TaskState.UPSTREAM_FAILED)
    stroke = COLOURS[state] if state is not None else _LIGHT["idle"]
    tone = "dk-idle-line" if state is None else _tone(state, "-line")
    dashed = ' stroke-dasharray="4 3"' if card.box.when or state is TaskState.SKIPPED else ""
    parts = [f'<g transform="translate({_n(corner[0])},{_n(corner[1])})"><title>{_tooltip(card)}</title>']
    if len(card.box.members) > 1:
        parts.append(_plate((4, 4), card.size, "bg", radius=7))
    line = 2.0 if is_loud else 1.4
    parts.append(
        _rect((0, 0), card.size, f"dk-bg {tone}", fill=_LIGHT["bg"], stroke=stroke, radius=7, line=line, more=dashed)
    )
    parts.append(_text(_PAD, 18.0, xml(card.title), _TITLE_PX, soft=card.box.is_fold))
    parts.extend(_text(_PAD, 32.0 + 14.0 * i, xml(line), _SUB_PX, soft=True) for i, line in enumerate(card.lines))
    if card.has_bar and card.counts is not None:
        parts.append(_bar(card.counts, _PAD, height - 14.0, width - 2 * _PAD))
    parts.append("</g>")
    return "".join(parts)


def _tooltip(card: Card) -> str:
    box = card.box
    lines = [box.title, " · ".join(filter(None, [box.queue, box.needs, box.when]))]
    if card.counts is not None:
        lines.append(", ".join(f"{number:,} {state.words}" for state, number in present(card.counts)))
    return "&#10;".join(xml(line) for line in lines if line)


def _bar(counts: Counts, x: float, y: float, width: float) -> str:
    """One segment per state, in the order of the vocabulary; a state that occurs is never thinner than two units."""
    shares = [(state, max(2.0, width * number / counts.total)) for state, number in present(counts)]
    surplus = sum(share for _, share in shares) - width
    largest = max(range(len(shares)), key=lambda i: shares[i][1])
    parts, at = [], x
    for i, (state, share) in enumerate(shares):
        share -= surplus if i == largest else 0.0
        parts.append(_segment(at, y, share, state, first=i == 0, last=i == len(shares) - 1))
        at += share
    return "".join(parts)


def _segment(x: float, y: float, width: float, state: TaskState, *, first: bool, last: bool) -> str:
    height, radius = 6.0, min(3.0, width / 2)
    left, right = radius if first else 0.0, radius if last else 0.0
    path = (
        f"M{_n(x + left)} {_n(y)}H{_n(x + width - right)}"
        + (f"a{_n(right)} 3 0 0 1 0 {_n(height)}" if last else f"v{_n(height)}")
        + f"H{_n(x + left)}"
        + (f"a{_n(left)} 3 0 0 1 0 {_n(-height)}" if first else "")
        + "z"
    )
    return f'<path d="{path}" class="{_tone(state)}" fill="{COLOURS[state]}"/>'


def _tone(state: TaskState, use: str = "") -> str:
    """The class of what has a state's colour: only the grey of waiting differs between light and dark."""
    return f"dk-pending{use}" if state is TaskState.PENDING else ""


# --- edges, legend, marks -----------------------------------------------------------------------------------------


def _edges(layout: Layout) -> list[str]:
    paths = "".join(f'<path d="{curve(points)}"/>' for points in layout.routes.values())
    return (
        [f'<g fill="none" class="dk-edge-line" stroke="{_LIGHT["edge"]}" stroke-width="1.4">{paths}</g>']
        if paths
        else []
    )


def curve(points: Sequence[Point]) -> str:
    """Leaves and arrives vertically; straight down beside the boxes of the levels it skips."""
    parts = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for k in range(0, len(points), 2):
        (x0, y0), (x1, y1) = points[k], points[k + 1]
        middle = (y0 + y1) / 2
        curve = f"V{_n(y1)}" if x0 == x1 else f"C{_n(x0)} {_n(middle)} {_n(x1)} {_n(middle)} {_n(x1)} {_n(y1)}"
        parts.append(curve)
        if k + 2 < len(points):
            parts.append(f"V{_n(points[k + 2][1])}")
    return "".join(parts)


def _legend(tallies: Sequence[Counts]) -> list[tuple[TaskState, str, float]]:
    total = Counts()
    for counts in tallies:
        for state, number in present(counts):
            setattr(total, state.value, total.of(state) + number)
    entries = [(state, f"{GLYPHS[state]} {state.words} {number:,}") for state, number in present(total)]
    return [(state, words, pixels(words, _SUB_PX) + 30.0) for state, words in entries]


def _legend_marks(legend: Sequence[tuple[TaskState, str, float]], y: float) -> list[str]:
    parts, x = [], _MARGIN
    for state, words, width in legend:
        colour = f'class="{_tone(state)}" fill="{COLOURS[state]}"'
        parts.append(f'<rect x="{_n(x)}" y="{_n(y - 8)}" width="9" height="9" rx="2" {colour}/>')
        parts.append(_text(x + 14, y, xml(words), _SUB_PX, soft=True))
        x += width
    return parts


def _plate(corner: Point, size: Point, fill: str, *, radius: float) -> str:
    """A rectangle in the colours of the theme, with a hair line around it."""
    return _rect(corner, size, f"dk-{fill} dk-hair-line", fill=_LIGHT[fill], stroke=_LIGHT["hair"], radius=radius)


def _rect(
    corner: Point,
    size: Point,
    classes: str,
    *,
    fill: str,
    stroke: str,
    radius: float,
    line: float = 1.0,
    more: str = "",
) -> str:
    return (
        f'<rect x="{_n(corner[0])}" y="{_n(corner[1])}" width="{_n(size[0])}" height="{_n(size[1])}" '
        f'rx="{_n(radius)}" class="{classes}" fill="{fill}" stroke="{stroke}" stroke-width="{line}"{more}/>'
    )


def _text(x: float, y: float, content: str, size: float, *, soft: bool = False) -> str:
    name = "soft" if soft else "ink"
    return f'<text x="{_n(x)}" y="{_n(y)}" class="dk-{name}" fill="{_LIGHT[name]}" font-size="{size}">{content}</text>'


def _n(value: float) -> str:
    """A number with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
