"""Jobs in Slurm's hands, and the attempts that they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dagkit.executors.ledger import Submission
from dagkit.executors.slurm.listing import Ended
from dagkit.model.messages import AttemptKey, TaskMessage
from dagkit.model.states import FailureKind

__all__ = ["Attempt", "Element", "Elements", "packed"]


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt that was handed over and whose end has not been reported.

    Attributes:
        place: In the pack of its job; `position` in the whole submission.
        message: None for one that was found in the ledger and that nobody has asked for yet.
        stop: Set when it is to be stopped: it is reported as a failure of this kind.
    """

    key: AttemptKey
    element: Element
    place: int
    position: int
    message: TaskMessage | None = None
    stop: FailureKind | None = None
    is_start_told: bool = False


@dataclass(slots=True, eq=False)
class Element:
    """A single job, or one element of an array.

    Attributes:
        id: In Slurm, `12_3`; None as long as it is not known whether Slurm has it.
        index: Among the jobs of its submission.
        gone_at: Since when it has not been listed as active, by the monotonic clock; `ended` what accounting says then.
        is_cancelled: It was given to scancel; again, if it is still there, at `cancel_at`.
    """

    submission: Submission
    index: int
    attempts: dict[int, Attempt] = field(default_factory=dict)
    id: str | None = None
    state: str = ""
    reason: str = ""
    gone_at: float | None = None
    ended: Ended | None = None
    is_cancelled: bool = False
    cancel_at: float = 0.0

    @property
    def queue(self) -> str:
        return self.submission.profile

    @property
    def number(self) -> str:
        """Id of the job, or of the array it is in."""
        return (self.id or "").partition("_")[0]


class Elements:
    """All that is in flight, by attempt, by id in Slurm and by place in the spool.

    Attributes:
        unanswered: Submissions by name of which it is not known whether Slurm has them.
        runs: Attempts in flight by run, of those that have some.
        gone: Elements that are no longer listed as active; `stopped` attempts that are to be stopped.
    """

    def __init__(self) -> None:
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.by_id: dict[str, Element] = {}
        self.by_place: dict[tuple[str, int], Element] = {}
        self.unanswered: dict[str, Submission] = {}
        self.runs: Counter[str] = Counter()
        self.gone: set[Element] = set()
        self.stopped: set[Attempt] = set()
        self.active: dict[str, int] = {}
        """Elements by queue."""

    def add(self, submission: Submission, pack: int, messages: Sequence[TaskMessage | None]) -> list[Element]:
        """A submission with the attempts of it that are open; `messages` by position, None where there is none yet."""
        found: dict[int, Element] = {}
        for member in submission.open_members:
            index, place = divmod(member.position, pack)
            element = found.get(index)
            if element is None:
                element = found[index] = Element(submission, index)
            attempt = Attempt(member.key, element, place, member.position, messages[member.position])
            element.attempts[place] = self.attempts[member.key] = attempt
            self.runs[member.key.workflow_id] += 1
        for element in found.values():
            self.by_place[submission.name, element.index] = element
        self.active[submission.profile] = self.active.get(submission.profile, 0) + len(found)
        self.unanswered[submission.name] = submission
        return list(found.values())

    def answered(self, submission: Submission, job_id: str) -> None:
        """Slurm has it, under this id."""
        self.unanswered.pop(submission.name, None)
        is_array = bool(submission.detail.get("is_array"))
        for element in self.of(submission):
            element.id = f"{job_id}_{element.index}" if is_array else job_id
            self.by_id[element.id] = element

    def of(self, submission: Submission) -> Iterator[Element]:
        """Elements of a submission that have open attempts."""
        for index in range(int(submission.detail.get("jobs", 1))):
            element = self.by_place.get((submission.name, index))
            if element is not None:
                yield element

    def remove(self, attempt: Attempt) -> None:
        """Its end was reported; with the last one of a job, the job is no longer watched."""
        element = attempt.element
        if self.attempts.pop(attempt.key, None) is not None:
            self._count_down(attempt.key.workflow_id)
        self.stopped.discard(attempt)
        element.attempts.pop(attempt.place, None)
        if element.attempts or self.by_place.pop((element.submission.name, element.index), None) is None:
            return
        self.gone.discard(element)
        self.active[element.queue] -= 1
        if element.id is not None:
            self.by_id.pop(element.id, None)

    def _count_down(self, workflow_id: str) -> None:
        self.runs[workflow_id] -= 1
        if not self.runs[workflow_id]:
            del self.runs[workflow_id]

    def withdraw(self, submission: Submission) -> list[Attempt]:
        """Slurm does not have it: forget it, and return its attempts."""
        attempts = [attempt for element in list(self.of(submission)) for attempt in list(element.attempts.values())]
        self.unanswered.pop(submission.name, None)
        for attempt in attempts:
            self.remove(attempt)
        return attempts


def packed(messages: Sequence[TaskMessage], pack: int) -> list[Sequence[TaskMessage]]:
    """Messages by job: `pack` of them in each, fewer in the last."""
    return [messages[start : start + pack] for start in range(0, len(messages), pack)]
