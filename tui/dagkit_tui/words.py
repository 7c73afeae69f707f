"""Runs, tasks and states as styled text. Text of users is never read as markup, and cannot steer the terminal."""

from __future__ import annotations

from typing import Final

from rich.style import Style
from rich.text import Text

from dagkit.model.names import fold_id
from dagkit.model.records import Counts, RunRow
from dagkit.model.states import RunStatus, TaskState
from dagkit.notebook.palette import COLOURS, GLYPHS, look_of_run, present
from dagkit.wording import plain

__all__ = ["bar", "counted", "own", "run_title", "state_words", "style_of", "without_marks"]

#: Blue of the palette is too dark to be read on black, and the greys too light on white.
_READABLE: Final = {
    True: {TaskState.RUNNING: "#3d9be9"},
    False: {TaskState.PENDING: "#6b7683", TaskState.SKIPPED: "#6b7683", TaskState.READY: "#1f7fb8"},
}


def own(text: str, style: str | Style = "") -> Text:
    """Text of a user on one line, as it is: nothing in it is obeyed."""
    return Text(plain(text), style, no_wrap=True, end="")


def without_marks(error: str) -> list[str]:
    """The lines of an error but those of `^^^^`, which say nothing once long lines are wrapped."""
    lines = error.rstrip().split("\n")
    return [lines[0], *[line for line in lines[1:] if line.strip(" ~^")]]


def style_of(state: TaskState, is_dark: bool = True) -> Style:
    """The colour of a state, where the background is dark or light."""
    return Style(color=_READABLE[is_dark].get(state, COLOURS[state]))


def state_words(status: RunStatus | TaskState | str, is_dark: bool = True) -> Text:
    """`◐ running`, in its colour; a status nobody knows as it is."""
    if isinstance(status, TaskState):
        return Text(f"{GLYPHS[status]} {status.words}", style_of(status, is_dark), no_wrap=True)
    state = look_of_run(status)
    if state is None:
        return own(str(status))
    return Text(f"{GLYPHS[state]} {status}", style_of(state, is_dark), no_wrap=True)


def bar(counts: Counts, columns: int, is_dark: bool = True) -> Text:
    """All tasks in so many columns: completed ones as a solid bar, the others by their glyphs, at least one each."""
    found = Text(no_wrap=True)
    segments = list(present(counts))
    if not segments or columns <= 0:
        return found
    others = [(state, number) for state, number in segments if state is not TaskState.COMPLETED]
    shown = others[: max(0, columns - 1)] if counts.completed else others[:columns]
    cells = [max(1, columns * number // counts.total) for _, number in shown]
    while sum(cells) > columns - (1 if counts.completed else 0) and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    done = columns - sum(cells)
    if counts.completed:
        found.append("█" * done, style_of(TaskState.COMPLETED, is_dark))
    elif cells:
        cells[cells.index(max(cells))] += done
    for (state, _), share in zip(shown, cells, strict=True):
        found.append(GLYPHS[state] * share, style_of(state, is_dark))
    return found


def counted(counts: Counts, is_dark: bool = True) -> Text:
    """`✓ 92  ✗ 2  ◐ 8`."""
    parts = [Text(f"{GLYPHS[state]} {number:,}", style_of(state, is_dark)) for state, number in present(counts)]
    return Text("  ", no_wrap=True).join(parts)


def run_title(row: RunRow) -> Text:
    """The name of a run with the fold of its id, unless the id says it all."""
    if row.workflow_id == row.name or row.workflow_id.startswith(f"{row.name}-"):
        return own(row.workflow_id)
    return own(f"{row.name}  {fold_id(row.workflow_id)}")
