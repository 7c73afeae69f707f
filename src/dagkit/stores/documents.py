"""The two documents of a run as stores keep them: definition and state (facts: jobq 7.2 to 7.4)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from dagkit.errors import CorruptState, NewerFormat
from dagkit.model.records import Counts, StateChanges
from dagkit.model.states import RunStatus, TaskState

__all__ = [
    "count_tasks",
    "counts_from_text",
    "counts_to_text",
    "encode",
    "extra_of",
    "head_to_text",
    "pack",
    "queues_from_text",
    "queues_to_text",
    "queues_used",
    "split",
    "status_of",
    "unpack",
]

#: Compact JSON; the check for circles costs half as much as the rest, and these documents are trees that we built.
_encode_strictly: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode

_GZIP: Final = 16 + zlib.MAX_WBITS
_COUNT_NAMES: Final = tuple(field.name for field in fields(Counts))
_count_values: Final = attrgetter(*_COUNT_NAMES)


def encode(document: Mapping[str, Any] | list[str]) -> str:
    """Compact JSON text. NaN and infinities, for which JSON has no words, become null (a usage may hold some)."""
    try:
        return _encode_strictly(document)
    except ValueError:
        return _encode_strictly(json.loads(json.dumps(document), parse_constant=lambda _: None))


def pack(document: Mapping[str, Any]) -> bytes:
    """gzip (level 1) of the JSON text."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(encode(dict(document)).encode()) + packer.flush()


def unpack(data: bytes, what: str) -> dict[str, Any]:
    """The document in gzip or plain JSON. `CorruptState` or `NewerFormat`, naming `what`, if it cannot be read."""
    try:
        document = json.loads(zlib.decompress(data, _GZIP) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, zlib.error) as error:
        raise CorruptState(f"the {what} cannot be read ({error}). It was damaged after it was written.") from error
    if not isinstance(document, dict):
        raise CorruptState(f"the {what} is not a JSON object")
    check_version(document, what)
    return document


def check_version(document: Mapping[str, Any], what: str) -> None:
    """Refuse documents of any version but 1."""
    version = document.get("v")
    if type(version) is int and version == 1:
        return
    if type(version) is int and version > 1:
        raise NewerFormat(
            f"the {what} was written by a later version of dagkit (v: {version}). Update dagkit to read it."
        )
    raise CorruptState(f"the {what} has no version that dagkit knows (v: {version!r})")


def split(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The head of a state document and its task entries that are not at their defaults."""
    head = {key: value for key, value in state.items() if key != "tasks"}
    return head, {name: entry for name, entry in state.get("tasks", {}).items() if entry}


def count_tasks(definition: Mapping[str, Any], state: Mapping[str, Any]) -> Counts:
    """Tasks by state; merge nodes (names starting with `__`) are not counted."""
    counts = dict.fromkeys(_COUNT_NAMES, 0)
    entries = state.get("tasks", {})
    for name in definition.get("tasks", {}):
        if not name.startswith("__"):
            counts[_known_state(entries.get(name, {}).get("state", "pending"))] += 1
    return Counts(**counts)


def _known_state(text: str) -> str:
    if text == "ready_pending_budget":  # reserved by the format, treated as ready (facts: jobq 3)
        return TaskState.READY.value
    if text not in _COUNT_NAMES:
        raise CorruptState(f"a task is in the state {text!r}, which dagkit does not know")
    return text


def queues_used(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Queues of the definition's tasks, sorted."""
    tasks = definition.get("tasks", {}).items()
    return tuple(sorted({task["queue"] for name, task in tasks if task.get("queue") and not name.startswith("__")}))


def head_to_text(changes: StateChanges) -> str:
    """The head as stores of ours keep it: with the counts of groups beside it."""
    return encode({**changes.head, "groups": changes.groups} if changes.groups else changes.head)


def extra_of(head: str) -> dict[str, Any]:
    """What the text of a head says beside the columns of a row: `groups`, if whoever drives the run counts them."""
    groups = json.loads(head).get("groups") if '"groups":' in head else None
    return {"groups": groups} if isinstance(groups, dict) else {}


def groups_to_text(groups: Mapping[str, Sequence[int]], most_chars: int) -> str:
    """Counts by group for a column of a row; empty if that is too much for one."""
    text = encode(groups) if groups else ""
    return text if len(text) <= most_chars else ""


def groups_from_text(text: str, counts: Counts) -> dict[str, list[int]]:
    """What a column says of the groups, if it adds up to the counts: somebody who does not know it may have written the
    rest of the row since."""
    groups = json.loads(text) if text else {}
    sums = [sum(each) for each in zip(*groups.values(), strict=True)]
    return groups if sums == [counts.of(state) for state in TaskState] else {}


def counts_to_text(counts: Counts) -> str:
    return ",".join(map(str, _count_values(counts)))


def counts_from_text(text: str) -> Counts:
    try:
        return Counts(*map(int, text.split(",")))
    except (ValueError, TypeError) as error:
        raise CorruptState(f"the counts of a run cannot be read ({text!r:.100})") from error


def queues_to_text(queues: tuple[str, ...]) -> str:
    return encode(list(queues))


def queues_from_text(text: str) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(text)))
    except (ValueError, TypeError) as error:
        raise CorruptState(f"the queues of a run cannot be read ({text!r:.100})") from error


def status_of(text: str) -> RunStatus | str:
    """The status, or the text itself if dagkit does not know it (shown as such)."""
    try:
        return RunStatus(text)
    except ValueError:
        return text
