"""Jobs and sub-jobs in PJM's hands, and the attempts that they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dagkit.executors.ledger import Submission
from dagkit.executors.pjm.ids import JobId
from dagkit.executors.pjm.listing import Row
from dagkit.model.messages import AttemptKey, TaskMessage
from dagkit.model.states import FailureKind

__all__ = ["Attempt", "Job", "Jobs", "Project"]

Project = tuple[str | None, str | None]
"""Resource unit and group: what limits are counted by."""


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt that was handed over and whose end has not been reported.

    Attributes:
        place: In the pack of its job; `position` in the whole submission.
        message: None for one that was found in the ledger and that nobody has asked for yet.
        stop: Set when it is to be stopped: it is reported as a failure of this kind.
    """

    key: AttemptKey
    job: Job
    place: int
    position: int
    message: TaskMessage | None = None
    stop: FailureKind | None = None


@dataclass(slots=True, eq=False)
class Job:
    """A single job, or one sub-job of a bulk job.

    Attributes:
        id: None as long as it is not known whether PJM has it.
        index: Among the jobs of its submission; the bulk number.
        gone_at: Since when it is seen ended, or is not seen at all; `row` its last one, None where there is none.
        is_deleted: pjdel has accepted it; again, if it is still there, at `delete_at`.
    """

    submission: Submission
    index: int
    attempts: dict[int, Attempt] = field(default_factory=dict)
    id: JobId | None = None
    state: str = ""
    row: Row | None = None
    gone_at: float | None = None
    is_deleted: bool = False
    delete_at: float = 0.0
    is_start_told: bool = False

    @property
    def project(self) -> Project:
        unit, group = self.submission.detail.get("project") or (None, None)
        return (unit, group)


class Jobs:
    """All that is in flight, by attempt, by id in PJM and by place in the spool.

    Attributes:
        unanswered: Submissions by name of which it is not known whether PJM has them.
        gone: Jobs that are seen ended, or not at all; `stopped` attempts that are to be stopped.
        active: Jobs by project: what runs, waits, is being submitted or is of unknown state.
    """

    def __init__(self) -> None:
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.by_id: dict[JobId, Job] = {}
        self.by_place: dict[tuple[str, int], Job] = {}
        self.unanswered: dict[str, Submission] = {}
        self.gone: set[Job] = set()
        self.stopped: set[Attempt] = set()
        self.active: Counter[Project] = Counter()

    def add(self, submission: Submission, messages: Sequence[TaskMessage | None]) -> None:
        """A submission with the attempts of it that are open; `messages` by position."""
        pack, found = int(submission.detail.get("pack", 1)), dict[int, Job]()
        for member in submission.open_members:
            index, place = divmod(member.position, pack)
            job = found.setdefault(index, Job(submission, index))
            attempt = Attempt(member.key, job, place, member.position, messages[member.position])
            job.attempts[place] = self.attempts[member.key] = attempt
        for job in found.values():
            self.by_place[submission.name, job.index] = job
            self.active[job.project] += 1
        self.unanswered[submission.name] = submission

    def answered(self, submission: Submission, job_id: str) -> None:
        """PJM has it, under this id."""
        self.unanswered.pop(submission.name, None)
        is_bulk = bool(submission.detail.get("is_bulk"))
        for job in self.of(submission):
            job.id = JobId(job_id, job.index) if is_bulk else JobId(job_id)
            self.by_id[job.id] = job

    def of(self, submission: Submission) -> Iterator[Job]:
        """Jobs of a submission that have open attempts."""
        for index in range(int(submission.detail.get("jobs", 1))):
            job = self.by_place.get((submission.name, index))
            if job is not None:
                yield job

    def remove(self, attempt: Attempt) -> None:
        """Its end was reported; with the last one of a job, the job is no longer watched."""
        job = attempt.job
        self.attempts.pop(attempt.key, None)
        self.stopped.discard(attempt)
        job.attempts.pop(attempt.place, None)
        if job.attempts or self.by_place.pop((job.submission.name, job.index), None) is None:
            return
        self.gone.discard(job)
        self.active[job.project] -= 1
        if job.id is not None:
            self.by_id.pop(job.id, None)

    def withdraw(self, submission: Submission) -> list[Attempt]:
        """PJM does not have it: forget it, and return its attempts in order."""
        attempts = [attempt for job in list(self.of(submission)) for attempt in list(job.attempts.values())]
        self.unanswered.pop(submission.name, None)
        for attempt in attempts:
            self.remove(attempt)
        return sorted(attempts, key=lambda attempt: attempt.position)
