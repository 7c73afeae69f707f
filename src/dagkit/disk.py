"""Files that are whole or absent, and what to say when a disk does not do what was asked."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from dagkit.errors import BackendError

__all__ = ["explain_os_error", "make_directory", "write_whole"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


def explain_os_error(error: OSError, path: Path | str, doing: str) -> BackendError:
    """The `BackendError` for an OSError met while `doing` (`writing an output`) at `path`: what, where, what to do."""
    return BackendError(f"{path}: {doing} failed: {_cause(error)}")


def _cause(error: OSError) -> str:
    if error.errno in _FULL:
        return f"the disk or the quota is full ({_text(error)}). Free some space and go on; nothing else was changed."
    if error.errno == errno.EFBIG:
        return "the file would be larger than this process may write. Raise the limit (ulimit -f) and go on."
    if error.errno in _REFUSED:
        return (
            f"not allowed here ({_text(error)}). Choose a directory you may write to (store=...), or change its mode."
        )
    if error.errno in _IN_THE_WAY:
        return f"something else is in the way ({_text(error)}). Move it, or choose another directory (store=...)."
    if error.errno == errno.ENOENT:
        return "it is not there. It was deleted, or it was written to another store."
    if error.errno == errno.EMFILE:
        return "this process has too many open files. Raise the limit (ulimit -n)."
    return f"{_text(error)}. Look at the disk (dmesg) and try again."


def _text(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def make_directory(path: Path, doing: str) -> None:
    """Create `path` and its parents if they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, path, doing) from error


def write_whole(path: Path, data: bytes, spare: Path, doing: str) -> None:
    """Write `data` to `path`, durably, replacing what is there; a reader sees the old bytes or the new ones.

    Args:
        spare: A directory on the same file system for the file while it is being written.
    """
    part = spare / f"{os.getpid()}-{os.urandom(6).hex()}"
    try:
        try:
            _write_synced(part, data)
        except FileNotFoundError:
            spare.mkdir(parents=True, exist_ok=True)
            _write_synced(part, data)
        try:
            part.replace(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise explain_os_error(error, path, doing) from error


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make a rename durable; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
