"""How many tasks of a run may run at a time: as the definition says, or as people have changed it since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagkit.errors import CorruptState
from dagkit.model.spec import WorkflowSpec

__all__ = ["Caps"]


class Caps:
    """Limits by template and for the whole run. 0 pauses; lowering one stops nothing that runs.

    Attributes:
        whole, templates: What was changed; None, or a template that is not there, leaves it to the definition.
    """

    __slots__ = ("_spec", "templates", "whole")

    def __init__(self, spec: WorkflowSpec) -> None:
        self._spec = spec
        self.whole: int | None = None
        self.templates: dict[str, int] = {}

    @property
    def most(self) -> int | None:
        """For all tasks together; None for no limit."""
        return self._spec.max_parallelism if self.whole is None else self.whole

    def of(self, template: str) -> int | None:
        """For the tasks of a template; None for no limit."""
        return self.templates.get(template, self._spec.concurrency.get(template))

    @property
    def limited(self) -> set[str]:
        """Templates that have a limit."""
        return {*self._spec.concurrency, *self.templates}

    def set(self, most: int | None, template: str | None) -> None:
        """Change a limit; None goes back to the definition's."""
        if template is None:
            self.whole = most
        elif most is None:
            self.templates.pop(template, None)
        else:
            self.templates[template] = most

    def document(self) -> dict[str, Any]:
        """For the state document: only what was changed."""
        whole = {} if self.whole is None else {"max_parallelism": self.whole}
        return {**whole, **({"concurrency": dict(self.templates)} if self.templates else {})}

    def load(self, document: Mapping[str, Any] | None) -> None:
        """Take over what `document` gave. `CorruptState` if it is none."""
        try:
            changed = document or {}
            whole = changed.get("max_parallelism")
            self.whole = None if whole is None else int(whole)
            self.templates = {str(name): int(most) for name, most in (changed.get("concurrency") or {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptState(f"limits of the run: {document!r:.80} are none") from error
