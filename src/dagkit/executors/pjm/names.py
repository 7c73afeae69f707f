"""Names of jobs: what PJM takes, and unique, so that a job can be found by its full name (facts: pjm 1.3)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["LIMIT", "job_name"]

LIMIT: Final = 63
_DIGITS: Final = 12
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


def job_name(key: str) -> str:
    """A legal name made from a key: what can be read of it, and a digest that tells it from similar ones."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    readable = _ILLEGAL.sub("-", key).strip("-")
    if not readable[:1].isalpha():
        readable = f"j{readable}"
    return f"{readable[: LIMIT - _DIGITS - 1]}.{digest}"
