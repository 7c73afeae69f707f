"""What the buttons of the live view do, and what they say before they do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagkit.errors import UsageError
from dagkit.viewing import RunViewer

__all__ = ["Actions"]


class Actions:
    """Cancel, retry and rerun of the run of a viewer; `group` is all tasks of a box, `name` one task."""

    def __init__(self, viewer: RunViewer) -> None:
        self._viewer, self._run = viewer, viewer.run

    def effect(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """A sentence with numbers to be confirmed; `refused` where it cannot be done now."""
        action = question.get("action")
        said = {"action": action, "group": question.get("group"), "name": question.get("name"), "refused": ""}
        match action:
            case "cancel":
                return {**said, "text": self._cancel_words(), "yes": "Cancel the run", "no": "Let it go on"}
            case "retry":
                return {**said, "text": self._retry_words(), "yes": "Retry", "no": "Leave it"}
            case "rerun":
                return {**said, **self._rerun_words(question), "yes": "Run again", "no": "Leave it"}
        raise UsageError(f"{action!r} is not an action of the view: cancel, retry, rerun")

    def do(self, question: Mapping[str, Any]) -> str:
        """Do it; what was done, in a sentence."""
        match question.get("action"):
            case "cancel":
                self._run.cancel()
                return "Cancel asked for: nothing more starts, and what runs is being stopped."
            case "retry":
                counts = self._run.retry()
                return f"{_tasks(counts.reset)} will run again{self._who_goes_on()}"
            case "rerun":
                count = self._run.rerun(self._names(question))
                return f"{_tasks(count)} will run again{self._who_goes_on()}"
        raise UsageError(f"{question.get('action')!r} is not an action of the view: cancel, retry, rerun")

    def _cancel_words(self) -> str:
        counts = self._run.counts
        waiting = counts.ready + counts.pending
        return (
            f"Stop {_tasks(counts.running)} that {_is(counts.running)} running and give up {waiting:,} "
            f"that {_has(waiting)} not begun? The {counts.completed:,} completed stay."
        )

    def _retry_words(self) -> str:
        effect = self._viewer.effect_of_retry()
        more = f" and the {effect.others:,} that {_depend(effect.others)} on them" if effect.others else ""
        return f"Retry {_tasks(effect.tasks)} that failed or {_was(effect.tasks)} cancelled{more}?"

    def _rerun_words(self, question: Mapping[str, Any]) -> dict[str, str]:
        names = self._names(question)
        effect = self._viewer.effect_of_rerun(names)
        what = names[0] if len(names) == 1 else f"{len(names):,} tasks"
        on = "it" if len(names) == 1 else "them"
        more = f" and the {effect.others:,} that {_depend(effect.others)} on {on}" if effect.others else ""
        lost = f" {_tasks(effect.completed)} of these {_is(effect.completed)} completed and will be done anew."
        text = f"Run {what}{more} again?{lost if effect.completed else ''}"
        return {"text": text, "refused": effect.is_refused}

    def _names(self, question: Mapping[str, Any]) -> Sequence[str]:
        if name := question.get("name"):
            return [str(name)]
        boxes = self._viewer.picture.boxes
        return next((box.members for box in boxes if box.key == question.get("group")), ())

    def _who_goes_on(self) -> str:
        return "." if self._run.driver.is_driven() else ", once a coordinator takes up the run (dagkit coordinator)."


def _tasks(count: int) -> str:
    return f"{count:,} task" + ("" if count == 1 else "s")


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _depend(count: int) -> str:
    return "depends" if count == 1 else "depend"
