"""The condition language: parsed and evaluated here, over JSON values only (facts: jobq, section 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagkit.errors import ConditionError
from dagkit.model.condition_parser import Parsed, parse
from dagkit.model.patterns import select
from dagkit.model.problems import shown
from dagkit.model.truth import FALSE, TRUE, Evaluation, TooCostly

__all__ = ["Condition", "Verdict"]

#: An upper bound of nodes looked at in one evaluation: every aggregate over every dependency.
MAX_COST: Final = 2_000_000
_SHOWN_NAMES: Final = 20


@dataclass(frozen=True)
class Verdict:
    """What a condition says about given outputs.

    Attributes:
        value: True, False, or None for unknown.
        reasons: If unknown: every path that was missing or could not be compared, and what was found there.
        waits_for: Dependencies that have not ended and may still make it true; while there are any, nothing is decided.
    """

    value: bool | None
    reasons: tuple[str, ...] = ()
    waits_for: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Condition:
    """A condition that has been checked.

    Attributes:
        text: As it was written.
        references: Dependencies that are named outright.
        patterns: Patterns in aggregates.
    """

    text: str
    _parsed: Parsed = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, dependencies: Collection[str] | None) -> Condition:
        """Parse and check against the task's direct dependencies (None: not known).

        `ConditionError` if the text is not in the language, names something else than a dependency, or would cost
        more than any sensible condition does.
        """
        condition = cls(text, parse(text))
        if dependencies is not None:
            condition._check(dependencies)
        return condition

    def _check(self, dependencies: Collection[str]) -> None:
        known = dependencies if isinstance(dependencies, (set, frozenset, dict)) else frozenset(dependencies)
        strangers = [name for name in self._parsed.references if name not in known]
        if strangers:
            verb = "is" if len(strangers) == 1 else "are"
            raise ConditionError(self.text, f"{_listed(strangers)} {verb} not in depends_on {_bracketed(dependencies)}")
        cost = self._parsed.root.size + sum(size * len(known) for size in self._parsed.aggregate_sizes)
        if cost > MAX_COST:
            raise ConditionError(self.text, f"looks at {cost:,} values, over the {MAX_COST:,} a condition may look at")

    @property
    def references(self) -> frozenset[str]:
        return frozenset(self._parsed.references)

    @property
    def patterns(self) -> frozenset[str]:
        return frozenset(self._parsed.patterns)

    @property
    def has_negative_number(self) -> bool:
        """Whether a number literal carries a minus sign, which other readers do not take."""
        return self._parsed.has_negative_number

    def inputs_needed(self, dependencies: Collection[str]) -> set[str]:
        """Which of the dependencies' outputs an evaluation may look at; the others need not be fetched."""
        needed = {name for name in self._parsed.references if name in dependencies}
        return needed.union(*(select(pattern, dependencies) for pattern in self._parsed.patterns))

    def evaluate(self, inputs: Mapping[str, Any], pending: Collection[str] = ()) -> Verdict:
        """The verdict over the decoded outputs of the dependencies; `pending` are those that have not ended."""
        waiting = frozenset(pending)
        names = inputs.keys() | waiting if waiting else inputs.keys()
        selected: dict[str, list[str]] = {}

        def matching(pattern: str) -> list[str]:
            if pattern not in selected:
                selected[pattern] = sorted(select(pattern, names))
            return selected[pattern]

        at = Evaluation(inputs, waiting, matching)
        try:
            truth = self._parsed.root.truth(at)
        except TooCostly:
            return Verdict(None, ("the outputs are too large to evaluate this condition on",))
        if truth in (TRUE, FALSE):
            return Verdict(truth == TRUE)
        if truth & TRUE:
            return Verdict(None, tuple(dict.fromkeys(at.reasons)), frozenset(at.waits_for))
        return Verdict(None, tuple(dict.fromkeys(at.reasons)))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(shown, names[:_SHOWN_NAMES])) + more


def _bracketed(names: Collection[str]) -> str:
    first = list(names)[:_SHOWN_NAMES]
    return f"[{', '.join(first)}{', ...' if len(names) > len(first) else ''}]"
