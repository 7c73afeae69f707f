"""Where outputs, files, payloads, logs and results lie in the containers (facts: jobq 7.1)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from dagkit.model.names import path_name

__all__ = ["FILES", "log_blob", "output_blob", "payload_blob", "result_blob"]

FILES: Final = "workflow-files"

_LONGEST: Final = 900  # a blob's name has 1,024 characters at most, as it stands in a url
_PLAIN: Final = re.compile(r"[^\\\x00-\x1f\x7f]+")


def output_blob(workflow_id: str, path: str) -> str:
    """`W/<path>`, as ai4s-jobq has it; a path that a url would bend (`..`, a backslash) gets a name of its own."""
    return f"{workflow_id}/{path}" if _is_plain(path) else f"{workflow_id}/__named/{path_name(path)}"


def _is_plain(path: str) -> bool:
    if not _PLAIN.fullmatch(path) or path.startswith("/") or path.endswith((".", "/")) or "//" in path:
        return False
    parts = path.split("/")
    return not {".", ".."}.intersection(parts) and len(quote(path, errors="surrogatepass")) <= _LONGEST


def log_blob(workflow_id: str, task: str, attempt: str) -> str:
    return f"{workflow_id}/__logs/{path_name(task)}.{path_name(attempt)}.log"


def payload_blob(hex_digest: str) -> str:
    return f"payloads/{hex_digest[:2]}/{hex_digest}"


def result_blob(fingerprint: str) -> str:
    return f"results/{path_name(fingerprint)}"
