"""The documents of runs as blobs: `W.def.bin`, written once, and `W.state.bin`, every write under the last etag.

The state blob's metadata say which definition belongs to it. So a run that is resumed with changed code changes both at
one moment: when its state is written.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagkit.errors import StateConflict, UnknownRun, WorkflowExists
from dagkit.model.records import StateChanges
from dagkit.stores import documents
from dagkit.stores.azure import single_blob
from dagkit.stores.azure.container import ABSENT, Blob, Container, Unchanged, WriteRefused
from dagkit.stores.base import StoredRun

__all__ = ["RunBlobs"]

_CACHED: Final = 4
_LARGE_BYTES: Final = 20_000
"""Packed; a document of that size takes 50 times as much in memory, and is read again rather than kept."""


@dataclass(frozen=True, slots=True)
class _Version:
    """One writing of a state: the blob's etag, which run of this id it is, and which of its definitions."""

    etag: str
    run: str = ""
    revision: int = 0

    @classmethod
    def of(cls, blob: Blob) -> _Version:
        revision = blob.metadata.get("revision", "")
        return cls(blob.etag, blob.metadata.get("run", ""), int(revision) if revision.isdecimal() else 0)

    @classmethod
    def parse(cls, text: str) -> _Version | None:
        etag, run, revision, *rest = (*text.split("|"), "", "")
        return cls(etag, run, int(revision)) if etag and revision.isdecimal() and not any(rest) else None

    @property
    def text(self) -> str:
        return f"{self.etag}|{self.run}|{self.revision}"

    @property
    def metadata(self) -> dict[str, str]:
        return {"run": self.run, "revision": str(self.revision)} if self.run else {}

    @property
    def is_single_blob(self) -> bool:
        return self.run == single_blob.RUN


class RunBlobs:
    """Definitions and states in one container. Thread-safe."""

    def __init__(self, container: Container, url: str) -> None:
        self.container, self.url = container, url
        self._lock = threading.Lock()
        self._definitions: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._tasks: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {}

    # --- writing

    def create(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[str, bool]:
        """(etag, whether the state is new). An interrupted submit of the same definition is completed."""
        doing = f"creating run {workflow_id}"
        if self.container.head(single_blob.name_of(workflow_id), doing) is not None:
            raise WorkflowExists(workflow_id)
        try:
            self.container.put(_definition_blob(workflow_id), documents.pack(definition), doing, only_if=ABSENT)
        except WriteRefused:
            self._require_same(workflow_id, definition, doing)
        version = _Version("", secrets.token_hex(8))
        try:
            etag = self.container.put(
                _state_blob(workflow_id), documents.pack(state), doing, only_if=ABSENT, metadata=version.metadata
            )
        except WriteRefused:
            return self._current(workflow_id, doing).text, False
        return _Version(etag, version.run).text, True

    def _require_same(self, workflow_id: str, definition: Mapping[str, Any], doing: str) -> None:
        found = self.container.get(_definition_blob(workflow_id), doing)
        if found is None:
            raise WorkflowExists(workflow_id, "it is being deleted")
        stored = documents.unpack(found.data, f"definition of run {workflow_id}")
        mine = documents.unpack(documents.pack(definition), f"definition of run {workflow_id}")
        if {**stored, "created_at": ""} != {**mine, "created_at": ""}:
            raise WorkflowExists(workflow_id, f"a run of {stored.get('name')!r}")

    def save(self, workflow_id: str, changes: StateChanges, etag: str) -> str:
        doing, version = f"saving run {workflow_id}", _Version.parse(etag)
        if version is None:
            self._current(workflow_id, doing)
            raise StateConflict(workflow_id)
        if version.is_single_blob:
            return self._save_apart(workflow_id, changes, version, doing)
        return self._write(workflow_id, changes.document(), version, doing).text

    def _write(self, workflow_id: str, state: Mapping[str, Any], version: _Version, doing: str) -> _Version:
        try:
            etag = self.container.put(
                _state_blob(workflow_id),
                documents.pack(state),
                doing,
                only_if=version.etag,
                metadata=version.metadata,
            )
        except WriteRefused:
            self._current(workflow_id, doing)
            raise StateConflict(workflow_id) from None
        return _Version(etag, version.run, version.revision)

    def _save_apart(self, workflow_id: str, changes: StateChanges, version: _Version, doing: str) -> str:
        """The first save of a run that ai4s-jobq stored as one blob makes two of it (facts: jobq 7.1)."""
        found = self.container.get(single_blob.name_of(workflow_id), doing)
        if found is None or found.etag != version.etag:
            raise StateConflict(workflow_id)
        definition, _ = single_blob.split(found.data, workflow_id)
        new = _Version("", secrets.token_hex(8))
        packed = documents.pack(changes.document())
        try:
            self.container.put(_definition_blob(workflow_id), documents.pack(definition), doing)
            etag = self.container.put(_state_blob(workflow_id), packed, doing, only_if=ABSENT, metadata=new.metadata)
        except WriteRefused:
            raise StateConflict(workflow_id) from None
        return _Version(etag, new.run).text

    def replace(self, workflow_id: str, definition: Mapping[str, Any], state: Mapping[str, Any], etag: str) -> str:
        doing = f"replacing run {workflow_id}"
        current, version = self._current(workflow_id, doing), _Version.parse(etag)
        if version is None or version.etag != current.etag:
            raise StateConflict(workflow_id)
        packed = documents.pack(definition)
        new = _Version(current.etag, current.run or secrets.token_hex(8), current.revision + 1)
        self.container.put(_definition_blob(workflow_id, new.revision), packed, doing)
        written = self._write(workflow_id, state, new, doing)
        # For ai4s-jobq, which knows this name alone; whoever dies before has changed nothing for us.
        self.container.put(_definition_blob(workflow_id), packed, doing)
        return written.text

    def delete(self, workflow_id: str) -> bool:
        """Remove the documents; True if there was a state. The state goes first: without it there is no run."""
        doing = f"deleting run {workflow_id}"
        found = self.container.delete(_state_blob(workflow_id), doing)
        found = self.container.delete(single_blob.name_of(workflow_id), doing) or found
        mine = re.compile(re.escape(workflow_id) + r"\.def\.(\d+\.)?bin")
        for blob in list(self.container.list(f"{workflow_id}.def.", doing)):
            if mine.fullmatch(blob.name):
                self.container.delete(blob.name, doing)
        with self._lock:
            self._tasks.pop(workflow_id, None)
        return found

    # --- reading

    def stored(self) -> dict[str, float]:
        """When the definition of each run was written, by id; revisions left out."""
        found = self.container.list("", "looking for interrupted submits")
        ending = ".def.bin"
        return {blob.name[: -len(ending)]: blob.written_at for blob in found if blob.name.endswith(ending)}

    def load(self, workflow_id: str) -> StoredRun:
        doing = f"loading run {workflow_id}"
        found = self.container.get(_state_blob(workflow_id), doing)
        if found is None:
            return self._load_single(workflow_id, doing)
        version = _Version.of(found)
        state = documents.unpack(found.data, f"state of run {workflow_id}")
        return StoredRun(self._definition(workflow_id, version, doing), state, version.text)

    def _load_single(self, workflow_id: str, doing: str) -> StoredRun:
        found = self.container.get(single_blob.name_of(workflow_id), doing)
        if found is None:
            raise UnknownRun(workflow_id, self.url)
        definition, state = single_blob.split(found.data, workflow_id)
        return StoredRun(definition, state, _Version(found.etag, single_blob.RUN).text)

    def load_definition(self, workflow_id: str) -> dict[str, Any]:
        """As in `Store`; the last few are kept, so do not modify what is returned."""
        doing = f"loading the definition of run {workflow_id}"
        version = self._current(workflow_id, doing)
        if version.is_single_blob:
            return self._load_single(workflow_id, doing).definition
        return self._definition(workflow_id, version, doing)

    def _definition(self, workflow_id: str, version: _Version, doing: str) -> dict[str, Any]:
        key = (workflow_id, version.run, version.revision)
        if version.run and key in self._definitions:
            return self._definitions[key]
        found = self.container.get(_definition_blob(workflow_id, version.revision), doing)
        if found is None:
            raise UnknownRun(workflow_id, self.url)
        document = documents.unpack(found.data, f"definition of run {workflow_id}")
        if len(found.data) > _LARGE_BYTES:
            return document
        with self._lock:
            self._definitions[key] = document
            while len(self._definitions) > _CACHED:
                del self._definitions[next(iter(self._definitions))]
        return document

    def tasks(self, workflow_id: str) -> dict[str, dict[str, Any]]:
        """Entries of the state by name. Shared between callers: do not modify them."""
        doing = f"looking at tasks of run {workflow_id}"
        etag, known = self._tasks.get(workflow_id, (None, {}))
        try:
            found = self.container.get(_state_blob(workflow_id), doing, unless=etag)
        except Unchanged:
            return known
        if found is None:
            return dict(self._load_single(workflow_id, doing).state["tasks"])
        state = documents.unpack(found.data, f"state of run {workflow_id}")
        tasks = {name: entry for name, entry in state.get("tasks", {}).items() if entry}
        if len(found.data) > _LARGE_BYTES:
            self._tasks.clear()  # of large ones the last alone
        with self._lock:
            self._tasks[workflow_id] = (found.etag, tasks)
            while len(self._tasks) > _CACHED:
                del self._tasks[next(iter(self._tasks))]
        return tasks

    def _current(self, workflow_id: str, doing: str) -> _Version:
        """The version that is stored now. `UnknownRun` if there is none."""
        found = self.container.head(_state_blob(workflow_id), doing)
        if found is not None:
            return _Version.of(found)
        found = self.container.head(single_blob.name_of(workflow_id), doing)
        if found is None:
            raise UnknownRun(workflow_id, self.url)
        return _Version(found.etag, single_blob.RUN)


def _definition_blob(workflow_id: str, revision: int = 0) -> str:
    return f"{workflow_id}.def.{revision}.bin" if revision else f"{workflow_id}.def.bin"


def _state_blob(workflow_id: str) -> str:
    return f"{workflow_id}.state.bin"
