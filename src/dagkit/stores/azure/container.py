"""One blob container: whole blobs with conditions, so that no write is lost and none is taken for another's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from dagkit.azure.connection import Connection
from dagkit.azure.faults import code_of, speaking

__all__ = ["ABSENT", "Blob", "Container", "Unchanged", "WriteRefused"]

ABSENT: Final = "absent"
"""As a condition: the blob must not exist."""

_TOKEN: Final = "dagkitwrite"
_REFUSALS: Final = (409, 412)


class WriteRefused(Exception):
    """The condition of a write does not hold: the blob is another, is there already, or is gone."""


class Unchanged(Exception):
    """The blob is still the one that the reader knows."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as it was read; `data` is empty where only its properties were asked for."""

    name: str
    data: bytes
    etag: str
    metadata: dict[str, str]
    size: int = 0
    written_at: float = 0.0


class Container:
    """Blobs of one container, which is made at the first write. Thread-safe. Failures are `BackendError`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name

    def blob(self, name: str) -> Any:
        """The SDK's client of one blob."""
        return self.connection.blobs.get_blob_client(self.name, name)

    def get(self, name: str, doing: str, *, unless: str | None = None) -> Blob | None:
        """The blob, or None if there is none. `Unchanged` if its etag is still `unless`."""
        condition: dict[str, Any] = {}
        if unless is not None:
            condition = {"etag": unless, "match_condition": MatchConditions.IfModified}
        with speaking(self.connection.account, doing):
            try:
                stream = self.blob(name).download_blob(**condition)
                data = stream.readall()
            except ResourceNotFoundError as error:
                _require_blob_code(error)
                return None
            except HttpResponseError as error:
                if error.status_code == 304:
                    raise Unchanged from None
                raise
        properties = stream.properties
        return Blob(name, data, properties.etag, dict(properties.metadata or {}), len(data))

    def part(self, name: str, offset: int, length: int | None, doing: str) -> bytes:
        """Bytes from `offset`; empty where there are none."""
        with speaking(self.connection.account, doing):
            try:
                data: bytes = self.blob(name).download_blob(offset=offset, length=length).readall()
            except ResourceNotFoundError:
                return b""
            except HttpResponseError as error:
                if error.status_code == 416:  # nothing at that place
                    return b""
                raise
        return data

    def head(self, name: str, doing: str) -> Blob | None:
        """The blob's properties."""
        with speaking(self.connection.account, doing):
            try:
                found = self.blob(name).get_blob_properties()
            except ResourceNotFoundError as error:
                _require_blob_code(error)
                return None
        return Blob(name, b"", found.etag, dict(found.metadata or {}), found.size)

    def put(
        self, name: str, data: bytes, doing: str, *, only_if: str | None = None, metadata: Mapping[str, str] = {}
    ) -> str:
        """Write the whole blob and return its etag.

        Args:
            only_if: The etag that the blob must have, or `ABSENT`; else `WriteRefused`. A refusal may be the echo of
                our own write whose answer was lost: then the blob bears the mark of this write, and it counts.
        """
        token = secrets.token_hex(8)
        marked = {**metadata, _TOKEN: token} if only_if is not None else dict(metadata)
        with speaking(self.connection.account, doing):
            try:
                return self._upload(name, data, only_if, marked)
            except HttpResponseError as error:
                if only_if is None or not _is_refusal(error):
                    raise
        found = self.head(name, doing)
        if found is None or found.metadata.get(_TOKEN) != token:
            raise WriteRefused(name)
        return found.etag

    def _upload(self, name: str, data: bytes, only_if: str | None, metadata: Mapping[str, str]) -> str:
        def upload() -> str:
            condition: dict[str, Any] = {"overwrite": only_if != ABSENT}
            if only_if not in (None, ABSENT):
                condition |= {"etag": only_if, "match_condition": MatchConditions.IfNotModified}
            return str(self.blob(name).upload_blob(data, metadata=metadata, **condition)["etag"])

        return str(self.made(upload))

    def made(self, write: Any) -> Any:
        """What `write` returns; if the container is missing, make it and write again."""
        try:
            return write()
        except ResourceNotFoundError as error:
            if code_of(error) != "ContainerNotFound":
                raise
        self.make()
        return write()

    def make(self) -> None:
        """Create the container if it is missing; the SDK's errors."""
        try:
            self.connection.blobs.create_container(self.name)
        except ResourceExistsError as error:
            if code_of(error) != "ContainerAlreadyExists":
                raise

    def delete(self, name: str, doing: str, *, only_if: str | None = None) -> bool:
        """Remove a blob. True if it was there, and was the one meant by `only_if`."""
        condition: dict[str, Any] = {}
        if only_if is not None:
            condition = {"etag": only_if, "match_condition": MatchConditions.IfNotModified}
        with speaking(self.connection.account, doing):
            try:
                self.blob(name).delete_blob(**condition)
            except ResourceNotFoundError:
                return False
            except HttpResponseError as error:
                if only_if is None or not _is_refusal(error):
                    raise
                return False
        return True

    def list(self, prefix: str, doing: str) -> Iterator[Blob]:
        """Properties of the blobs whose names begin so."""
        with speaking(self.connection.account, doing):
            try:
                client = self.connection.blobs.get_container_client(self.name)
                for found in client.list_blobs(name_starts_with=prefix, include=["metadata"]):
                    written_at = found.last_modified.timestamp()
                    yield Blob(found.name, b"", found.etag, dict(found.metadata or {}), found.size, written_at)
            except ResourceNotFoundError as error:
                _require_blob_code(error)


def _require_blob_code(error: ResourceNotFoundError) -> None:
    """A missing blob, or a container that nobody has written to yet, is an answer; anything else missing is not."""
    if code_of(error) not in ("BlobNotFound", "ContainerNotFound", "ResourceNotFound", ""):
        raise error


def _is_refusal(error: HttpResponseError) -> bool:
    return error.status_code in _REFUSALS or isinstance(error, ResourceNotFoundError)
