"""What pjstat prints, read: the table, the CSV of `--data`, the records of `-s`, the counts of `--summary`.

Columns are found by their header, never by position (facts: pjm 2). A row that cannot be read whole, because the answer
was cut off or an id ran into the next column, is counted as dropped and never half-read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dagkit.errors import BackendError
from dagkit.executors.pjm.cells import Nodes, Start, date_of, nodes_of, number_of, seconds_of, start_of, text_of
from dagkit.executors.pjm.ids import JobId

__all__ = ["Listing", "Row", "bad_ids", "read_csv", "read_records", "read_summary", "read_table"]

_HEADER: Final = re.compile(r"\S+")
_BAD_ID: Final = re.compile(r"\[ERR\.\] PJM 0211 pjstat Invalid jobid: (.*?)\.?\s*$", re.MULTILINE)
_RECORD: Final = re.compile(r" ([A-Z][A-Z ()/_.-]*?) +: (.*)")
_RECORD_COLUMNS: Final = {
    "JOB ID": "JOB_ID",
    "JOB NAME": "JOB_NAME",
    "STATE": "ST",
    "NODE NUM (REQUIRE)": "NODE_REQUIRE",
    "ELAPSE TIME (LIMIT)": "ELAPSE_LIM",
    "ELAPSE TIME (USE)": "ELAPSE_TIM",
    "JOB START DATE": "START_DATE",
    "ACCEPT DATE": "ACCEPT",
    "RESOURCE GROUP": "RSC_GRP",
    "EXIT CODE": "EC",
    "SIGNAL NO": "SN",
    "PJM CODE": "PC",
    "REASON": "REASON",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One job or sub-job as pjstat shows it; None for what it does not say (`-`, or a column that is not there).

    Attributes:
        name: Cut to the column in the table: nothing may be looked up by it there.
        st, lst: State, and the one before.
        ec, pc, sn: Exit code, PJM code, signal.
        limit_s: The upper end, where a range of elapse times was asked for.
    """

    id: JobId
    name: str | None = None
    md: str | None = None
    st: str | None = None
    lst: str | None = None
    start: Start | None = None
    elapse_s: int | None = None
    limit_s: int | None = None
    nodes: Nodes | None = None
    ec: int | None = None
    pc: int | None = None
    sn: int | None = None
    pri: int | None = None
    accept: datetime | None = None
    rscgrp: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Listing:
    """Rows in the order in which they were printed, and how many could not be read."""

    rows: list[Row] = field(default_factory=list)
    dropped: int = 0

    def add(self, row: Row | None) -> None:
        if row is None:
            self.dropped += 1
        else:
            self.rows.append(row)


def read_csv(text: str, now: datetime, known: dict[str, Row] | None = None) -> Listing:
    """The answer to `pjstat --data`: `H` before the names, nothing before the cells. `BackendError` if it is none.

    Text is not quoted: what is too much belongs to the last column.

    Args:
        known: Rows by their lines, of answers with the same columns and without dates; new ones are added.
    """
    listing, names = Listing(), list[str]()
    rows = {} if known is None else known
    for line in text.splitlines():
        row = rows.get(line)
        if row is not None and names:
            listing.rows.append(row)
            continue
        head, *cells = line.split(",")
        if head == "H":
            names = [cell.strip() for cell in cells]
            _check_names(names)
        elif not line.strip():
            continue
        elif not names:
            raise _unreadable(line)
        elif head.strip() or len(cells) < len(names):
            listing.dropped += 1
        else:
            last = len(names) - 1
            cells = [*cells[:last], ",".join(cells[last:])]
            row = _row(dict(zip(names, cells, strict=True)), now)
            listing.add(row)
            if row is not None:
                rows[line] = row
    return listing


def read_table(text: str, now: datetime) -> Listing:
    """The table, of `-v` or `--choose`. `BackendError` for the table of another kind of site."""
    listing, columns = Listing(), list[tuple[str, int]]()
    for line in text.splitlines():
        if line.split(None, 1)[:1] == ["JOB_ID"]:
            columns = [(match[0], match.start()) for match in _HEADER.finditer(line)]
            _check_names([name for name, _ in columns])
        elif columns and line.strip():
            cells = _cells(line, columns)
            listing.add(None if cells is None else _row(cells, now))
    if not columns and text.strip():
        raise _unreadable(text.strip().splitlines()[0])
    return listing


def read_records(text: str, now: datetime) -> Listing:
    """The records of `-s`, `-S` and `.stats` files: ` KEY    : value`, an empty line between two of them."""
    listing = Listing()
    for block in re.split(r"\n\s*\n", text):
        pairs = [match.groups() for line in block.splitlines() if (match := _RECORD.fullmatch(line.rstrip("\r")))]
        cells = {_RECORD_COLUMNS[key]: value for key, value in pairs if key in _RECORD_COLUMNS}
        if "JOB_ID" in cells:
            listing.add(_row(cells, now))
    return listing


def read_summary(text: str) -> dict[str, int]:
    """Jobs by the words of the header (`RUNING` as it is printed); empty if there is no such table."""
    names: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["ACCEPT"]:
            names = words
        elif names and words and all(word.isascii() and word.isdigit() for word in words) and len(words) == len(names):
            return {name: int(word) for name, word in zip(names, words, strict=True)}
    return {}


def bad_ids(stderr: str) -> list[str]:
    """Ids that pjstat called invalid: one of them fails the whole question."""
    return _BAD_ID.findall(stderr)


def _check_names(names: list[str]) -> None:
    if "JOB_ID" not in names or "STATUS" in names:
        raise _unreadable(" ".join(names))


def _unreadable(line: str) -> BackendError:
    return BackendError(
        f"pjstat printed what is not Fugaku's format: {line[:80]!r}. If this site has a pjstat of its own, it needs a "
        f"dialect of its own."
    )


def _cells(line: str, columns: list[tuple[str, int]]) -> dict[str, str] | None:
    """Cells by name; an id that is too long for its column pushes the rest of its row to the right."""
    first, begin = line.split(None, 1)[0], len(line) - len(line.lstrip())
    if JobId.parse(first) is None:
        return None
    width = columns[1][1] - columns[0][1] if len(columns) > 1 else len(line)
    shift = max(0, begin + len(first) + 1 - width)
    starts = [columns[0][1], *(start + shift for _, start in columns[1:])]
    if len(line) < starts[-1]:
        return None  # cut off
    if any(start > 0 and line[start - 1] != " " for start in starts[1:]):
        return None
    ends = [*starts[1:], len(line)]
    return {name: line[start:end] for (name, _), start, end in zip(columns, starts, ends, strict=True)}


def _row(cells: Mapping[str, str], now: datetime) -> Row | None:
    job = JobId.parse(cells["JOB_ID"].strip())
    if job is None:
        return None

    def get(name: str) -> str:
        return cells.get(name, "")

    return Row(
        job,
        text_of(get("JOB_NAME")),
        text_of(get("MD")),
        text_of(get("ST")),
        text_of(get("LST")),
        start_of(get("START_DATE"), now),
        seconds_of(_first(get("ELAPSE_TIM"))),
        seconds_of(_first(get("ELAPSE_LIM"))),
        nodes_of(get("NODE_REQUIRE")),
        number_of(get("EC")),
        number_of(get("PC")),
        number_of(get("SN")),
        number_of(get("PRI")),
        date_of(get("ACCEPT"), now),
        text_of(get("RSC_GRP")),
        text_of(get("REASON")),
    )


def _first(cell: str) -> str:
    """Without the seconds in brackets that records add."""
    return cell.partition(" (")[0]
