"""Draws workflows: SVG for notebooks and pages, a text tree for terminals, Mermaid and DOT for other tools.

Every function takes a WorkflowSpec, anything with a `spec` (a flow, a run), or a Picture made earlier. A drawing has a
bounded size: a map is one box with its count, and what would not be read one by one is folded, with its count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Union

from dagkit.model.records import Counts
from dagkit.model.states import TaskState
from dagkit.notebook import dot as _dot
from dagkit.notebook import mermaid as _mermaid
from dagkit.notebook import svg as _svg
from dagkit.notebook import text as _text
from dagkit.notebook.picture import Picture

if TYPE_CHECKING:
    from dagkit.model.spec import WorkflowSpec

__all__ = ["dot", "mermaid", "mimebundle", "picture", "svg", "text"]

States = Mapping[str, TaskState]


class HasSpec(Protocol):
    """A flow or a run: whatever knows the definition it stands for."""

    @property
    def spec(self) -> WorkflowSpec: ...


Drawable = Union["WorkflowSpec", HasSpec, Picture]


def picture(what: Drawable) -> Picture:
    """The boxes and edges of a workflow; worth keeping when the same workflow is drawn again with other states."""
    if isinstance(what, Picture):
        return what
    return Picture.of(what.spec if hasattr(what, "spec") else what)


def svg(
    what: Drawable, states: States | None = None, details: Mapping[str, str] | None = None, *, heading: bool = True
) -> str:
    """A self-contained SVG that follows the light or dark theme.

    Args:
        states: State of each task by name; a missing task is pending. None draws the workflow alone.
        details: More words for a box, by its title or its first task's name (`{"train × 128": "median 38 s"}`).
        heading: Whether the workflow's name stands above and a legend of states below.
    """
    drawn = picture(what)
    return _svg.draw(drawn, _tallies(drawn, states), details, heading=heading)


def text(
    what: Drawable, states: States | None = None, details: Mapping[str, str] | None = None, *, plain: bool = False
) -> str:
    """A tree of lines; each box stands once, under the deepest of its parents. `plain` uses ASCII branches."""
    drawn = picture(what)
    return _text.draw(drawn, _tallies(drawn, states), details, plain=plain)


def mermaid(what: Drawable, states: States | None = None) -> str:
    """A Mermaid flowchart."""
    drawn = picture(what)
    return _mermaid.draw(drawn, _tallies(drawn, states))


def dot(what: Drawable, states: States | None = None) -> str:
    """DOT text for Graphviz; `dagkit.notebook.dot.render` runs the program where it is installed."""
    drawn = picture(what)
    return _dot.draw(drawn, _tallies(drawn, states))


def mimebundle(
    what: Drawable, states: States | None = None, details: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What `_repr_mimebundle_` returns: HTML in the front end's theme, SVG for viewers without HTML, and text."""
    drawn = picture(what)
    tallies = _tallies(drawn, states)
    image = _svg.draw(drawn, tallies, details)
    return {
        "text/html": f'<div class="dagkit-graph-scroll" style="overflow-x:auto">{image}</div>',
        "image/svg+xml": image,
        "text/plain": _text.draw(drawn, tallies, details),
    }


def _tallies(drawn: Picture, states: States | None) -> list[Counts] | None:
    return None if states is None else drawn.tally(states)
