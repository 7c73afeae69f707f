"""What a task returned, as it shows itself: HTML, an image or text, of bounded size."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any, Final

from dagkit.model.states import TaskState
from dagkit.rows import TaskRow
from dagkit.runtime.values import load_output

if TYPE_CHECKING:
    from dagkit.stores.base import Store

__all__ = ["of_result"]

MAX_STORED: Final = 4_000_000
MAX_SHOWN: Final = 200_000
_TEXT_CHARS: Final = 8_000
_KINDS: Final = ("text/html", "image/svg+xml", "image/png")


class _TooLarge(Exception):
    """More bytes than anybody wants to wait for at a click."""


def of_result(store: Store, row: TaskRow) -> dict[str, Any]:
    """`kind` (a MIME type) and `body`; where there is nothing to show, text that says why.

    Loads the output, as `run[task]` does, if it is stored in at most 4 MB. `BackendError` if it cannot be read.
    """
    said = {"name": row.name, "kind": "text/plain"}
    if row.state is not TaskState.COMPLETED:
        return {**said, "body": f"no result: it is {row.state.words}"}

    def fetch(ref: str) -> bytes:
        data = store.get_output(ref)
        if len(data) > MAX_STORED:
            raise _TooLarge(
                f"the result is {len(data) / 1e6:,.0f} MB, too large to show here: run[{row.name!r}] has it"
            )
        return data

    try:
        value = load_output(row.output_ref, fetch)
    except _TooLarge as error:
        return {**said, "body": str(error)}
    return {**said, **_shown(value)}


def _shown(value: Any) -> dict[str, str]:
    """The richest display that is small enough."""
    formats = _formats(value)
    for kind in _KINDS:
        body = formats.get(kind)
        if isinstance(body, bytes):
            body = base64.b64encode(body).decode()
        if isinstance(body, str) and len(body) <= MAX_SHOWN:
            return {"kind": kind, "body": body}
    text = str(formats.get("text/plain", ""))
    return {"body": text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}\n… {len(text):,} characters in all"}


def _formats(value: Any) -> dict[str, Any]:
    module = sys.modules.get("IPython")
    shell: Any = module.get_ipython() if module is not None else None
    if shell is None:
        return {"text/plain": repr(value)}
    formats, _ = shell.display_formatter.format(value, include=[*_KINDS, "text/plain"])
    return dict(formats)
