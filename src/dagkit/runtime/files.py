"""Files as outputs and arguments: `File("model.pt")` in a value becomes a handle on the stored file downstream.

In an output, a file is an object with the only key `__jobq_stash__` (facts: jobq 8.6): `pending` until the task ends,
`ready` once its content is in the store. The worker calls `stash_files` on what a task returned or wrote; reading an
output (`values.load_output`) calls `attach_files`. Files pass through memory as a whole.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import io
import operator
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from dagkit.errors import CorruptState, UsageError

__all__ = [
    "MARKER",
    "File",
    "StoredFile",
    "attach_files",
    "described",
    "from_file",
    "mentions_files",
    "stash_files",
    "stored_at",
]

MARKER: Final = "__jobq_stash__"
_FOLDER: Final = "workflow-files"
_PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})
_MAX_DEPTH: Final = 200


class File(os.PathLike[str]):
    """A file on this machine, to be stored when the task that returns it ends, or when it is passed to a task.

    Nothing is read before that; the path is made absolute at once. Downstream it is a `StoredFile`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.path.name

    def read_bytes(self) -> bytes:
        """The content. Raises `UsageError` naming the path if it cannot be read."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"File({str(self.path)!r}) cannot be read: {error.strerror or error}") from error

    def marker(self) -> dict[str, Any]:
        """The pending marker."""
        return {MARKER: {"v": 1, "state": "pending", "local_path": str(self.path), "filename": self.name}}

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"File({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a File is stored when it is an argument or in an output, not when it is captured")

    def __dagkit_fingerprint__(self) -> str | None:
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError:
            return None


def from_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A pending marker for a file, to be put into the JSON that `set_output` writes; touches nothing."""
    return File(path).marker()


class StoredFile:
    """A handle on a stored file. What is read is verified against its size and digest; `CorruptState` if it differs.

    Attributes:
        blob_name: Where it is stored: `workflow-files/<run>/<task>/<filename>`, or a payload's digest.
        md5, size: Hex digest and bytes.
    """

    __slots__ = ("_get", "blob_name", "md5", "name", "size")

    def __init__(
        self, blob_name: str, md5: str, size: int, get: Callable[[str], bytes] | None = None, name: str | None = None
    ) -> None:
        self.blob_name, self.md5, self.size, self._get = blob_name, md5, size, get
        self.name = name or PurePosixPath(blob_name).name

    @property
    def url(self) -> str:
        """The reference under which the store knows it."""
        return _ref_of(self.blob_name)

    def read_bytes(self) -> bytes:
        """The content, verified."""
        if self._get is None:
            raise UsageError(f"{self!r} belongs to no store here; read it through the run or in a task")
        data = self._get(self.url)
        if len(data) != self.size or _md5(data) != self.md5:
            raise CorruptState(
                f"{self.blob_name}: what is stored is not what the task wrote (md5 {_md5(data)} of {len(data)} bytes, "
                f"not {self.md5} of {self.size}). Run the task again."
            )
        return data

    def open(self, mode: str = "rb") -> BinaryIO:
        """The content as a binary stream. `ValueError` for any mode but `rb`."""
        if mode != "rb":
            raise ValueError(f"a stored file opens with mode 'rb', not {mode!r}")
        return io.BytesIO(self.read_bytes())

    def download_to(self, path: str | os.PathLike[str]) -> Path:
        """Write the content to `path`, whole or not at all, with the folders above it; returns the path."""
        target, data = Path(path), self.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            Path(beside).chmod(0o666 & ~_umask())
            Path(beside).replace(target)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
        return target

    def marker(self) -> dict[str, Any]:
        """The ready marker."""
        return {MARKER: {"v": 1, "state": "ready", "blob_name": self.blob_name, "md5": self.md5, "size": self.size}}

    def __repr__(self) -> str:
        return f"StoredFile({self.blob_name!r}, {self.size:,} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredFile) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, int]:
        return self.blob_name, self.md5, self.size

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredFile, (*self._identity(), None, self.name)

    def __dagkit_fingerprint__(self) -> str:
        return f"{self.md5}:{self.size}"


def mentions_files(data: str | bytes) -> bool:
    """Whether an encoded output may contain markers or handles; false costs almost nothing."""
    if isinstance(data, str):
        return MARKER in data
    return MARKER.encode() in data or b"StoredFile" in data


# --- the worker's side: after a task


def stash_files(value: Any, put: Callable[[str, bytes], str], *, task: str) -> Any:
    """`value` with each `File` and pending marker stored and replaced by a ready marker; `value` itself if it has none.

    Looks into lists, tuples, dicts and dataclasses. Call it on what a task returned, and on JSON that it wrote when
    `mentions_files(text)`, before the output is encoded.

    Args:
        put: Stores bytes under a path of the run, returns the ref: `functools.partial(store.put_output, workflow_id)`.
        task: Name of the task, which becomes part of the path.

    Raises `UsageError` naming a file that cannot be read, and whatever `put` raises: the attempt fails.
    """
    return _Replacement(_Stash(put, task).marker).of(value)


class _Stash:
    def __init__(self, put: Callable[[str, bytes], str], task: str) -> None:
        self._put, self._task = put, task
        self._stored: dict[Path, dict[str, Any]] = {}
        self._taken: set[str] = set()

    def marker(self, value: Any) -> Any:
        if isinstance(value, StoredFile):
            return value.marker()
        if isinstance(value, File):
            return self._store(value, value.name)
        marker = _marker_in(value)
        if marker is None or marker.get("state") != "pending":
            return value
        _check_version(marker)
        path = _field(marker, "local_path", str)
        return self._store(File(path), str(marker.get("filename") or Path(path).name))

    def _store(self, file: File, filename: str) -> dict[str, Any]:
        if file.path not in self._stored:
            data = file.read_bytes()
            ref = self._put(f"{_FOLDER}/{self._task}/{self._free_name(filename, _md5(data))}", data)
            self._stored[file.path] = StoredFile(_blob_of(ref), _md5(data), len(data)).marker()
        return self._stored[file.path]

    def _free_name(self, filename: str, md5: str) -> str:
        """The file's own name, or one with a short digest before the extension if another file has it."""
        safe = filename.replace("/", "_").replace("\\", "_")
        stem, extension = PurePosixPath(safe).stem, PurePosixPath(safe).suffix
        candidates = [safe, *(f"{stem}-{md5[:length]}{extension}" for length in (8, 16, 32))]
        candidates += [f"{stem}-{md5[:8]}-{count}{extension}" for count in range(2, 2 + len(self._taken))]
        free = next(name for name in candidates if name not in self._taken)
        self._taken.add(free)
        return free


# --- reading


def attach_files(value: Any, get: Callable[[str], bytes]) -> Any:
    """`value` with a `StoredFile` in the place of every ready marker; `value` itself if there is none.

    `get` reads a ref: `store.get_output`. Raises `CorruptState` for a marker that is not ready or lacks a field.
    """

    def handle(found: Any) -> Any:
        if isinstance(found, StoredFile):
            return StoredFile(found.blob_name, found.md5, found.size, get, found.name)
        marker = _marker_in(found)
        return found if marker is None else _handle(marker, get)

    return _Replacement(handle).of(value)


def _handle(marker: dict[str, Any], get: Callable[[str], bytes]) -> StoredFile:
    _check_version(marker)
    state = marker.get("state")
    if state == "pending":
        name = marker.get("filename") or marker.get("local_path")
        raise CorruptState(
            f"the file {name!r} was never stored: its task ended without uploading it. Run the task again."
        )
    if state != "ready":
        raise CorruptState(f"a file marker has the unknown state {state!r} (known: pending, ready)")
    return StoredFile(_field(marker, "blob_name", str), _field(marker, "md5", str), _field(marker, "size", int), get)


def _marker_in(value: Any) -> dict[str, Any] | None:
    is_marker = type(value) is dict and len(value) == 1 and isinstance(value.get(MARKER), dict)
    return value[MARKER] if is_marker else None


def _check_version(marker: dict[str, Any]) -> None:
    if marker.get("v") != 1 or isinstance(marker.get("v"), bool):
        raise CorruptState(f"a file marker has version {marker.get('v')!r}; this dagkit reads version 1")


def _field(marker: dict[str, Any], name: str, kind: type) -> Any:
    value = marker.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptState(f"a {marker.get('state')} file marker has no valid {name!r} (found {value!r:.100})")
    return value


# --- shared


class _Replacement:
    """Applies `change` to all parts of a value, outermost first. Parts without a change stay the same objects; a part
    that occurs twice is changed once, and one that contains itself is left alone.
    """

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        if type(value) in _PLAIN or depth > _MAX_DEPTH:
            return value
        known = self._known.get(id(value))
        if known is None:
            self._known[id(value)] = (value, value)
            known = self._known[id(value)] = (value, self._replaced(value, depth))
        return known[1]

    def _replaced(self, value: Any, depth: int) -> Any:
        changed = self._change(value)
        if changed is not value:
            return changed
        if type(value) is dict:
            return self._rebuilt(value, value.values(), depth, lambda new: dict(zip(value, new, strict=True)))
        if type(value) is list:
            return self._rebuilt(value, value, depth, list)
        if isinstance(value, tuple):
            return self._rebuilt(value, value, depth, getattr(type(value), "_make", type(value)))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value, depth)
        return value

    def _rebuilt(self, whole: Any, parts: Iterable[Any], depth: int, make: Callable[[list[Any]], Any]) -> Any:
        old = list(parts)
        new = [part if type(part) in _PLAIN else self.of(part, depth + 1) for part in old]
        return whole if all(map(operator.is_, new, old)) else make(new)

    def _dataclass(self, value: Any, depth: int) -> Any:
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]

        def changed_copy(new: list[Any]) -> Any:
            made = copy.copy(value)
            for name, item in zip(names, new, strict=True):
                object.__setattr__(made, name, item)
            return made

        return self._rebuilt(value, [getattr(value, name) for name in names], depth, changed_copy)


def stored_at(key: str, name: str, md5: str, size: int, get: Callable[[str], bytes]) -> StoredFile:
    """A handle for a ref or the digest of a payload, which `get` reads."""
    return StoredFile(_blob_of(key) if key.startswith("blob:") else key, md5, size, get, name)


def _blob_of(ref: str) -> str:
    """`workflow-files/<run>/<rest>` for the ref `blob:<run>/workflow-files/<rest>`: the name in the file container."""
    run, _, rest = ref.removeprefix("blob:").partition("/")
    return f"{_FOLDER}/{run}/{rest.removeprefix(_FOLDER + '/')}" if rest.startswith(_FOLDER + "/") else f"{run}/{rest}"


def _ref_of(blob_name: str) -> str:
    """The other way round; digests of payloads stay as they are."""
    if blob_name.startswith("sha256:"):
        return blob_name
    folder, _, rest = blob_name.partition("/")
    run, _, path = rest.partition("/")
    return f"blob:{run}/{_FOLDER}/{path}" if folder == _FOLDER and path else f"blob:{blob_name}"


def described(name: str, data: bytes) -> dict[str, Any]:
    """Name, digest and size of a file's content, as `StoredFile` takes them."""
    return {"name": name, "md5": _md5(data), "size": len(data)}


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
