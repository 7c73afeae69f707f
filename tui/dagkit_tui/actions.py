"""What a person does to a run: first what it would do, in numbers, then a question, then the deed in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dagkit.errors import UsageError
from dagkit.model.names import fold_id
from dagkit.model.states import RunStatus
from dagkit.run import Run
from dagkit.viewing import RunViewer
from dagkit.viewing.effects import Effect
from dagkit.wording import count, plain
from dagkit_tui.dialogs import Ask, Choose, Confirm

if TYPE_CHECKING:
    from dagkit_tui.screens.base import DagkitScreen

__all__ = ["cancel", "limit", "rerun", "retry", "set_status"]

_DRIVEN_HERE = "Nobody drives it: this terminal will, for as long as it is open."


def cancel(screen: DagkitScreen, run: Run) -> None:
    """Ask, and cancel the run."""

    def ask() -> str:
        row = run.row()
        if RunStatus(row.status).is_over:
            raise UsageError(f"{row.name} is {row.status} already; there is nothing to cancel")
        running, left = row.counts.running, row.counts.total - row.counts.ended
        stopped = f", {running:,} of them running," if running else ""
        return f"Cancel {row.name} ({fold_id(run.id)})? {count(left, 'task')}{stopped} will be stopped or not started."

    def do() -> str:
        run.cancel()
        return f"{run.name}: cancellation requested"

    _ask_then(screen, ask, "Cancel it", do)


def retry(screen: DagkitScreen, run: Run, task: str | None = None) -> None:
    """Ask, and retry what failed: all of it, or a task and what follows from it."""
    names = None if task is None else [task]

    def ask() -> str:
        effect = RunViewer(run).effect_of_retry(names)
        if not effect.tasks + effect.others:
            raise UsageError(f"nothing has failed in {run.name}" if task is None else f"{task} has not failed")
        return _retry_words(effect) + _driver_words(run)

    def do() -> str:
        counts = run.retry(names)
        return f"{count(counts.reset, 'task')} eligible again, {counts.now_ready:,} ready now"

    _ask_then(screen, ask, "Retry", do)


def _retry_words(effect: Effect) -> str:
    others = f" and the {effect.others:,} that {'depends' if effect.others == 1 else 'depend'} on them"
    return f"Retry {count(effect.tasks, 'failed task')}{others if effect.others else ''}?"


def rerun(screen: DagkitScreen, run: Run, task: str) -> None:
    """Ask, and run a task and everything after it again."""

    def ask() -> str:
        effect = RunViewer(run).effect_of_rerun([task])
        if effect.is_refused:
            raise UsageError(effect.is_refused)
        others = f" and the {count(effect.others, 'task')} after it" if effect.others else ""
        lost = f" {count(effect.completed, 'completed output')} will be made anew." if effect.completed else ""
        return f"Rerun {task}{others}?{lost}{_driver_words(run)}"

    def do() -> str:
        return f"{count(run.rerun([task]), 'task')} will run again"

    _ask_then(screen, ask, "Rerun", do)


def set_status(screen: DagkitScreen, run: Run, task: str) -> None:
    """Ask which, and take a task for completed or for pending."""
    choices = [
        ("completed", "take it for done, without an output; what waits for it may run"),
        ("pending", "run it again, with everything after it"),
    ]

    def chosen(status: str | None) -> None:
        if status == "pending":
            rerun(screen, run, task)
        elif status is not None:
            screen.act(lambda: f"{count(run.set_status([task], 'completed'), 'task')} taken for completed")

    screen.app.push_screen(Choose(f"Take {plain(task)} for", choices), chosen)


def limit(screen: DagkitScreen, run: Run, template: str | None = None) -> None:
    """Ask for a number, and let at most so many tasks run at a time."""
    of = f"{template} tasks of {run.name}" if template else f"tasks of {run.name}"

    def said(words: str | None) -> None:
        if words is None:
            return
        text = words.strip()
        if text and not text.isdigit():
            screen.app.notify(f"{text!r} is no number of tasks", severity="error", markup=False)
            return
        screen.act(lambda: _limited(run, int(text) if text else None, template, of))

    question = f"How many {plain(of)} may run at a time? 0 pauses; nothing takes the limit of the workflow."
    screen.app.push_screen(Ask(question, placeholder="a number, or nothing"), said)


def _limited(run: Run, most: int | None, template: str | None, of: str) -> str:
    run.limit(most, template)
    if most is None:
        return f"{of}: limited as the workflow says"
    return f"{of}: at most {most:,} at a time" if most else f"{of}: paused, what runs goes on to its end"


def _driver_words(run: Run) -> str:
    return f"\n{_DRIVEN_HERE}" if run.driver.is_embedded() and not run.driver.is_driven() else ""


def _ask_then(screen: DagkitScreen, ask: Callable[[], str], verb: str, do: Callable[[], str]) -> None:
    def asked(question: str) -> None:
        head, _, detail = question.partition("\n")
        screen.app.push_screen(Confirm(plain(head), plain(detail), verb), lambda yes: screen.act(do) if yes else None)

    screen.find_out(ask, asked)
