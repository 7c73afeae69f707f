"""Which state every task of a run is in, as it was when the run was last read as a whole.

Reading it costs O(tasks): whoever shows a large run does so now and then, within an `Allowance`, and only for what the
coordinator does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dagkit.model.records import Counts
from dagkit.model.spec import WorkflowSpec
from dagkit.model.states import TaskState

__all__ = ["Census"]

_STATES: Final = tuple(TaskState)
_CODES: Final = {state.value: code for code, state in enumerate(_STATES)} | {"ready_pending_budget": 1}
_PENDING: Final = _CODES["pending"]


class Census:
    """States by position in the definition, and what failed tasks said."""

    __slots__ = ("_codes", "_ended", "errors")

    def __init__(self, spec: WorkflowSpec, entries: Mapping[str, Mapping[str, Any]]) -> None:
        index = spec.index
        self._codes = bytearray([_PENDING]) * len(spec.tasks)
        self.errors: dict[int, str] = {}
        self._ended: dict[int, Any] = {}
        for name, entry in entries.items():
            if (place := index.get(name)) is not None:
                self._codes[place] = _CODES.get(entry.get("state", "pending"), _PENDING)
                if error := entry.get("error"):
                    self.errors[place] = error.partition("\n")[0]
                    self._ended[place] = entry.get("completed_at") or ""

    def state_of(self, place: int) -> TaskState:
        return _STATES[self._codes[place]]

    def count(self, places: Sequence[int]) -> Counts:
        """The tasks at these places by state."""
        codes = bytes([self._codes[place] for place in places])
        return Counts(**{state.value: codes.count(code) for code, state in enumerate(_STATES)})

    def failed(self, limit: int) -> list[int]:
        """Places of failed tasks, newest first."""
        failed, code = self._codes, _CODES["failed"]
        places = [place for place in self._ended if failed[place] == code]
        return sorted(places, key=lambda place: str(self._ended[place]), reverse=True)[:limit]
