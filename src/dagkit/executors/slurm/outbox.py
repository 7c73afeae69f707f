"""Ends of attempts on their way to the coordinator, and what is done when they are saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dagkit.executors.books import Books
from dagkit.executors.ledger import Phase, Submission
from dagkit.executors.reports import stop_text
from dagkit.executors.slurm.elements import Attempt, Elements
from dagkit.executors.spool import Arrival
from dagkit.model.messages import Completion, Started
from dagkit.model.states import FailureKind

__all__ = ["Outbox", "stopped"]


@dataclass(frozen=True, slots=True, repr=False)
class _Receipt:
    """What acknowledging a completion needs."""

    books: Books
    submission: Submission
    position: int
    arrival: Arrival | None


class Outbox:
    """Reports that `poll` returns next.

    Attributes:
        unsaved: Ends that were reported and not acknowledged, by run: their books stay open.
    """

    def __init__(self, elements: Elements) -> None:
        self._elements = elements
        self._reports: list[Completion | Started] = []
        self.unsaved: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._reports)

    def add(self, *reports: Completion | Started) -> None:
        """Report something that no submission carries."""
        self._reports += reports

    def end(self, books: Books, attempt: Attempt, done: Completion, arrival: Arrival | None = None) -> None:
        """Report the end of an attempt; one that was to be stopped failed for that, unless it succeeded first."""
        if attempt.stop is not None and not done.success:
            done.error, done.kind = _stop_words(attempt), attempt.stop
        done.receipt = _Receipt(books, attempt.element.submission, attempt.position, arrival)
        self.unsaved[attempt.key.workflow_id] += 1
        self._elements.remove(attempt)
        self._reports.append(done)

    def take(self) -> list[Completion | Started]:
        reports, self._reports = self._reports, []
        return reports

    def acknowledge(self, completions: Sequence[Completion]) -> None:
        """These are saved: close them in the ledger, then remove their files."""
        by_books: dict[int, list[_Receipt]] = {}
        for completion in completions:
            if isinstance(completion.receipt, _Receipt):
                by_books.setdefault(id(completion.receipt.books), []).append(completion.receipt)
                self.unsaved[completion.workflow_id] -= 1
        for receipts in by_books.values():
            books = receipts[0].books
            books.ledger.member_ended([(receipt.submission, receipt.position) for receipt in receipts])
            books.spool.forget([receipt.arrival for receipt in receipts if receipt.arrival is not None])
            for name in {r.submission.name for r in receipts if r.submission.phase is Phase.ENDED}:
                books.spool.remove(name)


def stopped(attempt: Attempt) -> Completion:
    """The end of an attempt that is stopped without anything known of it."""
    key, kind = attempt.key, attempt.stop or FailureKind.CANCELLED
    return Completion(key.workflow_id, key.task, False, None, str(kind), key.attempt, key.generation, kind)


def _stop_words(attempt: Attempt) -> str:
    kind = attempt.stop or FailureKind.CANCELLED
    return str(kind) if attempt.message is None else stop_text(attempt.message, kind)
