"""How much PJM would take, from `pjstat --limit` (facts: pjm 3 and 8.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from dagkit.engine.gate import Capacity, Constraint, Room

__all__ = ["Block", "Limits", "read_limits"]

_ROW: Final = re.compile(r"\s*([a-z][a-z-]*)\s+(\d+|unlimited)\s+(\d+)(?:\s+.*)?", re.ASCII)
_TITLE: Final = re.compile(r"\s*(RSCUNIT|USER|GROUP|ALL)\s*:\s*(\S*)\s*")

ACCEPT: Final = "ru-accept"
ALL_SUBJOBS: Final = "ru-accept-allsubjob"
BULK_SUBJOBS: Final = "ru-accept-bulksubjob"


@dataclass(slots=True)
class Block:
    """One section of the answer: USER, a GROUP or ALL of a resource unit, with (limit, used) by name."""

    unit: str
    kind: str
    name: str
    rows: dict[str, tuple[int | None, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Everything that the answer says."""

    blocks: tuple[Block, ...]

    def units(self) -> list[str]:
        """Names of the resource units, in order."""
        return list(dict.fromkeys(block.unit for block in self.blocks))

    def capacity(self, unit: str | None, group: str | None) -> Capacity:
        """What a job of a group takes slots of; unknown where the answer does not have its unit or its group.

        Args:
            unit: Resource unit; None for the only one.
            group: As the job names it (`-g`); None if it names none.
        """
        units = self.units()
        if unit is None and len(units) == 1:
            unit = units[0]
        if unit not in units:
            have = ", ".join(units) or "none"
            return Capacity.unknown(f"pjstat --limit says nothing of resource unit {unit} (it has {have})")
        blocks = [block for block in self.blocks if block.unit == unit]
        if group is not None and not any(block.kind == "GROUP" and block.name == group for block in blocks):
            return Capacity.unknown(f"pjstat --limit says nothing of group {group}")
        counted = [block for block in blocks if block.kind != "GROUP" or block.name == group]
        subjobs = _room(counted, (ALL_SUBJOBS, BULK_SUBJOBS))
        calls = _room(counted, (ACCEPT,))
        if subjobs.free() < inf:  # no call is worth anything without a slot for a sub-job
            calls = Room((*calls.constraints, *subjobs.constraints))
        return Capacity(_room(counted, (ACCEPT, ALL_SUBJOBS)), calls, subjobs)


def _room(blocks: Iterable[Block], names: tuple[str, ...]) -> Room:
    return Room(
        tuple(
            Constraint(limit, used, f"{block.kind} {name}")
            for block in blocks
            for name in names
            if (found := block.rows.get(name)) is not None
            for limit, used in [found]
        )
    )


def read_limits(text: str) -> Limits:
    """The answer to `pjstat --limit`; rows and sections that are not there limit nothing, remarks are passed over."""
    blocks: list[Block] = []
    unit = ""
    for line in text.splitlines():
        title = _TITLE.fullmatch(line)
        if title is not None:
            if title[1] == "RSCUNIT":
                unit = title[2]
            else:
                blocks.append(Block(unit, title[1], title[2]))
            continue
        row = _ROW.fullmatch(line)
        if row is not None and blocks:
            blocks[-1].rows[row[1]] = (None if row[2] == "unlimited" else int(row[2]), int(row[3]))
    return Limits(tuple(block for block in blocks if block.unit))
