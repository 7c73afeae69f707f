"""The live view as an anywidget: JupyterLab, Notebook 7, VS Code and Colab draw it, this kernel answers it."""

from __future__ import annotations

import contextlib
import functools
import secrets
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import MissingExtra
from dagkit.notebook.live import LiveView
from dagkit.notebook.scene import scene, vocabulary

if TYPE_CHECKING:
    from dagkit.run import Run

__all__ = ["is_available", "make"]

_STATIC: Final = Path(__file__).parent / "static"
#: A front end gets one module: what is made of several files is put together here.
_PARTS: Final = ("drawing", "graph", "tables", "live")


def is_available() -> bool:
    """Whether the packages of the extra `notebook` can be imported."""
    try:
        _widget_class()
    except MissingExtra:
        return False
    return True


def make(run: Run) -> Any:
    """A widget that shows a run, and its `live` view, which has not begun to look. `MissingExtra`."""
    widget: Any = None

    def publish(update: dict[str, Any]) -> None:
        shown = held()
        if shown is not None and shown.comm is not None:
            with shown.hold_sync():  # one message
                for name, value in update.items():
                    setattr(shown, name, value)

    live = LiveView(run, publish)
    widget = _widget_class()(scene=scene(live.viewer.picture), words=vocabulary(), key=secrets.token_hex(6))
    widget.live = live
    held = weakref.ref(widget)
    # ipykernel 7 hands a front end's messages to the shell of whoever published last. That would be the shell of the
    # cell that waits for the run: buttons would do nothing until it ends. The subshell that it names will do.
    with contextlib.suppress(AttributeError):
        widget.comm._reply_subshell_for = lambda data, named: named
    widget.on_msg(lambda _, content, buffers: live.ask(content) if isinstance(content, dict) else None)
    return widget


@functools.lru_cache(maxsize=1)
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise MissingExtra(error.name or "anywidget", "notebook", "the live view of a run") from None

    def _dict() -> Any:
        return traitlets.Dict().tag(sync=True)

    class RunWidget(anywidget.AnyWidget):
        """State that the kernel publishes; the front end sends questions as messages.

        `key` names the still picture that is hidden while a front end shows this.
        """

        _esm = "\n".join([(_STATIC / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS])
        _css = (_STATIC / "live.css").read_text(encoding="utf-8")
        scene = _dict()
        words = _dict()
        head = _dict()
        groups: Any = traitlets.List().tag(sync=True)
        page = _dict()
        task = _dict()
        log = _dict()
        usage = _dict()
        events = _dict()
        result = _dict()
        chosen = _dict()
        confirm = _dict()
        notice = _dict()
        key = traitlets.Unicode().tag(sync=True)
        answered = traitlets.Int(0).tag(sync=True)
        live: LiveView

        def close(self) -> None:
            """Close the view here and in every front end, and end its thread."""
            live = getattr(self, "live", None)
            if live is not None:
                live.close()
            super().close()

    return RunWidget
