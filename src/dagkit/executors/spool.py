"""The spool: the folder on a shared file system in which jobs find their tasks and leave their completions.

    <root>/jobs/<submission>/manifest     what each job of a submission runs; never changed
    <root>/jobs/<submission>/stop.<job>   places of its pack that are not wanted any more, as a list in JSON
    <root>/done/<submission>.<job>.<place>  a completion, complete when it has this name

A submission has one or more jobs (elements of an array, sub-jobs of a bulk job), a job one or more tasks that it runs
one after the other (places in its pack). The manifest is one file for all jobs: a line of JSON with the offset of each
job's entry, counted from the end of that line, then the entries.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dagkit.disk import make_directory
from dagkit.errors import BackendError, CorruptState
from dagkit.model.messages import Completion, PoisonMessage, TaskMessage

__all__ = ["Arrival", "JobFolder", "Spool"]

log = logging.getLogger(__name__)

_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._+-]{0,99}", re.ASCII)
_DONE: Final = re.compile(r"(?P<submission>[A-Za-z].*)\.(?P<job>\d+)\.(?P<place>\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A completion that a job has left."""

    submission: str
    job: int
    place: int
    completion: Completion
    path: Path


class JobFolder:
    """One submission, as its jobs see it.

    Args:
        path: `<root>/jobs/<submission>`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._done = path.parent.parent / "done"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest"

    def write(self, store_url: str, jobs: Sequence[Sequence[TaskMessage]], options: dict[str, Any]) -> None:
        """Write down what each job runs; durable and complete, or not there. `BackendError` if it cannot be written."""
        entries, offsets, at = [], [], 0
        for messages in jobs:
            entry = json.dumps([[message.queue, message.to_text()] for message in messages]).encode() + b"\n"
            entries.append(entry)
            offsets.append(at)
            at += len(entry)
        head = {"v": _VERSION, "store": store_url, "options": options, "offsets": offsets}
        make_directory(self.path, "making the folder of a job")
        _write_whole(self.manifest, b"".join([json.dumps(head).encode(), b"\n", *entries]), "writing down a job")

    def read(self, job: int) -> tuple[str, list[TaskMessage], dict[str, Any]]:
        """The store's url, the tasks of one job and the options. `CorruptState` if there is no such job."""
        try:
            with self.manifest.open("rb") as file:
                head = json.loads(file.readline())
                begin = file.tell()
                file.seek(begin + head["offsets"][job])
                entry = json.loads(file.readline())
        except OSError as error:
            raise BackendError(f"{self.manifest}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise CorruptState(f"{self.manifest}: holds no job {job} that this version can read") from error
        return head["store"], [TaskMessage.from_text(text, queue=queue) for queue, text in entry], head["options"]

    def read_all(self) -> list[list[TaskMessage]]:
        """The tasks of every job, in order. `BackendError` or `CorruptState` if it cannot be read."""
        try:
            with self.manifest.open("rb") as file:
                head = json.loads(file.readline())
                entries = [json.loads(line) for line in file]
            if len(entries) != len(head["offsets"]):
                raise ValueError
        except OSError as error:
            raise BackendError(f"{self.manifest}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(f"{self.manifest}: is not one that this version can read") from error
        return [[TaskMessage.from_text(text, queue=queue) for queue, text in entry] for entry in entries]

    def finish(self, job: int, place: int, completion: Completion) -> None:
        """Leave a completion; one that is there already stays, so that a job that ran twice reports once."""
        path = self._done / f"{self.path.name}.{job}.{place}"
        if not path.exists():
            _write_whole(path, completion.to_text().encode(), "leaving a completion")

    def stop(self, job: int, places: Iterable[int]) -> None:
        """These places of a job are not wanted any more; the job goes on with its others. Adds to earlier ones."""
        wanted = sorted(self.stops(job) | set(places))
        _write_whole(self.path / f"stop.{job}", json.dumps(wanted).encode(), "stopping a task of a job")

    def stops(self, job: int) -> set[int]:
        """Places of a job that are not wanted any more, as far as it can be seen here."""
        try:
            return set(json.loads((self.path / f"stop.{job}").read_bytes()))
        except (OSError, ValueError, TypeError):  # there is none, or it is not whole yet on this machine
            return set()

    def is_finished(self, job: int, place: int) -> bool:
        """Whether a completion was left, by an earlier run of a job that the scheduler has started again."""
        return (self._done / f"{self.path.name}.{job}.{place}").exists()


class Spool:
    """The spool, as the process that submits sees it. One thread's."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._done = self.root / "done"
        self._seen: set[str] = set()
        make_directory(self._done, "making the spool")

    def folder(self, submission: str) -> JobFolder:
        """The folder of a submission. ValueError for a name that cannot be one."""
        if not _NAME.fullmatch(submission):
            raise ValueError(f"{submission!r} is no name of a submission")
        return JobFolder(self.root / "jobs" / submission)

    def submissions(self) -> list[str]:
        """Names of the submissions that have a folder, whoever made them."""
        try:
            return [entry.name for entry in os.scandir(self.root / "jobs") if _NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BackendError(f"{self.root / 'jobs'}: cannot be listed: {error.strerror}") from error

    def arrivals(self) -> list[Arrival]:
        """Completions that have been left and that were not returned before. `BackendError` if it cannot be looked.

        Looks at names alone until something is new: the files of completions that were taken are removed by `forget`.
        """
        try:
            names = [entry.name for entry in os.scandir(self._done)]
        except OSError as error:
            raise BackendError(f"{self._done}: cannot be listed: {error.strerror}") from error
        found = []
        for name in names:
            match = None if name in self._seen else _DONE.fullmatch(name)
            arrival = None if match is None else self._read(name, match)
            if arrival is not None:
                self._seen.add(name)
                found.append(arrival)
        return found

    def _read(self, name: str, match: re.Match[str]) -> Arrival | None:
        path = self._done / name
        try:
            completion = Completion.from_text(path.read_bytes())
        except OSError:  # not visible yet on this machine: at the next look
            return None
        except PoisonMessage as error:
            log.warning("%s is no completion and is put aside; its task will be found lost: %s", path, error)
            with contextlib.suppress(OSError):
                path.rename(path.with_name(f".unreadable-{name}"))
            return None
        return Arrival(match["submission"], int(match["job"]), int(match["place"]), completion, path)

    def forget(self, arrivals: Iterable[Arrival]) -> None:
        """These are saved elsewhere: remove their files."""
        for arrival in arrivals:
            with contextlib.suppress(OSError):  # one that stays is ignored as a completion that came twice
                arrival.path.unlink()
            self._seen.discard(arrival.path.name)

    def remove(self, submission: str) -> None:
        """Remove the folder of a submission that is over."""
        shutil.rmtree(self.folder(submission).path, ignore_errors=True)


def _write_whole(path: Path, data: bytes, doing: str) -> None:
    """Write, flush to the disk, give the name: on a shared file system others see all of it or nothing."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise BackendError(f"{path}: {doing} failed: {error.strerror}") from error
