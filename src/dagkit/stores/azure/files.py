"""Outputs, payloads, logs and the cache of results as blobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from dagkit.azure.faults import code_of, speaking
from dagkit.errors import BackendError
from dagkit.stores.azure.blob_names import FILES, log_blob, output_blob, payload_blob, result_blob
from dagkit.stores.azure.container import Container
from dagkit.stores.payloads import check_payload, digest_of, hex_of, is_blob, output_parts, output_ref

__all__ = ["StoredBlobs"]

_BLOCK_BYTES: Final = 4 << 20  # the most that one append may carry (Append Block, versions before 2022-11-02)

Item = TypeVar("Item")
Result = TypeVar("Result")


class StoredBlobs:
    """The half of a store that keeps bytes. Logs lie beside the outputs of their run and go with them."""

    url: str
    _state: Container
    _outputs: Container
    _files: Container
    _pool: Callable[[], ThreadPoolExecutor]

    # --- outputs

    def put_output(self, workflow_id: str, path: str, data: bytes) -> str:
        container, name = self._place(workflow_id, path)
        container.put(name, bytes(data), f"writing an output of run {workflow_id}")
        return output_ref(workflow_id, path)

    def get_output(self, ref: str) -> bytes:
        container, name = self._place(*output_parts(ref))
        found = container.get(name, f"reading the output {ref}")
        if found is None:
            raise BackendError(
                f"the output {ref} is not in {self.url}. It was deleted, or written to another store; "
                f"run its task again (dagkit retry, or rerun)."
            )
        return found.data

    def _place(self, workflow_id: str, path: str) -> tuple[Container, str]:
        """Files have a container of their own, in which the folder comes before the run (facts: jobq 7.1)."""
        folder, _, rest = path.partition("/")
        if folder == FILES and rest:
            return self._files, f"{FILES}/{output_blob(workflow_id, rest)}"
        return self._outputs, output_blob(workflow_id, path)

    # --- payloads

    def put_payload(self, data: bytes) -> str:
        digest = digest_of(data)
        name = payload_blob(hex_of(digest))
        found = self._state.head(name, "looking for a payload")
        if found is None or found.size != len(data):
            self._state.put(name, bytes(data), "writing a payload")
        return digest

    def get_payload(self, digest: str) -> bytes:
        found = self._state.get(payload_blob(hex_of(digest)), f"reading the payload {digest}")
        if found is None:
            raise BackendError(f"the payload {digest} is not in {self.url}. Submit the run again to store it anew.")
        return check_payload(found.data, digest, self.url)

    # --- logs

    def log_path(self, workflow_id: str, task: str, attempt: str) -> Path | None:
        """None: logs are sent."""
        return None

    def append_log(self, workflow_id: str, task: str, attempt: str, offset: int, data: bytes) -> None:
        """As in `Store`; costs one request for each 4 MiB where nothing is in the way."""
        name, doing = log_blob(workflow_id, task, attempt), f"writing the log of {task}"
        blob = self._outputs.blob(name)
        with speaking(self._outputs.connection.account, doing):
            while data:
                block = data[:_BLOCK_BYTES]
                try:
                    blob.append_block(block, appendpos_condition=offset)
                except ResourceNotFoundError:
                    self._outputs.made(blob.create_append_blob)
                except HttpResponseError as error:
                    if code_of(error) != "AppendPositionConditionNotMet":
                        raise
                    offset, data = _rest_of(blob, offset, data)
                else:
                    offset, data = offset + len(block), data[len(block) :]

    def read_log(self, workflow_id: str, task: str, attempt: str, offset: int = 0, limit: int | None = None) -> bytes:
        name, doing = log_blob(workflow_id, task, attempt), f"reading the log of {task}"
        if limit == 0:
            return b""
        if offset < 0:
            found = self._outputs.head(name, doing)
            offset = max(0, (found.size if found else 0) + offset)
        return self._outputs.part(name, offset, limit, doing)

    # --- cache of results

    def cached(self, fingerprints: Collection[str]) -> dict[str, str]:
        """As in `Store`; a result whose output was deleted or replaced is not offered."""
        found = self._each(self._result, dict.fromkeys(fingerprints))
        return {fingerprint: ref for fingerprint, ref in found if ref is not None}

    def _result(self, fingerprint: str) -> tuple[str, str | None]:
        doing = "looking for cached results"
        found = self._state.get(result_blob(fingerprint), doing)
        if found is None:
            return fingerprint, None
        ref = found.data.decode()
        return fingerprint, ref if self._etag_behind(ref, doing) == found.metadata.get("output") else None

    def remember(self, results: Sequence[tuple[str, str]]) -> None:
        self._each(self._remember, dict(results).items())

    def _remember(self, result: tuple[str, str]) -> None:
        fingerprint, ref = result
        doing = "recording results for the cache"
        etag = self._etag_behind(ref, doing)
        if etag is not None:
            self._state.put(result_blob(fingerprint), ref.encode(), doing, metadata={"output": etag})

    def _etag_behind(self, ref: str, doing: str) -> str | None:
        """Which writing of an output it is; `inline` for one without a blob, None for one that is not there."""
        if not is_blob(ref):
            return "inline"
        container, name = self._place(*output_parts(ref))
        found = container.head(name, doing)
        return found.etag.strip('"') if found else None

    def _each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results of a call for each item, several at a time."""
        todo = list(items)
        if len(todo) < 2:
            return [function(item) for item in todo]
        return list(self._pool().map(function, todo))


def _rest_of(blob: Any, offset: int, data: bytes) -> tuple[int, bytes]:
    """What is still to be appended, given what the log has: nothing twice, and a hole is filled with zeros."""
    size = blob.get_blob_properties().size
    if size >= offset:
        return size, data[size - offset :]
    return size, bytes(offset - size) + data
