"""Source lines that travel with pickled code, so that tracebacks on a worker show them."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import tokenize
from types import CodeType

__all__ = ["register", "source_of"]

_LONGEST = 100_000


def source_of(code: CodeType) -> tuple[str, int, str]:
    """`(file name, first line, text)` of a code object; the text is empty where Python does not know it.

    The name is the same in every session: that of the file, or `<notebook cell 3f9c2a>` for code that was typed.
    """
    lines = linecache.getlines(code.co_filename)
    if not lines:
        return "<dynamic-code>", 1, ""
    if not os.path.exists(code.co_filename):  # noqa: PTH110 - a name like <stdin> is no path
        cell = "".join(lines)
        return f"<notebook cell {hashlib.sha256(cell.encode()).hexdigest()[:6]}>", 1, cell[:_LONGEST]
    try:
        block = inspect.getblock(lines[code.co_firstlineno - 1 :])
    except (tokenize.TokenError, IndentationError, SyntaxError):
        block = []
    return code.co_filename, code.co_firstlineno, "".join(block)[:_LONGEST]


def register(filename: str, first: int, text: str) -> None:
    """Make the lines known to `traceback` and `inspect` in this process."""
    known = linecache.cache.get(filename)
    # an entry without a modification time is never looked up on disk, where the file may have changed since
    lines = list(known[2]) if known is not None and len(known) == 4 and known[1] is None else []
    new = text.splitlines(keepends=True)
    lines += ["\n"] * (first - 1 + len(new) - len(lines))
    lines[first - 1 : first - 1 + len(new)] = new
    linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
