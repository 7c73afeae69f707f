"""The PJM executor through refusals, silence, lost jobs, restarts and limits, under a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagkit.engine.gate import GateOptions
from dagkit.errors import LeaseLost
from dagkit.executors.pjm.watch import Patience
from dagkit.model.messages import TaskMessage
from dagkit.model.states import FailureKind
from dagkit.testing.pjm.driver import folder_of, success
from executors.driving import message
from executors.pjm.conftest import QUEUE, World


def tasks(count: int, **fields: Any) -> list[TaskMessage]:
    return [message(f"t{number}", {"cmd": "true"}, **{"template": "t", **fields}) for number in range(count)]


# --- refills


def test_nothing_is_submitted_before_pjm_has_said_how_much_it_takes(world: World) -> None:
    rest = tasks(3)

    world.offer(rest)
    assert world.submits() == []
    world.begin(rest)

    assert rest == []
    assert world.states() == ["QUE"] * 3
    assert len({name for name, _ in world.submits()}) == 3


def test_jobs_run_to_their_completions_and_leave_nothing(world: World) -> None:
    world.begin(tasks(5))

    world.complete_all()
    world.pass_s(20)

    assert {name: one.output_ref for name, one in world.done.items()} == {f"t{n}": f'"t{n}"' for n in range(5)}
    left = [path for path in (world.folder / "spools").rglob("*") if path.is_file() and "ledger" not in path.name]
    assert left == []


def test_an_unknown_capacity_submits_nothing_and_says_so(world: World) -> None:
    world.make(default=replace(QUEUE, group="elsewhere"))

    world.begin(tasks(3))

    assert world.submits() == []
    assert world.executor.problems() == ["pjstat --limit says nothing of group elsewhere"]


def test_no_limits_are_asked_for_when_nothing_waits(world: World) -> None:
    world.begin(tasks(2))
    before = world.calls("pjstat")

    world.pass_s(600, step_s=5)

    looks = world.calls("pjstat") - before
    assert looks <= 600 / 10
    assert world.executor.capacity() is None


@pytest.mark.parametrize("mode", ["single", "bulk", "auto"])
def test_a_small_limit_never_blocks_for_good_and_is_never_exceeded(world: World, mode: str) -> None:
    world.limit(accept=10, bulksubjob=30)
    world.make(default=replace(QUEUE, mode=mode, group_size=7))
    rest = tasks(60)

    world.begin(rest)
    for _ in range(60):
        world.complete_all()
        world.pass_s(60, rest)

    assert len(world.done) == 60
    assert {result for _, result in world.submits()} == {"accepted"}


def test_auto_takes_bulk_jobs_where_calls_are_scarce(world: World) -> None:
    world.limit(accept=10, bulksubjob=2000)
    world.make(default=replace(QUEUE, mode="auto", gate=GateOptions(max_submit_per_refill=500)))
    rest = tasks(400)

    world.begin(rest)

    assert rest == []
    assert len(world.submits()) == 4
    world.complete_all()
    world.pass_s(60)
    assert len(world.done) == 400


def test_a_full_queue_defers_and_charges_nothing(world: World) -> None:
    world.pjm.fault("says", value="[ERR.] PJM 0072 pjsub Job exceeded the accept limit", times=1)
    rest = tasks(5)

    world.begin(rest)
    world.pass_s(200, rest)
    world.complete_all()
    world.pass_s(60, rest)

    assert len(world.done) == 5
    assert all(one.success for one in world.done.values())


def test_bulk_that_is_denied_becomes_single(world: World) -> None:
    world.pjm.set(may_bulk=False)
    world.make(default=replace(QUEUE, mode="bulk"))
    rest = tasks(3)

    world.begin(rest)
    world.pass_s(120, rest)

    assert [job.sub for job in world.pjm.jobs()] == [-1, -1, -1]


def test_noisy_neighbours_cause_few_refusals(world: World) -> None:
    world.limit(accept=100)
    rest, minute = tasks(800), 0

    world.begin(rest)
    while len(world.done) < 800:
        minute += 1
        assert minute < 200
        world.pjm.load("ru-accept", (minute * 37) % 50)
        world.complete_all()
        world.pass_s(60, rest, step_s=15)

    refused = [result for _, result in world.submits() if result == "0072"]
    assert len(refused) < 0.01 * len(world.submits())


def test_our_own_target_is_about_our_own_jobs(world: World) -> None:
    world.make(default=replace(QUEUE, gate=GateOptions(target_active_jobs=4)))
    rest = tasks(10)

    world.begin(rest)
    world.pass_s(180, rest)

    assert len(world.pjm.jobs("QUE")) == 4


def test_short_tasks_share_jobs_and_only_what_is_missing_fails(world: World) -> None:
    world.make(default=replace(QUEUE, pack=3))
    world.begin(tasks(6))
    first, second = world.pjm.jobs()
    folder = folder_of(first.script)
    _, messages, _ = folder.read(0)

    folder.finish(0, 0, success(messages[0]))
    world.pjm.force(first, "EXT", pc=20)
    world.complete(second)
    world.pass_s(60)

    assert {name for name, one in world.done.items() if one.success} == {"t0", "t3", "t4", "t5"}
    assert {name: one.kind for name, one in world.done.items() if not one.success} == {
        "t1": FailureKind.NODE,
        "t2": FailureKind.NODE,
    }


# --- what pjsub refuses


def test_a_configuration_error_pauses_its_profile_after_the_second_job(world: World) -> None:
    text = "[ERR.] PJM 0057 pjsub elapse=18000 is greater than the upper limit (14400)."
    world.pjm.fault("says", value=text, times=1000)
    rest = tasks(100)

    world.begin(rest)
    world.pass_s(1200, rest)

    failed = [one for one in world.done.values() if one.kind is FailureKind.CONFIG]
    assert len(failed) == len(world.done) == 2
    assert world.calls("pjsub") == 2
    assert "is paused" in world.executor.problems()[0]
    assert world.executor.is_stuck


def test_a_used_up_budget_pauses_the_campaign_and_fails_nothing(world: World) -> None:
    text = "[ERR.] PJM 0079 pjsub Computing resources shortage occurred.[group] (ACC->QUE)"
    world.pjm.fault("says", value=text, times=1)
    rest = tasks(3)

    world.begin(rest)
    world.pass_s(600, rest)
    assert (world.done, world.pjm.jobs()) == ({}, [])
    assert "budget" in world.executor.problems()[0]
    world.pass_s(4000, rest, step_s=60)

    assert len(world.pjm.jobs("QUE")) == 3


def test_an_unknown_refusal_is_no_storm(world: World) -> None:
    world.pjm.fault("says", value="[ERR.] PJM 0999 pjsub What is this", times=1000)
    rest = tasks(50)

    world.begin(rest)
    world.pass_s(1800, rest)

    assert world.done == {}
    assert world.calls("pjsub") <= 4


# --- what became of jobs


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"st": "EXT", "pc": 11, "sn": 24, "reason": "ELAPSE LIMIT EXCEEDED"}, FailureKind.TIMEOUT),
        ({"st": "EXT", "pc": 12, "sn": 9}, FailureKind.MEMORY),
        ({"st": "CCL", "pc": 18, "reason": "ANOTHER JOB STARTED"}, FailureKind.PREEMPTED),
        ({"st": "EXT", "pc": 20}, FailureKind.NODE),
        ({"st": "CCL", "pc": 1}, FailureKind.CANCELLED),
        ({"st": "EXT", "ec": 0}, FailureKind.NODE),
        ({"st": "EXT", "ec": 3}, FailureKind.USER),
        ({"st": "ERR", "pc": 140, "reason": "INTERNAL ERROR"}, FailureKind.NODE),
        ({"st": "RJT", "pc": 3, "reason": "GATE CHECK"}, FailureKind.CONFIG),
    ],
)
def test_a_job_without_a_completion_is_judged_by_pjm(world: World, row: dict[str, Any], kind: FailureKind) -> None:
    world.begin(tasks(1))
    (job,) = world.pjm.jobs()

    world.pjm.force(job, **row)
    world.pass_s(300)

    assert world.done["t0"].kind is kind
    if row["st"] == "ERR":
        assert world.states() == ["CCL"]


def test_a_completion_wins_over_whatever_pjm_says(world: World) -> None:
    world.begin(tasks(1))
    (job,) = world.pjm.jobs()

    world.complete(job, pc=20)
    world.pass_s(30)

    assert world.done["t0"].success


def test_a_held_job_stays_active(world: World) -> None:
    world.begin(tasks(1))
    (job,) = world.pjm.jobs()

    world.pjm.force(job, "HLD", pc=4)
    world.pass_s(3600, step_s=60)

    assert world.done == {}
    assert len(world.executor.states()) == 1


def test_a_job_that_nobody_knows_is_lost_after_a_while(world: World) -> None:
    world.begin(tasks(1))
    world.pass_s(30)

    world.pjm.vanish(*world.pjm.jobs())
    world.pass_s(250)
    assert world.done == {}
    world.pass_s(400)

    assert world.done["t0"].kind is FailureKind.LOST


def test_an_outage_of_pjstat_changes_nothing(world: World) -> None:
    world.limit(accept=30)
    rest = tasks(80)
    world.begin(rest)
    world.pass_s(60, rest)
    before = len(world.pjm.jobs())

    world.pjm.fault("stat-fails", times=None)
    world.pass_s(600, rest)
    assert len(world.pjm.jobs()) == before
    assert world.done == {}
    assert any("pjstat" in problem for problem in world.executor.problems())
    world.pjm.forget_faults()
    for _ in range(20):
        world.complete_all()
        world.pass_s(120, rest)

    assert len(world.done) == 80
    assert {result for _, result in world.submits()} == {"accepted"}


def test_a_cut_off_listing_is_survived(world: World) -> None:
    world.begin(tasks(20))
    world.pjm.fault("stat-cut", times=5)

    world.pass_s(100)
    world.complete_all()
    world.pass_s(200)

    assert all(one.success for one in world.done.values())
    assert len(world.done) == 20


# --- stopping


@pytest.mark.parametrize("mode", ["single", "bulk"])
def test_cancelled_jobs_are_deleted_and_reported_when_they_are_gone(world: World, mode: str) -> None:
    world.make(default=replace(QUEUE, mode=mode))
    messages = tasks(4)
    world.begin(list(messages))

    world.executor.cancel([one.key for one in messages[:3]], FailureKind.CANCELLED)
    world.pass_s(60)

    assert {name: one.kind for name, one in world.done.items()} == dict.fromkeys(
        ["t0", "t1", "t2"], FailureKind.CANCELLED
    )
    assert world.states() == ["CCL", "CCL", "CCL", "QUE"]


# --- after a crash


def test_a_submission_that_timed_out_is_adopted_by_its_name(world: World) -> None:
    world.pjm.fault("accept-kill")
    world.begin(tasks(1))

    world.pass_s(60)
    world.complete_all()
    world.pass_s(60)

    assert world.done["t0"].success
    assert len(world.submits()) == 1


def test_a_submission_that_was_never_made_is_made_again(world: World) -> None:
    world.pjm.fault("submit-killed")
    rest = tasks(1)
    world.begin(rest)

    world.pass_s(400, rest)
    world.complete_all()
    world.pass_s(60)

    assert world.done["t0"].success
    assert world.calls("pjsub") == 2


def test_jobs_are_adopted_after_a_restart(world: World) -> None:
    messages = tasks(3)
    world.begin(list(messages))

    world.make()
    assert world.executor.recover(messages) == []
    world.complete_all()
    world.pass_s(60)

    assert len(world.done) == 3
    assert len(world.submits()) == 3


def test_what_was_put_off_before_a_restart_is_submitted_and_not_lost(world: World) -> None:
    world.pjm.fault("says", value="[ERR.] PJM 0072 pjsub Job exceeded the accept limit", times=1)
    messages = tasks(1)
    world.begin(list(messages))

    world.make()
    assert world.executor.recover(messages) == []
    world.pass_s(120)

    assert world.states() == ["QUE"]


def test_an_attempt_that_no_ledger_knows_is_lost(world: World) -> None:
    (lost,) = world.executor.recover(tasks(1))

    assert lost.kind is FailureKind.LOST


def test_a_driver_that_was_deposed_writes_nothing(world: World) -> None:
    world.begin(tasks(1))
    former = world.executor

    world.make().recover(tasks(1))
    world.pass_s(40)

    with pytest.raises(LeaseLost):
        former.poll(0)


# --- slots that must not be lost


def test_a_submission_that_was_found_by_its_name_gives_its_slots_back(world: World) -> None:
    """A campaign under a small limit stood still: what was submitted without an answer was subtracted for ever."""
    world.limit(bulksubjob=5)
    world.make(default=replace(QUEUE, mode="bulk", gate=GateOptions(safety_margin=0)))
    world.pjm.fault("accept-kill")
    rest = tasks(15)

    world.begin(rest)
    for _ in range(12):
        world.pass_s(60, rest)
        world.complete_all()
    world.pass_s(60, rest)

    assert len(world.done) == 15


def test_a_job_in_error_is_deleted_again_when_pjdel_has_failed(world: World) -> None:
    """pjdel failed once, and the job kept its slot for the rest of the campaign."""
    world.begin(tasks(1))
    world.pjm.force(*world.pjm.jobs(), "ERR", pc=140)
    world.pjm.fault("delete-fails")

    world.pass_s(60)
    assert world.states() == ["ERR"]
    world.pass_s(300)

    assert world.states() == ["CCL"]
    assert world.calls("pjdel") == 2


def test_a_listing_that_was_cut_off_proves_no_absence(world: World) -> None:
    """pjstat was cut off just when a submission without an answer was looked for: it was submitted once more."""
    world.make(default=replace(QUEUE, mode="bulk"))
    world.pjm.fault("accept-garbled")
    rest = tasks(3)
    world.begin(rest)
    world.pjm.fault("stat-cut", times=None, match="jobs", for_s=250)

    world.pass_s(400, rest)
    world.complete_all()
    world.pass_s(60, rest)

    assert len(world.submits()) == 1
    assert len(world.done) == 3


def test_an_empty_answer_at_the_wrong_moment_is_no_absence_either(world: World) -> None:
    world.pjm.fault("accept-garbled")
    rest = tasks(1)
    world.begin(rest)
    world.pjm.fault("stat-fails", times=None, match="jobs", for_s=200)
    world.pjm.fault("stat-empty", times=2, match="jobs", after_s=200)

    world.pass_s(600, rest)

    assert len(world.submits()) == 1


def test_a_part_of_a_bulk_job_that_nobody_knows_is_lost_though_the_others_are_known(world: World) -> None:
    """Parts share a name: as long as one of them was listed, those that were not were waited for."""
    world.make(default=replace(QUEUE, mode="bulk"))
    world.begin(tasks(3))
    first, *others = world.pjm.jobs()

    world.pjm.vanish(first)
    world.pass_s(900, step_s=30)

    assert {name: one.kind for name, one in world.done.items()} == {"t0": FailureKind.LOST}
    assert [job.st for job in others] == ["QUE", "QUE"]


def test_what_was_never_submitted_is_submitted_again_though_limits_are_asked_for_all_the_time(world: World) -> None:
    """History and limits are asked for by turns, and the turn was never that of the history: a campaign stood still."""
    world.limit(bulksubjob=5)
    gate = GateOptions(safety_margin=0)
    patience = Patience(submit_interval_s=0.0, refill_s=15.0)
    world.make(default=replace(QUEUE, mode="bulk", gate=gate, group_size=3), patience=patience)
    world.pjm.fault("stat-fails", times=2)
    world.pjm.fault("submit-killed", times=2)
    rest = tasks(9)
    world.begin(rest)

    for _ in range(20):
        world.pass_s(60, rest, step_s=5)
        world.complete_all()
    world.pass_s(60, rest)

    assert len(world.done) == 9


def test_a_job_in_error_is_not_forgotten_for_a_listing_that_was_cut_off(world: World) -> None:
    world.begin(tasks(3))
    world.pjm.force(world.pjm.jobs()[2], "ERR", pc=140)
    world.pjm.fault("delete-fails")
    world.pass_s(20)
    world.pjm.fault("stat-cut", times=3, match="jobs")

    world.pass_s(400)

    assert world.states() == ["QUE", "QUE", "CCL"]
