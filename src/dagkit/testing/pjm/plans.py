"""How jobs go where nothing really runs: rules by name and bulk number."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import asdict, dataclass
from typing import Any

from dagkit.testing.pjm.state import State

__all__ = ["Rule", "add_rule", "plan_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the jobs whose name and number it fits; the last one that fits counts.

    Attributes:
        name_glob: `*`, `sweep-*`.
        bulk: A number of a sub-job; None: any.
        run_s: How long they run, if the elapse limit lets them.
        ec, sn, pc: Exit code, signal, PJM code.
        state: How they end: EXT, CCL, RJT, or ERR and HLD, in which they stay.
        reason: REASON of pjstat.
        touch: Files that appear in the folder of submission; `%n %j %J %b` stand for name, id, sub-job's id, number.
    """

    name_glob: str = "*"
    bulk: int | None = None
    run_s: float = 60.0
    ec: int | None = 0
    sn: int = 0
    pc: int = 0
    state: str = "EXT"
    reason: str = "-"
    touch: tuple[str, ...] = ()

    def fits(self, name: str, sub: int) -> bool:
        return fnmatch.fnmatchcase(name, self.name_glob) and self.bulk in (None, sub)


def add_rule(state: State, rule: Rule) -> None:
    state.do("INSERT INTO rules (rule) VALUES (?)", json.dumps(asdict(rule)))


def rules_of(state: State) -> list[Rule]:
    """The rules, the last one first."""
    found: list[Any] = [json.loads(row[0]) for row in state.do("SELECT rule FROM rules ORDER BY id DESC")]
    return [Rule(**{**one, "touch": tuple(one["touch"])}) for one in found]


def plan_of(rules: list[Rule], name: str, sub: int) -> Rule:
    """The rule for one part."""
    return next((rule for rule in rules if rule.fits(name, sub)), Rule())
