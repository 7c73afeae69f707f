"""Our errors in a cell: the caller's own lines and the sentence that helps; dagkit's frames help nobody there."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, Final

__all__ = ["render", "whole"]

_OURS: Final = str(Path(__file__).resolve().parents[1])
_LIBRARY: Final = str(Path(traceback.__file__).resolve().parent)
_MAX_FRAMES: Final = 6


def render(error: BaseException) -> list[str]:
    """Lines for IPython: frames of the user's code, then the error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    name = type(error).__name__
    lines = [f"{_place(frame)}\n    {(frame.line or '').strip()}" for frame in frames[-_MAX_FRAMES:]]
    cause = error.__cause__
    because = f"\n(because of {type(cause).__name__}: {_first_line(cause)})" if cause is not None else ""
    return [*lines, "", f"{name}: {error}{because}".removesuffix(": ")]


def whole(error: BaseException) -> str:
    """The traceback with every frame."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _is_users(filename: str) -> bool:
    """Neither dagkit's, nor Python's, nor of an installed package (IPython's own frames are)."""
    is_installed = "site-packages" in filename or "dist-packages" in filename
    return not (filename.startswith((_OURS, _LIBRARY, "<frozen")) or is_installed)


def _place(frame: traceback.FrameSummary) -> str:
    cell = _cell_name(frame.filename)
    where = cell or f'File "{frame.filename}"'
    return f"{where}, line {frame.lineno}" + ("" if frame.name == "<module>" else f", in {frame.name}")


def _cell_name(filename: str) -> str:
    """`Cell In[3]` for the code of a cell, as IPython calls it; empty for files."""
    module = sys.modules.get("IPython")
    shell: Any = module.get_ipython() if module is not None else None
    named = shell.compile.format_code_name(filename) if shell is not None else None
    return " ".join(named) if named else ""


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
