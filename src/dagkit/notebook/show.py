"""Shows runs in cells: the live view where it can be shown, and beside it what is read without it."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from dagkit.notebook import page
from dagkit.notebook.widget import is_available, make
from dagkit.progress import Progress
from dagkit.viewing import RunViewer

if TYPE_CHECKING:
    from dagkit.model.records import RunRow
    from dagkit.run import Run

__all__ = ["bundle", "is_notebook", "progress", "show"]

_WIDGET_TYPE: Final = "application/vnd.jupyter.widget-view+json"
MISSING: Final = "The live view needs the extra notebook: pip install 'dagkit[notebook]'"
_REDRAW_S: Final = 2.0
#: The message in the place of a widget that is gone helps nobody who has the still picture above it.
_QUIET: Final = (
    "<style>.jp-OutputArea-child:has(.dagkit-still-%s) + .jp-OutputArea-child .jupyter-widgets:not(:has(*))"
    "{display:none}</style>"
)

#: Run id -> the cell that shows it: the handle that the same cell returns is not shown a second time.
_shown_by: dict[str, int] = {}


def is_notebook() -> bool:
    """Whether output goes to the cells of a notebook (any front end of an IPython kernel)."""
    return getattr(_shell(), "kernel", None) is not None


def show(run: Run) -> None:
    """Show a run in the current cell, unless the cell shows it already."""
    if _shown_by.get(run.id) != _cell():
        shown = Shown(run)
        shown.open()
        if shown.widget is not None:
            shown.widget.live.when_over = shown.refresh


def progress(run: Run) -> Progress:
    """Shows a run in the current cell while the cell waits for it."""
    return CellProgress(run)


def bundle(run: Run) -> dict[str, str]:
    """What a run looks like now without a live view."""
    viewer = RunViewer(run)
    return page.bundle(viewer.look(), viewer.picture)


class Shown:
    """One display of a run. When the run is over, the still picture beside the live view is brought up to date."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.widget: Any = make(run) if is_available() else None
        self._viewer = self.widget.live.viewer if self.widget is not None else RunViewer(run)
        self._handle: Any = None

    def open(self) -> None:
        """Display it and, unless the run is over, begin to look."""
        from IPython.display import display

        _shown_by[self.run.id] = _cell()
        self._handle = display(self.still(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        if self.widget is not None:
            display(self.live(), raw=True)  # type: ignore[no-untyped-call]
            if not self._look().is_over:
                self.widget.live.start()

    def still(self) -> dict[str, str]:
        """HTML, SVG and text. The live view hides it while there is one: JupyterLab shows an error in the place of a
        widget whose kernel is gone, and nothing else of the same output."""
        content = page.bundle(self._look(), self._viewer.picture, "" if self.widget is not None else MISSING)
        if self.widget is None:
            return content
        key = self.widget.key
        return {**content, "text/html": f'<div class="dagkit-still-{key}">{_QUIET % key}{content["text/html"]}</div>'}

    def live(self) -> dict[str, Any]:
        """The widget; where it cannot be shown, an empty element."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {_WIDGET_TYPE: view, "text/html": "<span></span>", "text/plain": f"live view of run {self.run.id}"}

    def _look(self) -> Any:
        last = self.widget.live.last if self.widget is not None else None
        return last if last is not None else self._viewer.look()

    def refresh(self) -> None:
        """Bring the still picture up to date, in the notebook that will be saved."""
        if self._handle is not None:
            self._handle.update(self.still(), raw=True)


class CellProgress:
    """A `Progress` that is a display in the cell."""

    def __init__(self, run: Run) -> None:
        self._shown, self._stack = Shown(run), ExitStack()
        self._next = time.monotonic() + _REDRAW_S

    def __enter__(self) -> CellProgress:
        self._shown.open()
        if self._shown.widget is not None:
            self._stack.enter_context(self._shown.widget.live.held())
        return self

    def update(self, row: RunRow) -> None:
        """The live view looks for itself; without it the picture is drawn anew every other second."""
        if self._shown.widget is None and time.monotonic() >= self._next:
            self._shown.refresh()
            self._next = time.monotonic() + _REDRAW_S

    def __exit__(self, *details: Any) -> None:
        self._stack.close()
        if self._shown.widget is not None:
            self._shown.widget.live.settle()
        self._shown.refresh()


def _shell() -> Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def _cell() -> int:
    """The number of the cell that runs."""
    return int(getattr(_shell(), "execution_count", 0))
