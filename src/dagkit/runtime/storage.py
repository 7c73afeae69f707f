"""Outputs and payloads for the tasks of one process: from the store itself, or through whoever has it.

A store that other processes can open is opened here, when it is first needed. A `memory:` store lives in the process of
the executor, which is asked over the pipe.

The modules that encode values are imported when they are needed: a worker that runs only commands starts without them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagkit.errors import DagkitError

if TYPE_CHECKING:
    from dagkit.stores.base import Store

__all__ = ["Ask", "Storage"]

_CACHE_BYTES: Final = 64_000_000
_FEW: Final = 4
_AT_A_TIME: Final = 16
_FETCHED: Final = 128
_INLINE_LIMIT: Final = 32_768  # `values.INLINE_LIMIT`
_PLAIN: Final = frozenset({str, int, float, bool, bytes})

Ask = Callable[[str, Any], Any]
"""`ask(what, about)`: the executor's answer to `output` (a ref), `payload` (a digest), `cancelled` (a workflow id) or
`put` (workflow id, path, bytes): the ref of an output that it has stored."""


class Storage:
    """Reads with a small cache of bytes; values are decoded anew for every task, which may change what it was given."""

    def __init__(self, url: str, ask: Ask) -> None:
        self._url, self._ask = url, ask
        self._opened: Store | None = None
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    @property
    def is_shared(self) -> bool:
        """Whether this process can open the store itself."""
        return not self._url.startswith("memory:")

    @property
    def store(self) -> Store:
        if self._opened is None:
            from dagkit.stores import open_store

            self._opened = open_store(self._url)
        return self._opened

    def output(self, ref: str | None) -> Any:
        """The value behind an output ref."""
        from dagkit.runtime import values

        return values.load_output(ref, self._output_bytes)

    def expect(self, refs: Iterable[str | None]) -> None:
        """These are read next: fetch them several at a time where each costs a request. One that fails fails later."""
        if not self._url.startswith("azure:"):
            return
        wanted = [ref for ref in dict.fromkeys(refs) if ref and ref.startswith("blob:") and ref not in self._cache]
        if len(wanted) < _FEW:
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for start in range(0, len(wanted), _FETCHED):
                for ref, data in pool.map(self._fetched, wanted[start : start + _FETCHED]):
                    if data is not None:
                        self._remember(ref, data)
                if self._cached_bytes > _CACHE_BYTES // 2:
                    return

    def _fetched(self, ref: str) -> tuple[str, bytes | None]:
        try:
            return ref, self.store.get_output(ref)
        except DagkitError:
            return ref, None

    def payload(self, digest: str) -> bytes:
        """The bytes of a payload, or of a file that a task of some run has stored (a `blob:` ref)."""
        return self._cached(digest, "output" if digest.startswith("blob:") else "payload")

    def keep(self, workflow_id: str, task: str, value: Any) -> str | None:
        """The ref of what a task returned, stored if it is large, with its files; None for None.

        Raises `NotPicklable`, `BackendError`, and `UsageError` naming a file that cannot be read.
        """
        if value is None:
            return None
        from dagkit.runtime import values

        if type(value) not in _PLAIN:
            from dagkit.runtime.files import stash_files

            value = stash_files(value, partial(self._put, workflow_id), task=task)
        suffix, data = values.dump_output(value, task)
        if suffix == "json" and len(data) <= values.INLINE_LIMIT:
            return data.decode()
        return self._put(workflow_id, f"{task}.{suffix}", data)

    def keep_text(self, workflow_id: str, task: str, text: str) -> str:
        """The ref of JSON that a task wrote; raises like `keep`."""
        if "__jobq_stash__" in text:
            from dagkit.runtime.files import stash_files

            text = json.dumps(stash_files(json.loads(text), partial(self._put, workflow_id), task=task))
        data = text.encode()
        return text if len(data) <= _INLINE_LIMIT else self._put(workflow_id, f"{task}.json", data)

    def _put(self, workflow_id: str, path: str, data: bytes) -> str:
        if self.is_shared:
            return self.store.put_output(workflow_id, path, data)
        return str(self._ask("put", (workflow_id, path, data)))

    def is_cancelled(self, workflow_id: str) -> bool:
        if self.is_shared:
            return workflow_id in self.store.cancel_requested([workflow_id])
        return bool(self._ask("cancelled", workflow_id))

    def log_path(self, workflow_id: str, task: str, attempt: str) -> Path | None:
        """Where the log of an attempt belongs; None if this process cannot know."""
        return self.store.log_path(workflow_id, task, attempt) if self.is_shared else None

    def _output_bytes(self, ref: str) -> bytes:
        return self._cached(ref, "payload" if ref.startswith("sha256:") else "output")

    def _cached(self, key: str, what: str) -> bytes:
        data = self._cache.get(key)
        if data is not None:
            self._cache.move_to_end(key)
            return data
        if not self.is_shared:
            data = self._ask(what, key)
        elif what == "output":
            data = self.store.get_output(key)
        else:
            data = self.store.get_payload(key)
        self._remember(key, data)
        return data

    def _remember(self, key: str, data: bytes) -> None:
        self._cache[key] = data
        self._cached_bytes += len(data)
        while self._cached_bytes > _CACHE_BYTES and self._cache:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= len(dropped)
