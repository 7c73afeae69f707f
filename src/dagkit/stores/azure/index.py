"""The index table: a row for each run, derived from its state but for the cancel flag (facts: jobq 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import UpdateMode

from dagkit.azure.connection import Connection
from dagkit.azure.faults import code_of, speaking
from dagkit.model.names import partition_key
from dagkit.model.records import Counts, RunRow
from dagkit.model.states import RunStatus
from dagkit.stores import documents

__all__ = ["Entry", "IndexTable"]

_REPEATABLE: Final = ("GET", "PUT", "DELETE", "PATCH")  # a merge of values may be repeated; azure-core does not know
_ERROR_CHARS: Final = 2_000  # a row holds 1 MiB, a text in it 32 Ki characters
_QUEUES_CHARS: Final = 30_000
_GROUPS_CHARS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Entry:
    """What a row says about a run when its state changes; None leaves a column as it is."""

    status: str
    counts: Counts
    error: str | None
    definition: Mapping[str, Any] | None = None
    groups: Mapping[str, Sequence[int]] | None = None


class IndexTable:
    """Rows of one table, which is made at the first write. Thread-safe. Failures are `BackendError`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name

    @property
    def _table(self) -> Any:
        return self.connection.tables.get_table_client(self.name)

    def put_new(self, workflow_id: str, entry: Entry, now: float) -> None:
        """Write the whole row of a run that was just created; what an earlier one of this id left is gone."""
        row = {**_columns(workflow_id, entry, now), "created_at": _time(now), "cancel_requested": False}
        self._upsert(row, UpdateMode.REPLACE, f"creating run {workflow_id}")

    def refresh(self, workflow_id: str, entry: Entry, now: float) -> None:
        """Bring the row up to date; the cancel flag stays as it is."""
        self._upsert(
            _columns(workflow_id, entry, now), UpdateMode.MERGE, f"updating the index row of run {workflow_id}"
        )

    def _upsert(self, row: dict[str, Any], mode: UpdateMode, doing: str) -> None:
        with speaking(self.connection.account, doing):
            try:
                self._table.upsert_entity(row, mode=mode, retry_on_methods=_REPEATABLE)
            except ResourceNotFoundError as error:
                if code_of(error) != "TableNotFound":
                    raise
                self.make()
                self._table.upsert_entity(row, mode=mode, retry_on_methods=_REPEATABLE)

    def make(self) -> None:
        """Create the table if it is missing; the SDK's errors."""
        try:
            self.connection.tables.create_table(self.name)
        except ResourceExistsError as error:
            if code_of(error) != "TableAlreadyExists":
                raise

    def get(self, workflow_id: str, doing: str) -> dict[str, Any] | None:
        """The row as it is stored, or None."""
        with speaking(self.connection.account, doing):
            try:
                return dict(self._table.get_entity(partition_key(workflow_id), workflow_id))
            except ResourceNotFoundError:
                return None

    def query(self, condition: str, doing: str) -> Iterator[dict[str, Any]]:
        """Rows that meet an OData condition; all of them if it is empty."""
        with speaking(self.connection.account, doing):
            try:
                table = self._table
                found = table.query_entities(condition) if condition else table.list_entities()
                for row in found:
                    yield dict(row)
            except ResourceNotFoundError:
                return

    def set_cancel(self, workflow_id: str, value: bool, doing: str) -> bool:
        """Set or clear the flag; False if there is no such row."""
        row = {"PartitionKey": partition_key(workflow_id), "RowKey": workflow_id, "cancel_requested": value}
        with speaking(self.connection.account, doing):
            try:
                self._table.update_entity(row, mode=UpdateMode.MERGE, retry_on_methods=_REPEATABLE)
            except ResourceNotFoundError:
                return False
        return True

    def delete(self, workflow_id: str) -> bool:
        """Remove the row; False if there was none."""
        if self.get(workflow_id, f"deleting run {workflow_id}") is None:
            return False
        with speaking(self.connection.account, f"deleting run {workflow_id}"):
            self._table.delete_entity(partition_key(workflow_id), workflow_id)
        return True


def states_condition(statuses: Collection[RunStatus]) -> str:
    """The OData condition for rows of these statuses."""
    return " or ".join(f"workflow_state eq '{status.value}'" for status in statuses)


def run_row(row: Mapping[str, Any], driven_by: str | None, *, with_groups: bool = False) -> RunRow:
    """A row as the rest of dagkit knows it; `with_groups` with the counts by group, if they are true of its counts."""
    counts = _counts(row)
    groups = documents.groups_from_text(row.get("groups") or "", counts) if with_groups else {}
    queues = tuple(filter(None, str(row.get("queues_used") or "").split(",")))
    return RunRow(
        workflow_id=row["RowKey"],
        name=row.get("name") or "",
        status=documents.status_of(row.get("workflow_state") or ""),
        counts=counts,
        created_at=_seconds(row.get("created_at")),
        updated_at=_seconds(row.get("updated_at")),
        default_queue=row.get("default_queue") or "default",
        queues_used=queues,
        cancel_requested=bool(row.get("cancel_requested")),
        error=row.get("error") or "",
        driven_by=driven_by,
        extra={"groups": groups} if groups else {},
    )


def is_over(row: Mapping[str, Any]) -> bool:
    """Whether the run of a row has ended."""
    status = documents.status_of(row.get("workflow_state") or "")
    return isinstance(status, RunStatus) and status.is_over


def _columns(workflow_id: str, entry: Entry, now: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "PartitionKey": partition_key(workflow_id),
        "RowKey": workflow_id,
        "workflow_state": entry.status,
        "error": (entry.error or "")[:_ERROR_CHARS],
        "updated_at": _time(now),
        "counts": documents.counts_to_text(entry.counts),
        "groups": documents.groups_to_text(entry.groups or {}, _GROUPS_CHARS),
        **{f"{word}_tasks": number for word, number in entry.counts.grouped().items()},
    }
    if entry.definition is not None:
        row["name"] = entry.definition.get("name", "")
        row["default_queue"] = entry.definition.get("default_queue", "default")
        row["queues_used"] = ",".join(documents.queues_used(entry.definition))[:_QUEUES_CHARS]
    return row


def _counts(row: Mapping[str, Any]) -> Counts:
    """The counts by state if dagkit wrote the row last, else what the columns of ai4s-jobq tell of them."""
    told = {word: int(row.get(f"{word}_tasks") or 0) for word in Counts().grouped()}
    text = row.get("counts")
    counts = documents.counts_from_text(text) if text else None
    if counts is not None and counts.grouped() == told:
        return counts
    return Counts(told["completed"], told["failed"], 0, told["skipped"], 0, told["running"], 0, told["pending"])


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _seconds(value: Any) -> float:
    """A time of a row; ai4s-jobq has written some as texts."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return 0.0
    return value.timestamp() if isinstance(value, datetime) else 0.0
