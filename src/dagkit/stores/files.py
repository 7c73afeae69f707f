"""Outputs, payloads and logs as files below the root of a store; no database is touched for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from dagkit.disk import explain_os_error, make_directory, write_whole
from dagkit.errors import BackendError
from dagkit.model.names import path_name
from dagkit.stores.payloads import check_payload, digest_of, hex_of, output_parts, output_ref

__all__ = ["StoredFiles"]

_IGNORE_ALL: Final = "*\n"
_PER_RUN: Final = ("outputs", "logs", "checkpoints", "slurm")
_LEFT_AFTER_S: Final = 86_400.0


class StoredFiles:
    """The file half of a store at `root`. Thread-safe, and safe from many processes: every file is whole or absent.

    `outputs/<run>/<path>`, `payloads/<2 hex>/<hex>`, `logs/<run>/<task>.<attempt>.log`; `tmp` what is being written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tmp = root / "tmp"
        self._log_directories: set[str] = set()

    def prepare_root(self) -> None:
        """Create the root, kept out of the user's repository by a `.gitignore`; sweep what killed processes left."""
        make_directory(self.root, "creating the store")
        ignore = self.root / ".gitignore"
        try:
            if not ignore.exists():
                ignore.write_text(_IGNORE_ALL)
        except OSError as error:
            raise explain_os_error(error, ignore, "creating the store") from error
        self._remove_leftovers()

    # --- outputs

    def put_output(self, workflow_id: str, path: str, data: bytes) -> str:
        write_whole(self._output(workflow_id, path), data, self._tmp, "writing an output")
        return output_ref(workflow_id, path)

    def get_output(self, ref: str) -> bytes:
        try:
            return self._output(*output_parts(ref)).read_bytes()
        except FileNotFoundError as error:
            raise BackendError(
                f"the output {ref} is not in {self.root}. It was deleted, or written to another store; "
                f"run its task again (dagkit retry, or rerun)."
            ) from error
        except OSError as error:
            raise explain_os_error(error, ref, "reading an output") from error

    def _has_output(self, ref: str) -> bool:
        return self._output(*output_parts(ref)).exists()

    def _output(self, workflow_id: str, path: str) -> Path:
        return self.root / "outputs" / path_name(workflow_id) / path_name(path)

    # --- payloads

    def put_payload(self, data: bytes) -> str:
        digest = digest_of(data)
        path = self._payload(hex_of(digest))
        if not _has_size(path, len(data)):
            write_whole(path, data, self._tmp, "writing a payload")
        return digest

    def get_payload(self, digest: str) -> bytes:
        path = self._payload(hex_of(digest))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise explain_os_error(error, path, "reading a payload") from error
        return check_payload(data, digest, str(path))

    def _payload(self, hex_digest: str) -> Path:
        return self.root / "payloads" / hex_digest[:2] / hex_digest

    # --- logs

    def log_path(self, workflow_id: str, task: str, attempt: str) -> Path | None:
        path = self._log(workflow_id, task, attempt)
        if workflow_id not in self._log_directories:
            make_directory(path.parent, "writing a log")
            self._log_directories.add(workflow_id)
        return path

    def append_log(self, workflow_id: str, task: str, attempt: str, offset: int, data: bytes) -> None:
        path = self._log(workflow_id, task, attempt)
        make_directory(path.parent, "writing a log")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            with open(descriptor, "wb", buffering=0) as file:
                file.seek(offset)
                file.write(data)
        except OSError as error:
            raise explain_os_error(error, path, "writing a log") from error

    def read_log(self, workflow_id: str, task: str, attempt: str, offset: int = 0, limit: int | None = None) -> bytes:
        path = self._log(workflow_id, task, attempt)
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(offset if offset >= 0 else max(0, size + offset))
                return file.read(-1 if limit is None else limit)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise explain_os_error(error, path, "reading a log") from error

    def _log(self, workflow_id: str, task: str, attempt: str) -> Path:
        return self.root / "logs" / path_name(workflow_id) / f"{path_name(task)}.{path_name(attempt)}.log"

    # --- deletion

    def _set_aside(self, workflow_id: str) -> list[Path]:
        """Move the files of a run out of the way, in one step each, so that a new run of this id finds none of them."""
        self._log_directories.discard(workflow_id)
        moved = []
        for kind in _PER_RUN:
            place = self.root / kind / path_name(workflow_id)
            aside = self._tmp / f"deleted-{os.urandom(6).hex()}"
            make_directory(self._tmp, "deleting a run")
            try:
                place.rename(aside)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise explain_os_error(error, place, "deleting a run") from error
            moved.append(aside)
        return moved

    def _remove(self, places: list[Path]) -> None:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
            if place.exists():
                raise BackendError(f"{place}: some files of a deleted run are left. Remove them by hand.")

    def _remove_leftovers(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for place in self._tmp.iterdir():
                with contextlib.suppress(OSError):
                    if time.time() - place.stat().st_mtime > _LEFT_AFTER_S:
                        shutil.rmtree(place) if place.is_dir() else place.unlink()


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
