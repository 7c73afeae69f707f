"""A run as it stands, for whatever cannot or can no longer show the live view: HTML, SVG and text of bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dagkit.model.names import fold_id
from dagkit.model.records import Counts
from dagkit.model.states import SEGMENT_ORDER, RunStatus, TaskState
from dagkit.notebook import svg, text
from dagkit.notebook.lettering import shorten, xml
from dagkit.notebook.palette import COLOURS, GLYPHS, look_of_run, present
from dagkit.notebook.picture import Picture
from dagkit.notebook.wording import details_of, memory, rate_words
from dagkit.progress import format_counts, format_duration
from dagkit.rows import TaskRow
from dagkit.viewing import GroupView, Snapshot

__all__ = ["bundle"]

_FAILURES: Final = 8
_GROUPS: Final = 40


def bundle(shown: Snapshot, picture: Picture, note: str = "") -> dict[str, str]:
    """HTML, SVG and plain text. `note` is a sentence below (what is missing for the live view)."""
    tallies = [group.counts for group in shown.groups]
    details = {group.key: details_of(group) for group in shown.groups}
    heading = " · ".join(_headline(shown))
    plain = text.draw(picture, tallies, details)
    failed = "".join(f"\n  ✗ {row.name}  {_message(row)}" for row in shown.failures[:_FAILURES])
    return {
        "text/html": _html(shown, picture, tallies, details, note),
        "image/svg+xml": svg.draw(picture, tallies, details),
        "text/plain": f"{heading}\n{plain}{failed}" + (f"\n{note}" if note else ""),
    }


def _headline(shown: Snapshot) -> list[str]:
    row, counts = shown.row, shown.row.counts
    glyph = _glyph(row.status)
    words = [
        f"{row.name}  {fold_id(row.workflow_id)}  {glyph} {row.status}",
        f"{counts.ended:,} of {counts.total:,}",
        format_counts(counts),
        format_duration(shown.elapsed_s),
    ]
    if shown.rate is not None:
        words.append(rate_words(shown.rate))
    if not shown.is_over:
        words.append(f"driven by {shorten(shown.driven_by or 'nobody', 60)}")
    return words


def _message(row: TaskRow) -> str:
    return shorten(row.error.partition("\n")[0], 120)


def _html(shown: Snapshot, picture: Picture, tallies: Sequence[Counts], details: Mapping[str, str], note: str) -> str:
    row, counts = shown.row, shown.row.counts
    glyph = _glyph(row.status)
    figures = [f"{counts.ended:,} of {counts.total:,}", rate_words(shown.rate) if shown.rate else ""]
    figures.append(f"{format_duration(shown.elapsed_s)} {'in all' if shown.is_over else 'so far'}")
    figures.append("" if shown.is_over else f"driven by {xml(shorten(shown.driven_by or 'nobody', 60))}")
    image = svg.draw(picture, tallies, details, heading=False)
    parts = [
        f'<div style="{_FONT}"><b style="font-size:15px">{xml(shorten(row.name, 60))}</b> '
        f'<code style="opacity:.65">{xml(fold_id(row.workflow_id))}</code> {glyph} {xml(str(row.status))} '
        f'<span style="opacity:.65">{" · ".join(filter(None, figures))}</span></div>',
        _bar(counts),
        f'<div style="{_FONT};opacity:.8;margin:2px 0 6px">{_legend(counts)}</div>',
        *[_failure(one) for one in shown.failures[:_FAILURES]],
        f'<div class="dagkit-graph-scroll" style="overflow-x:auto">{image}</div>',
        _table(shown.groups),
        f'<div style="{_FONT};opacity:.7">{xml(note)}</div>' if note else "",
    ]
    return f'<div class="dagkit-run" style="max-width:1240px">{"".join(parts)}</div>'


_FONT: Final = "font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"


def _bar(counts: Counts) -> str:
    total = counts.total or 1
    parts = "".join(
        f'<div style="width:{100 * number / total:.2f}%;background:{COLOURS[state]}"></div>'
        for state, number in present(counts)
    )
    return f'<div style="display:flex;height:8px;margin:4px 0;border-radius:4px;overflow:hidden">{parts}</div>'


def _legend(counts: Counts) -> str:
    return " &nbsp; ".join(
        f'<span style="color:{COLOURS[state]}">■</span> {GLYPHS[state]} {state.words} {number:,}'
        for state, number in present(counts)
    )


def _failure(row: TaskRow) -> str:
    return (
        f'<div style="{_FONT}"><b style="color:#d55e00">✗ {xml(shorten(row.name, 60))}</b> {xml(_message(row))}</div>'
    )


def _table(groups: Sequence[GroupView]) -> str:
    """One row a group, at most forty: the rest is in the drawing. States that no task is in have no column."""
    if not groups:
        return ""
    states = [state for state in SEGMENT_ORDER if any(group.counts.of(state) for group in groups)]
    heads = [
        _cell("th", "group"),
        _cell("th", "tasks", "right"),
        *[_cell("th", f"{GLYPHS[state]} {state.words}", "right") for state in states],
        _cell("th", "queue"),
        _cell("th", "median", "right"),
        _cell("th", "peak", "right"),
    ]
    rows = "".join(_row(group, states) for group in groups[:_GROUPS])
    more = f"<caption>and {len(groups) - _GROUPS:,} more groups</caption>" if len(groups) > _GROUPS else ""
    return f"<table>{more}<thead><tr>{''.join(heads)}</tr></thead><tbody>{rows}</tbody></table>"


def _row(group: GroupView, states: Sequence[TaskState]) -> str:
    numbers = [group.size, *[group.counts.of(state) for state in states]]
    title = group.title.removesuffix(f" × {group.size:,}")
    cells = [
        _cell("td", shorten(title, 50)),
        *[_cell("td", f"{number:,}" if number else "–", "right") for number in numbers],
        _cell("td", shorten(group.queue, 50)),
        _cell("td", format_duration(group.median_s) if group.median_s is not None else "–", "right"),
        _cell("td", memory(group.peak_bytes) if group.peak_bytes else "–", "right"),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(tag: str, words: str, side: str = "left") -> str:
    return f"<{tag} style='text-align:{side}'>{xml(words)}</{tag}>"


def _glyph(status: RunStatus | str) -> str:
    state = look_of_run(status)
    return "" if state is None else GLYPHS[state]
