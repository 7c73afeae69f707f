"""A folder whose files are copied elsewhere while a command writes them, and once more when it has ended."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from dagkit.errors import DagkitError
from dagkit.runtime.failure import error_text
from dagkit.runtime.outcome import Failure

__all__ = ["BlobPlace", "FolderPlace", "FolderSync", "Place", "place_of"]

#: What the command of the task finds its folder by; the first is ai4s-jobq's name for it.
VARIABLES: Final = ("AMLT_DIRSYNC_DIR", "DAGKIT_SYNC_DIR")

INTERVAL_S: Final = 30.0


class Place(Protocol):
    """Where copies go."""

    def put(self, name: str, file: Path) -> None:
        """Copy a file; `name` is its path in the folder, with slashes. Replaces a copy that is there."""

    def close(self) -> None: ...


class FolderPlace:
    """Another folder, such as storage that is mounted. A copy appears whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def put(self, name: str, file: Path) -> None:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        try:
            shutil.copyfile(file, partial)
            shutil.copymode(file, partial)
            Path(partial).replace(target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def close(self) -> None:
        pass


class BlobPlace:
    """Blobs under `azure://account/container/prefix`. The container is created if it is missing."""

    def __init__(self, account: str, container: str, prefix: str) -> None:
        from dagkit.azure.account import find_account
        from dagkit.azure.connection import Connection

        self._connection = Connection(find_account(account))
        self._container, self._prefix = container, prefix.strip("/")
        self._is_there = False

    def __str__(self) -> str:
        return f"azure://{self._connection.account.name}/{self._container}/{self._prefix}".rstrip("/")

    def put(self, name: str, file: Path) -> None:
        from dagkit.azure.faults import speaking

        with speaking(self._connection.account, f"copying {name} to {self}"):
            container = self._connection.blobs.get_container_client(self._container)
            if not self._is_there:
                self._create(container)
            with file.open("rb") as data:
                container.upload_blob(f"{self._prefix}/{name}".lstrip("/"), data, overwrite=True)

    def _create(self, container: Any) -> None:
        """A container that is there, or that may be used but not created, is the same here: the upload will tell."""
        from azure.core.exceptions import HttpResponseError

        try:
            container.create_container()
        except HttpResponseError as error:
            if error.status_code not in (403, 409):
                raise
        self._is_there = True

    def close(self) -> None:
        self._connection.close()


def place_of(words: str) -> Place:
    """The place that `bg_dirsync_to` names: `azure://account/container/prefix`, the url of a blob folder, or a path.

    `Failure` of kind `config` for anything else.
    """
    url = urlsplit(words)
    path = url.path.strip("/")
    if url.scheme == "azure" or (url.scheme == "https" and ".blob." in url.netloc):
        container, _, prefix = path.partition("/")
        if not url.netloc or not container or url.query:
            raise Failure(f"bg_dirsync_to {words!r}: say azure://<account>/<container>/<prefix>", "config")
        return BlobPlace(url.netloc.partition(".")[0], container, prefix)
    if url.scheme not in ("", "file") or not words.strip():
        raise Failure(f"bg_dirsync_to {words!r}: say azure://<account>/<container>/<prefix>, or a path", "config")
    return FolderPlace(Path(url.path if url.scheme else words).absolute())


class FolderSync:
    """A new folder, for as long as a command runs; what is in it is copied every half a minute and at the end.

    A pass copies the files that have changed since the one before. What is deleted here stays there. A pass that fails
    on the way is said in the task's log, and made up for by the next one.

    Args:
        within: Where the new folder is made.

    Attributes:
        folder: Where the command writes.
        problem: Why the last pass could not copy everything, once it is over; empty if it could.
    """

    def __init__(self, place: Place, within: Path, interval_s: float = INTERVAL_S) -> None:
        self._place, self._interval_s = place, interval_s
        self._copied: dict[str, tuple[int, int]] = {}
        self.problem = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dagkit-folder-sync", daemon=True)
        self.folder = Path(tempfile.mkdtemp(prefix="sync-", dir=within))

    @property
    def variables(self) -> dict[str, str]:
        return dict.fromkeys(VARIABLES, str(self.folder))

    def __enter__(self) -> FolderSync:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The last pass."""
        self._is_over.set()
        self._thread.join()
        try:
            self._pass()
        except (DagkitError, OSError) as problem:
            self.problem = f"its folder could not be copied to {self._place}: {_words(problem)}"
            self._say(problem)
        finally:
            self._place.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s):
            try:
                self._pass()
            except (DagkitError, OSError) as problem:
                self._say(problem)

    def _say(self, problem: Exception) -> None:
        print(f"dagkit: copying to {self._place}: {_words(problem)}", file=sys.stderr, flush=True)  # noqa: T201

    def _pass(self) -> None:
        for name, file in self._files():
            try:
                stat = file.stat()
            except FileNotFoundError:  # deleted meanwhile, or a link to nothing
                continue
            seen = (stat.st_size, stat.st_mtime_ns)
            if self._copied.get(name) == seen:
                continue
            try:
                self._place.put(name, file)
            except FileNotFoundError:
                if file.exists():
                    raise
                continue
            self._copied[name] = seen

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder, _, names in os.walk(self.folder):
            for name in sorted(names):
                file = Path(folder, name)
                yield file.relative_to(self.folder).as_posix(), file


def _words(problem: Exception) -> str:
    return str(problem) if isinstance(problem, DagkitError) else error_text(problem).partition("\n")[0]
