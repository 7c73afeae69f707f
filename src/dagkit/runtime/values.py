"""Values on the wire: arguments as JSON with markers, outputs as JSON or as payloads.

Markers, in an argument tree (a dict with exactly these keys):

    {"$ref": task, "path": [...]}      the output of another task, or a part of it; `path` is left out if empty
    {"$tuple": [...]}                  a tuple
    {"$pickle": "sha256:...", "refs": [...]}
                                       a payload: whatever JSON would not return unchanged. `refs` are the markers of
                                       the nodes and files inside it, in the order of their persistent ids; left out if
                                       there are none. The payloads of a sweep over nodes are the same bytes
    {"$json": "sha256:..."}            a tree of over 32 KiB, stored as JSON, so that messages stay small
    {"$file": "sha256:...", "name": ..., "md5": ..., "size": ...}
                                       a `dagkit.File` of the caller's machine, stored as a payload; with a `blob:`
                                       ref, a file that an earlier run has stored
    {"$escape": {...}}                 a dict of the user's with a key that starts with "$"

A list or dict that occurs twice in an argument is the same object on the other side too: such an argument is a payload.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from dagkit.errors import CorruptState, MissingPart
from dagkit.runtime import payload
from dagkit.runtime._outputs import (
    INLINE_LIMIT,
    MAX_DEPTH,
    MAX_INT_BITS,
    Encoded,
    condition_view,
    dump_output,
    load_output,
)
from dagkit.runtime.files import File, StoredFile, described, stored_at

__all__ = [
    "INLINE_LIMIT",
    "Encoded",
    "Ref",
    "condition_view",
    "decode",
    "dump_output",
    "encode",
    "load_output",
    "refs_in",
]

_MAX_ITEMS = INLINE_LIMIT // 2
_SMALL_INT = 1 << 64
_SMALL_STR = INLINE_LIMIT // 6 - 2  # six bytes for a character is the most that JSON takes


class Ref(NamedTuple):
    """The output of a task, or the part of it that `path` leads to."""

    task: str
    path: tuple[str | int, ...] = ()


# --- arguments


def encode(value: Any, *, ref_of: Callable[[object], Ref | None], put: Callable[[bytes], str], where: str) -> Any:
    """One argument as a JSON tree with markers; call it once per argument.

    Args:
        ref_of: Gives the `Ref` of a node or ref, None for any other object. Not asked about strings, numbers, None.
        put: Keeps a payload and returns its digest.
        where: Starts error messages: `train: argument 'lr'`.

    Raises `NotPicklable` for what cannot travel.
    """
    kind = type(value)
    if (
        (kind is int and -_SMALL_INT < value < _SMALL_INT)
        or (kind is float and isfinite(value))
        or (kind is str and len(value) < _SMALL_STR)
        or kind is bool
        or value is None
    ):
        return value
    return _Encoder(ref_of, put, where).encode(value)


class _NeedsPayload(Exception):
    """The argument as a whole has to be a payload."""


class _Encoder:
    __slots__ = ("characters", "items", "put", "ref_of", "seen", "where")

    def __init__(self, ref_of: Callable[[object], Ref | None], put: Callable[[bytes], str], where: str) -> None:
        self.ref_of, self.put, self.where = ref_of, put, where
        self.items = self.characters = 0
        self.seen: set[int] = set()

    def encode(self, value: Any) -> Any:
        try:
            tree = self.tree(value, 0)
        except _NeedsPayload:
            tree = self.pickled(value)
        if self.items * 40 + self.characters * 6 <= INLINE_LIMIT:  # an upper bound, cheap
            return tree
        data = json.dumps(tree).encode()
        return tree if len(data) <= INLINE_LIMIT else {"$json": self.put(data)}

    def tree(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self.items += 1
        if kind is str:
            self.characters += len(value)
            return value
        if value is None or kind is bool:
            return value
        if kind is int:
            bits = value.bit_length()
            self.characters += bits // 16
            return value if bits <= MAX_INT_BITS else self.pickled(value)
        if kind is float:
            return value if isfinite(value) else self.pickled(value)
        if depth > MAX_DEPTH or self.items > _MAX_ITEMS:
            raise _NeedsPayload
        if kind is list:
            self.once(value)
            return [self.tree(item, depth + 1) for item in value]
        if kind is dict:
            return self.mapping(value, depth)
        if kind is tuple:
            return {"$tuple": [self.tree(item, depth + 1) for item in value]}
        return self.other(value)

    def once(self, value: Any) -> None:
        if id(value) in self.seen:
            raise _NeedsPayload
        self.seen.add(id(value))

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        self.once(value)
        if not all(type(key) is str for key in value):
            return self.pickled(value)
        self.characters += sum(map(len, value))
        tree = {key: self.tree(item, depth + 1) for key, item in value.items()}
        return {"$escape": tree} if any(key[:1] == "$" for key in tree) else tree

    def other(self, value: Any) -> Any:
        marker = self.marker(value)
        if marker is not None:
            self.characters += len(repr(marker))
            return marker
        self.once(value)
        return self.pickled(value)

    def marker(self, value: Any) -> dict[str, Any] | None:
        """The marker of a node or a file; None for anything else."""
        if isinstance(value, StoredFile):
            return {"$file": value.url, "name": value.name, "md5": value.md5, "size": value.size}
        if isinstance(value, File):
            data = value.read_bytes()
            return {"$file": self.put(data), **described(value.name, data)}
        ref = self.ref_of(value)
        return None if ref is None else ref_marker(ref)

    def pickled(self, value: Any) -> dict[str, Any]:
        markers: dict[str, int] = {}

        def persistent_id(obj: Any) -> str | None:
            marker = None if type(obj) in _PLAIN else self.marker(obj)
            return None if marker is None else str(markers.setdefault(json.dumps(marker), len(markers)))

        data = payload.dumps(value, self.where, persistent_id)
        tree: dict[str, Any] = {"$pickle": self.put(data)}
        if markers:
            tree["refs"] = [json.loads(marker) for marker in markers]
        self.characters += len(repr(tree))
        return tree


_PLAIN = frozenset({str, int, float, bool, type(None), list, dict, tuple, bytes, set, frozenset})


def ref_marker(ref: Ref) -> dict[str, Any]:
    """`{"$ref": task}`, with `path` if there is one."""
    return {"$ref": ref.task, "path": list(ref.path)} if ref.path else {"$ref": ref.task}


def refs_in(tree: Any, get: Callable[[str], bytes]) -> list[str]:
    """Names of the tasks an argument tree refers to, in order, each once. `get` is asked for `$json` payloads only."""
    names: dict[str, None] = {}
    stack = [tree]
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(reversed(item))
        elif type(item) is dict:
            if item.keys() == {"$escape"}:
                item = item["$escape"]
            elif type(item.get("$ref")) is str:
                names[item["$ref"]] = None
            elif type(item.get("$json")) is str:
                stack.append(json.loads(get(item["$json"])))
            stack.extend(reversed(item.values()))
    return list(names)


def decode(tree: Any, *, resolve: Callable[[str], Any], get: Callable[[str], bytes]) -> Any:
    """The value that `encode` was given, with `resolve(task)` in the place of each node.

    `get` is asked for payloads by their digest, and by their `blob:` ref for files of earlier runs, when they are read.
    Raises `MissingPart` if an output has no such part and `CorruptState` for a marker that is none.
    """
    kind = type(tree)
    if kind is dict:
        for key in tree:
            if key[:1] == "$":
                return _decode_marker(tree, resolve, get)
        return {key: decode(item, resolve=resolve, get=get) for key, item in tree.items()}
    if kind is list:
        return [decode(item, resolve=resolve, get=get) for item in tree]
    return tree


def _decode_marker(tree: dict[str, Any], resolve: Callable[[str], Any], get: Callable[[str], bytes]) -> Any:
    keys = tree.keys()
    if "$ref" in keys and keys <= {"$ref", "path"}:
        return part_of(resolve(tree["$ref"]), tree["$ref"], tree.get("path", ()))
    if keys == {"$tuple"} and type(tree["$tuple"]) is list:
        return tuple([decode(item, resolve=resolve, get=get) for item in tree["$tuple"]])
    if keys == {"$escape"} and type(tree["$escape"]) is dict:
        return {key: decode(item, resolve=resolve, get=get) for key, item in tree["$escape"].items()}
    if "$pickle" in keys and keys <= {"$pickle", "refs"}:
        refs = tree.get("refs", [])
        return payload.loads(get(tree["$pickle"]), lambda pid: decode(refs[int(pid)], resolve=resolve, get=get))
    if keys == {"$json"}:
        return decode(json.loads(get(tree["$json"])), resolve=resolve, get=get)
    if "$file" in keys and keys <= {"$file", "name", "md5", "size"}:
        return stored_at(tree["$file"], tree["name"], tree["md5"], tree["size"], get)
    raise CorruptState(
        f"an argument has an unknown marker with the keys {', '.join(sorted(keys))}. "
        'A dict of your own with such a key is written {"$escape": {...}}.'
    )


def part_of(value: Any, task: str, path: Any) -> Any:
    """The part of a task's output that `path` leads to. Raises `MissingPart` saying how far it got."""
    for position, step in enumerate(path):
        try:
            value = value[step]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise MissingPart(task, tuple(path), _why(value, task, tuple(path[:position]), step)) from error
    return value


def _shown(task: str, path: tuple[str | int, ...]) -> str:
    return task + "".join(f"[{step!r}]" for step in path)


def _why(value: Any, task: str, path: tuple[str | int, ...], step: Any) -> str:
    here = _shown(task, path)
    if value is None:
        return f"{here} is None" if path else f"{task} has no output (it returned None, was skipped or did not run)"
    if isinstance(value, dict):
        keys = ", ".join(map(repr, list(value)[:8]))
        return f"{here} has no key {step!r}; it has {keys or 'none'}"
    if isinstance(value, (list, tuple)):
        return f"{here} has {len(value)} items, and {step!r} is none of them"
    return f"{here} is of type {type(value).__name__}, without {step!r}"
