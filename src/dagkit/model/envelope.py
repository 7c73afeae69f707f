"""The text form of queue messages and the compact form of upstream refs (facts: jobq, sections 8.1 to 8.4)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagkit.errors import BackendError, CorruptState

__all__ = [
    "Envelope",
    "PoisonMessage",
    "compact_refs",
    "envelope",
    "expand_refs",
    "open_envelope",
    "service_bus_id",
    "stored_path",
    "take_upstream",
]

VERSION: Final = 1
_READABLE_VERSIONS: Final = (0, VERSION)
_MAX_SERVICE_BUS_ID: Final = 128
#: Services that carry texts as XML count these as several bytes; as JSON escapes they count as what they are.
_XML: Final = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"})
BLOB: Final = "blob:"

COMPACT: Final = "__upstream_outputs_compact"
COMPACT_BLOB: Final = "__upstream_outputs_blob"
KWARGS_BLOB: Final = "__kwargs_blob"
_OLDER: Final = "__upstream_output_refs"

Get = Callable[[str], bytes]


class PoisonMessage(CorruptState, ValueError):
    """A message that nobody will ever be able to read; it is deleted and counted."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a message carries."""

    kwargs: dict[str, Any]
    id: str
    num_retries: int = 0


def envelope(kwargs: Mapping[str, Any], message_id: str | None = None, num_retries: int = 0) -> str:
    """The text of a message, in ASCII without XML's marks; without an id, the md5 of the text without one."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "reply_requested": False,
        "kwargs": json.dumps(kwargs),
        "num_retries": num_retries,
    }
    fields["id"] = message_id or hashlib.md5(json.dumps(fields).encode(), usedforsecurity=False).hexdigest()
    return json.dumps(fields).translate(_XML)


def open_envelope(text: str | bytes) -> Envelope:
    """What a text carries; `PoisonMessage` says why there is nothing in it."""
    fields = read_object(text, "the message")
    version, retries = fields.get("version"), fields.get("num_retries", 0)
    if type(version) is not int or version not in _READABLE_VERSIONS:
        raise PoisonMessage(f"the message has version {version!r:.40}; known are {_READABLE_VERSIONS}")
    if not isinstance(fields.get("kwargs"), str):
        raise PoisonMessage("the message has no kwargs text")
    if type(retries) is not int:
        raise PoisonMessage(f"the message has num_retries {retries!r:.40}")
    return Envelope(read_object(fields["kwargs"], "kwargs"), str(fields.get("id", "")), retries)


def read_object(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object; anything else is a `PoisonMessage`."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise PoisonMessage(f"{what} is not JSON: {type(error).__name__}: {error}") from error
    if not isinstance(value, dict):
        raise PoisonMessage(f"{what} is not a JSON object")
    return value


def service_bus_id(message_id: str) -> str:
    """The id as Service Bus takes it: a digest where it is longer than the 128 characters allowed."""
    too_long = len(message_id) > _MAX_SERVICE_BUS_ID
    return hashlib.sha256(message_id.encode()).hexdigest() if too_long else message_id


def stored_path(ref: str) -> str | None:
    """The path in the output container behind a `blob:` ref; None for an inline output."""
    return ref.removeprefix(BLOB) if ref.startswith(BLOB) else None


# --- upstream refs


def compact_refs(workflow_id: str, refs: Mapping[str, str | None]) -> dict[str, Any]:
    """`s`: parents at their usual place in the store, `i`: other refs, `n`: parents without an output."""
    usual, other, none = [], {}, []
    for parent, ref in refs.items():
        if ref is None:
            none.append(parent)
        elif ref == f"{BLOB}{workflow_id}/{parent}.json":
            usual.append(parent)
        else:
            other[parent] = ref
    return {key: part for key, part in (("s", usual), ("i", other), ("n", none)) if part}


def expand_refs(workflow_id: str, compact: Mapping[str, Any]) -> dict[str, str | None]:
    """The refs of a compact form. `PoisonMessage` if it is none."""
    usual, other, none = compact.get("s", []), compact.get("i", {}), compact.get("n", [])
    if not (_are_texts(usual) and _are_texts(none) and isinstance(other, dict) and _are_texts(list(other.values()))):
        raise PoisonMessage("the upstream refs are not in the compact form")
    return {
        **{parent: f"{BLOB}{workflow_id}/{parent}.json" for parent in usual},
        **other,
        **dict.fromkeys(none),
    }


def _are_texts(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, str) for item in items)


def take_upstream(
    workflow_id: str, kwargs: Mapping[str, Any], get: Get | None = None
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """(refs, kwargs left over) of a task message; `get` fetches what was too large for the message (`blob:` refs)."""
    rest = dict(kwargs)
    compact, older = rest.pop(COMPACT, None), rest.pop(_OLDER, None)
    if (spilled := rest.pop(COMPACT_BLOB, None)) is not None:
        compact = fetch(spilled, get)
    if compact or not isinstance(older, dict):
        if not isinstance(compact or {}, dict):
            raise PoisonMessage("the upstream refs are not an object")
        return expand_refs(workflow_id, compact or {}), rest
    if not _are_texts([ref for ref in older.values() if ref is not None]):
        raise PoisonMessage("the upstream refs are not texts")
    return dict(older), rest


def fetch(ref: Any, get: Get | None) -> dict[str, Any]:
    """The object that was too large to travel."""
    if not isinstance(ref, str) or not ref.startswith(BLOB):
        raise PoisonMessage(f"{ref!r:.60} is no place in a store")
    if get is None:
        raise BackendError(f"a part of the message is kept at {ref}, and there is no store to read it from")
    return read_object(get(ref), ref)
