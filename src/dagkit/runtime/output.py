"""The output file of a task, read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

from dagkit.runtime.outcome import Failure
from dagkit.runtime.storage import Storage

__all__ = ["collect", "is_written"]


def is_written(path: str) -> bool:
    """Whether the task made its output file, cheaply."""
    return os.access(path, os.F_OK)


def collect(path: str, storage: Storage, workflow_id: str, task: str) -> str | None:
    """The output that a task wrote, as a ref; no output if the file is missing or empty. Removes the file.

    Raises `Failure` for what is not JSON; `BackendError` and `UsageError` if it, or a file in it, cannot be stored.
    """
    try:
        with open(path, "rb") as file:
            data = file.read().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failure(f"the output file cannot be read: {error.strerror or error}") from error
    Path(path).unlink()
    text = _checked(data)
    return None if not text or text == "null" else storage.keep_text(workflow_id, task, text)


def _checked(data: bytes) -> str:
    """The text, if it is JSON."""
    try:
        text = data.decode("utf-8-sig")
        if text:
            json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        begins = data[:60].decode("utf-8", "backslashreplace")
        raise Failure(f"the output file is not JSON ({error}); it begins with {begins!r}") from error
    return text


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")
