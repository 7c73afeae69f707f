"""How outputs and payloads are addressed: `blob:<run>/<path>` and `sha256:<hex>`."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from dagkit.errors import BackendError, CorruptState

__all__ = ["check_payload", "digest_of", "hex_of", "is_blob", "output_parts", "output_ref"]

_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_BLOB: Final = "blob:"


def output_ref(workflow_id: str, path: str) -> str:
    return f"{_BLOB}{workflow_id}/{path}"


def is_blob(ref: str) -> bool:
    return ref.startswith(_BLOB)


def output_parts(ref: str) -> tuple[str, str]:
    """Run and path of a `blob:` ref; a run's id has no slash."""
    workflow_id, slash, path = ref.removeprefix(_BLOB).partition("/")
    if not is_blob(ref) or not slash or not workflow_id or not path:
        raise BackendError(f"{ref!r:.200} is not a reference to a stored output (blob:<run>/<path>)")
    return workflow_id, path


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def hex_of(digest: str) -> str:
    """The hex digits of a digest; anything else cannot become a path."""
    match = _DIGEST.fullmatch(digest)
    if not match:
        raise BackendError(f"{digest!r:.200} is not the address of a payload (sha256:<64 hex digits>)")
    return match[1]


def check_payload(data: bytes, digest: str, where: str) -> bytes:
    """`data` if they are what `digest` names."""
    if digest_of(data) != digest:
        raise CorruptState(f"{where} does not hold what was stored as {digest}. Submit the run again to store it anew.")
    return data
