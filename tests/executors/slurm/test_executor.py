"""The executor over a fake Slurm: what a real cluster cannot be made to do when a test wants it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagkit.engine.state import WorkflowState
from dagkit.errors import BackendError
from dagkit.executors.slurm.commands import Commands
from dagkit.executors.slurm.executor import SlurmExecutor
from dagkit.executors.slurm.request import SlurmQueue
from dagkit.executors.spool import JobFolder
from dagkit.model.messages import Completion, Started, TaskMessage
from dagkit.model.spec import TaskSpec, WorkflowSpec
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store
from dagkit.testing.slurm import FakeSlurm, FakeSlurmJob
from executors.driving import collect, message, poll_until
from executors.slurm.conftest import QUICK

Make = Callable[..., SlurmExecutor]
NOW = "2026-01-01T00:00:00+00:00"


def tasks(count: int, **fields: Any) -> list[TaskMessage]:
    return [message(f"t{number}", {"cmd": "true"}, **{"template": "t", **fields}) for number in range(count)]


def ends(executor: SlurmExecutor, count: int) -> dict[str, Completion]:
    """The next completions by task, each reported once; saved at once, as a coordinator does."""
    ended, _ = collect(executor, lambda ended, begun: len(ended) >= count)
    assert len({done.task for done in ended}) == len(ended) == count
    executor.acknowledge(ended)
    return {done.task: done for done in ended}


def submit_all(executor: SlurmExecutor, messages: Iterable[TaskMessage], fake: FakeSlurm) -> dict[str, Completion]:
    """Submit as room allows while jobs run to their end."""
    rest, done = list(messages), {}
    total = len(rest)

    def step() -> bool:
        if executor.capacity() != 0:
            del rest[: executor.submit(rest)]
        fake.run_all(fake.complete)
        for report in executor.poll(0.01):
            if isinstance(report, Completion):
                assert report.task not in done
                done[report.task] = report
                executor.acknowledge([report])
        return len(done) == total

    poll_until(executor, step)
    return done


def left_in(folder: Path) -> list[Path]:
    """Files of the spools; the ledgers stay."""
    return [path for path in folder.rglob("*") if path.is_file() and "ledger" not in path.name]


# --- arrays


def test_ready_tasks_of_one_kind_are_one_array(fake: FakeSlurm, slurm_executor: SlurmExecutor, tmp_path: Path) -> None:
    assert slurm_executor.submit(tasks(5)) == 5
    assert [job.id for job in fake.jobs()] == ["1_0", "1_1", "1_2", "1_3", "1_4"]
    fake.run_all(fake.complete)

    done = ends(slurm_executor, 5)

    assert {name: one.output_ref for name, one in done.items()} == {f"t{n}": f'"t{n}"' for n in range(5)}
    assert left_in(tmp_path / "spools") == []


def test_arrays_are_of_one_template_queue_and_resources(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    mixed = [
        *tasks(2),
        replace(tasks(1)[0], task="other", template="other"),
        replace(tasks(1)[0], task="large", resources={"memory": "2G"}),
        replace(tasks(1)[0], task="elsewhere", queue="gpu"),
        replace(tasks(1)[0], task="another-run", workflow_id="wf2"),
    ]

    assert slurm_executor.submit(mixed) == len(mixed)

    assert sorted({job.id.partition("_")[0] for job in fake.jobs()}) == ["1", "2", "3", "4", "5"]
    assert len({job.name for job in fake.jobs()}) == 5


def test_an_array_is_no_larger_than_the_cluster_allows(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    fake.set("max_array_size", 4)

    slurm_executor.submit(tasks(7))

    assert [job.id for job in fake.jobs()] == ["1_0", "1_1", "1_2", "2_0", "2_1", "2_2", "3"]


def test_readiness_is_collected_for_a_moment(fake: FakeSlurm, make: Make) -> None:
    executor = make(patience=replace(QUICK, collect_s=0.2))
    first, second = tasks(2)

    assert executor.submit([first]) == 0
    assert executor.capacity() == 0
    poll_until(executor, lambda: executor.capacity() is None)

    assert executor.submit([first, second]) == 2
    assert [job.id for job in fake.jobs()] == ["1_0", "1_1"]


def test_short_tasks_share_jobs(fake: FakeSlurm, make: Make) -> None:
    executor = make(default=SlurmQueue(pack=3))

    executor.submit(tasks(7))

    assert [job.id for job in fake.jobs()] == ["1_0", "1_1", "1_2"]
    ran = [[one.task for one in fake.complete(job)] for job in fake.jobs()]
    assert ran == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]
    assert all(done.success for done in ends(executor, 7).values())


def test_the_rest_of_a_pack_is_not_charged_with_the_end_of_its_job(fake: FakeSlurm, make: Make) -> None:
    executor = make(default=SlurmQueue(pack=3))
    executor.submit(tasks(3))

    fake.end(fake.jobs()[0], "TIMEOUT")
    done = ends(executor, 3)

    assert [done[f"t{n}"].kind for n in range(3)] == [
        FailureKind.TIMEOUT,
        FailureKind.PREEMPTED,
        FailureKind.PREEMPTED,
    ]


def test_a_message_in_flight_is_taken_and_changes_nothing(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    slurm_executor.submit(tasks(2))

    assert slurm_executor.submit(tasks(3)) == 3

    assert [job.id for job in fake.jobs()] == ["1_0", "1_1", "2"]


# --- limits and refusals


def test_a_submit_limit_that_is_set_is_never_exceeded(fake: FakeSlurm, make: Make) -> None:
    fake.set("submit_limit", 4)
    executor = make(default=SlurmQueue(submit_limit=4))

    done = submit_all(executor, tasks(40), fake)

    assert len(done) == len(fake.jobs()) == 40
    assert all(one.success for one in done.values())


def test_a_submit_limit_that_accounting_knows_is_never_met(fake: FakeSlurm, make: Make) -> None:
    fake.set("submit_limit", 4)
    fake.set("told_limit", 4)
    executor = make()

    done = submit_all(executor, tasks(20), fake)

    assert len(done) == 20
    assert fake.calls()["sbatch"] == len({job.id.partition("_")[0] for job in fake.jobs()})  # none was refused
    assert fake.calls()["sacctmgr"] == 2


def test_a_submit_limit_that_nobody_told_is_found_out(fake: FakeSlurm, make: Make) -> None:
    fake.set("submit_limit", 4)
    executor = make()

    done = submit_all(executor, tasks(40), fake)

    assert len(done) == len(fake.jobs()) == 40
    assert all(one.success for one in done.values())


def test_a_full_queue_holds_up_no_other(fake: FakeSlurm, make: Make) -> None:
    executor = make(queues={"small": SlurmQueue(submit_limit=1)})
    small, large = tasks(2, queue="small"), tasks(2, queue="large")
    mixed = [small[0], small[1], replace(large[0], task="l0"), replace(large[1], task="l1")]

    assert executor.submit(mixed) == 1
    assert len(fake.jobs()) == 3

    fake.run_all(fake.complete)
    ends(executor, 3)
    assert executor.submit([small[1]]) == 1


def test_a_job_that_slurm_will_never_take_fails_its_tasks_with_one_clear_error(
    fake: FakeSlurm, make: Make, tmp_path: Path
) -> None:
    fake.fault("sbatch", "refuses")
    executor = make()

    assert executor.submit(tasks(3)) == 3
    done = ends(executor, 3)

    assert {one.kind for one in done.values()} == {FailureKind.CONFIG}
    assert "Invalid qos specification" in (done["t0"].error or "")
    assert "dagkit.toml" in (done["t0"].error or "")
    assert left_in(tmp_path / "spools") == []


@pytest.mark.parametrize(
    ("resources", "word"),
    [({"extra": {"array": "0-3"}}, "set by dagkit itself"), ({"extra": {"Bad Option": 1}}, "long name")],
)
def test_a_resource_that_cannot_be_passed_on_fails_its_task(
    fake: FakeSlurm, slurm_executor: SlurmExecutor, resources: dict[str, Any], word: str
) -> None:
    slurm_executor.submit([*tasks(1, resources=resources), replace(tasks(1)[0], task="good")])
    fake.run_all(fake.complete)

    done = ends(slurm_executor, 2)

    assert done["t0"].kind is FailureKind.CONFIG
    assert word in (done["t0"].error or "")
    assert done["good"].success


def test_without_sbatch_nothing_is_taken(make: Make) -> None:
    executor = make(commands=Commands(5.0, {"PATH": "/nowhere"}))

    with pytest.raises(BackendError, match="login node"):
        executor.submit(tasks(2))


# --- sbatch without an answer


@pytest.mark.parametrize("fault", ["times out, accepted", "times out, not accepted", "hangs, accepted"])
def test_a_submission_without_an_answer_is_made_once(fake: FakeSlurm, make: Make, fault: Any) -> None:
    executor = make(commands=Commands(1.0, {**os.environ, **fake.environment}))
    fake.fault("sbatch", fault, value=30)

    assert executor.submit(tasks(3)) == 3
    poll_until(executor, lambda: not executor._elements.unanswered)

    assert len(fake.jobs()) == 3
    fake.run_all(fake.complete)
    assert all(done.success for done in ends(executor, 3).values())


def test_a_job_that_ended_before_its_name_was_looked_for_is_found_by_its_completions(
    fake: FakeSlurm, slurm_executor: SlurmExecutor
) -> None:
    fake.fault("sbatch", "times out, accepted")
    slurm_executor.submit(tasks(3))
    fake.run_all(fake.complete)

    assert all(done.success for done in ends(slurm_executor, 3).values())
    assert len(fake.jobs()) == 3


def test_a_request_that_a_busy_controller_takes_up_late_is_not_made_again(fake: FakeSlurm, make: Make) -> None:
    # seen with a controller that hung for longer than `settle_s`: its first answer came before it took up the request
    executor = make(patience=replace(QUICK, settle_s=1.0))
    fake.fault("sbatch", "times out, accepted later", value=2.0)
    fake.fault("squeue", "fails", times=1000)
    executor.submit(tasks(3))
    hung_until = time.monotonic() + 1.5
    poll_until(executor, lambda: time.monotonic() > hung_until)
    fake.forget_faults()

    poll_until(executor, lambda: not executor._elements.unanswered)

    assert len(fake.jobs()) == 3
    fake.run_all(fake.complete)
    assert all(done.success for done in ends(executor, 3).values())


def test_while_slurm_does_not_answer_nothing_is_submitted_again(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    fake.fault("sbatch", "times out, accepted")
    fake.fault("squeue", "fails", times=5)
    slurm_executor.submit(tasks(1))

    poll_until(slurm_executor, lambda: fake.calls().get("squeue", 0) > 6)

    assert len(fake.jobs()) == 1


# --- ends without a completion


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("OUT_OF_MEMORY", FailureKind.MEMORY),
        ("TIMEOUT", FailureKind.TIMEOUT),
        ("PREEMPTED", FailureKind.PREEMPTED),
        ("NODE_FAIL", FailureKind.NODE),
        ("BOOT_FAIL", FailureKind.NODE),
        ("CANCELLED", FailureKind.CANCELLED),
        ("FAILED", FailureKind.USER),
        ("COMPLETED", FailureKind.LOST),
    ],
)
@pytest.mark.parametrize("accounting", ["on", "off", "lagging"])
def test_the_scheduler_says_why(
    fake: FakeSlurm, slurm_executor: SlurmExecutor, state: str, kind: FailureKind, accounting: str
) -> None:
    fake.set("accounting_off", accounting == "off")
    fake.set("sacct_lag_s", 0.2 if accounting == "lagging" else 0)
    slurm_executor.submit(tasks(2))

    for job in fake.jobs():
        fake.end(job, state, 3 if state == "FAILED" else 0)
    done = ends(slurm_executor, 2)

    assert {one.kind for one in done.values()} == {kind}
    assert "1_1" in (done["t1"].error or "")
    assert state in (done["t1"].error or "")


def test_a_folder_that_the_nodes_do_not_see_is_a_fault_of_the_settings(
    fake: FakeSlurm, slurm_executor: SlurmExecutor
) -> None:
    slurm_executor.submit(tasks(1))

    fake.end(fake.jobs()[0], "FAILED", 0, 53)
    done = ends(slurm_executor, 1)["t0"]

    assert done.kind is FailureKind.CONFIG
    assert "file system that nodes share" in (done.error or "")


def test_what_vanished_is_active_for_a_while_and_then_lost(fake: FakeSlurm, make: Make) -> None:
    executor = make(patience=replace(QUICK, gone_s=0.6))
    executor.submit(tasks(1))
    fake.vanish(fake.jobs()[0])

    assert executor.poll(0.5) == []
    done = ends(executor, 1)

    assert done["t0"].kind is FailureKind.LOST


def test_a_completion_that_shows_late_counts_if_it_is_within_the_grace(fake: FakeSlurm, make: Make) -> None:
    executor = make(patience=replace(QUICK, grace_s=20))
    executor.submit(tasks(1))
    job = fake.jobs()[0]
    fake.end(job)  # the file is still on its way through the file system

    poll_until(executor, lambda: executor._elements.gone)
    fake.complete(job, end=False)

    assert ends(executor, 1)["t0"].success


def test_a_completion_after_the_verdict_is_removed_and_not_reported(
    fake: FakeSlurm, slurm_executor: SlurmExecutor, tmp_path: Path
) -> None:
    slurm_executor.submit(tasks(2))
    first, second = fake.jobs()
    fake.end(first)
    assert ends(slurm_executor, 1)["t0"].kind is FailureKind.LOST

    fake.complete(first, end=False)
    fake.complete(second)

    assert list(ends(slurm_executor, 1)) == ["t1"]
    assert left_in(tmp_path / "spools") == []


def test_a_requeued_job_is_the_same_attempt(fake: FakeSlurm, make: Make) -> None:
    slurm_executor = make(patience=replace(QUICK, short_grace_s=60))
    slurm_executor.submit(tasks(1))
    job = fake.jobs()[0]
    fake.start(job)
    poll_until(slurm_executor, lambda: job.id in slurm_executor._elements.by_id)
    fake.end(job, "PREEMPTED")
    poll_until(slurm_executor, lambda: slurm_executor._elements.gone)
    fake.requeue(job)
    poll_until(slurm_executor, lambda: not slurm_executor._elements.gone)

    fake.complete(job)

    done = ends(slurm_executor, 1)["t0"]
    assert (done.success, done.attempt) == (True, 1)


def test_the_log_of_slurm_is_added_to_that_of_the_attempt(
    fake: FakeSlurm, slurm_executor: SlurmExecutor, store: Store, tmp_path: Path
) -> None:
    slurm_executor.submit(tasks(1))
    store.append_log("wf1", "t0", "0.1", 0, b"step 1\n")
    (folder,) = (tmp_path / "spools").glob("*/spool/jobs/*")
    (folder / "1_0_log.err").write_text("slurmstepd: error: Detected 1 oom-kill event(s)\n")

    fake.end(fake.jobs()[0], "FAILED", 137)
    done = ends(slurm_executor, 1)["t0"]

    assert done.kind is FailureKind.MEMORY
    assert "oom-kill" in (done.error or "")
    assert store.read_log("wf1", "t0", "0.1").startswith(b"step 1\nslurmstepd: error: Detected")


# --- starts, looks


def test_a_start_is_told_once(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    slurm_executor.submit(tasks(2))
    first, _ = fake.jobs()
    fake.start(first)

    _, begun = collect(slurm_executor, lambda ended, begun: bool(begun))
    looks = fake.calls()["squeue"]
    more = poll_until(slurm_executor, lambda: fake.calls()["squeue"] > looks + 2)

    assert [one.task for one in begun] == ["t0"]
    assert not [one for one in more if isinstance(one, Started)]


def test_looks_become_rare_while_nothing_changes(fake: FakeSlurm, make: Make) -> None:
    executor = make(patience=replace(QUICK, look_s=0.05, most_look_s=100))
    executor.submit(tasks(3))

    executor.poll(1.5)

    # 0.05 s grows by half each time: 0.05, 0.075, ... 0.57 are ten looks, where equal steps would be thirty
    assert fake.calls()["squeue"] <= 11
    assert "sacct" not in fake.calls()


def test_nothing_in_flight_is_nothing_to_look_at(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    slurm_executor.poll(0.3)

    assert fake.calls() == {}


# --- stopping


def test_cancelled_jobs_are_gone_from_slurm_when_they_are_reported(
    fake: FakeSlurm, slurm_executor: SlurmExecutor
) -> None:
    messages = tasks(4)
    slurm_executor.submit(messages)

    slurm_executor.cancel([one.key for one in messages[:3]], FailureKind.CANCELLED)
    done = ends(slurm_executor, 3)

    assert {one.kind for one in done.values()} == {FailureKind.CANCELLED}
    assert [job.state for job in fake.jobs()] == ["CANCELLED"] * 3 + ["PENDING"]


def test_a_job_cancelled_by_somebody_else_is_reported_as_that(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    slurm_executor.submit(tasks(1))

    fake.end(fake.jobs()[0], "CANCELLED", 0, 15)
    done = ends(slurm_executor, 1)["t0"]

    assert done.kind is FailureKind.CANCELLED
    assert "somebody else" in (done.error or "")


def test_what_ended_by_itself_before_the_stop_is_what_it_was(fake: FakeSlurm, slurm_executor: SlurmExecutor) -> None:
    messages = tasks(1)
    slurm_executor.submit(messages)
    fake.complete(fake.jobs()[0])

    slurm_executor.cancel([messages[0].key], FailureKind.TIMEOUT)

    assert ends(slurm_executor, 1)["t0"].success


def test_a_scancel_that_fails_is_tried_again(fake: FakeSlurm, make: Make) -> None:
    fake.fault("scancel", "fails", times=2)
    executor = make(patience=replace(QUICK, stop_s=0.1))
    messages = tasks(2)
    executor.submit(messages)

    executor.cancel([one.key for one in messages], FailureKind.CANCELLED)
    ends(executor, 2)

    assert not fake.jobs(active=True)


def test_a_job_of_a_pack_goes_on_for_the_others(fake: FakeSlurm, make: Make) -> None:
    executor = make(default=SlurmQueue(pack=2))
    messages = tasks(2)
    executor.submit(messages)

    executor.cancel([messages[0].key], FailureKind.TIMEOUT)
    assert ends(executor, 1)["t0"].kind is FailureKind.TIMEOUT

    (job,) = fake.jobs()
    assert stops_of(job) == {0}
    fake.run_all(fake.complete)
    assert ends(executor, 1)["t1"].success


def stops_of(job: FakeSlurmJob) -> set[int]:
    """What a job would read when it looks for tasks that it is not to run."""
    folder = Path(job.script.partition("dagkit.executors.job ")[2].split()[0])
    return JobFolder(folder).stops(job.place)


def test_every_task_of_a_pack_is_said_to_begin_when_the_one_before_has_ended(fake: FakeSlurm, make: Make) -> None:
    executor = make(default=SlurmQueue(pack=3))
    executor.submit(tasks(3))
    (job,) = fake.jobs()
    fake.start(job)
    _, first = collect(executor, lambda ended, begun: bool(begun))

    folder = JobFolder(Path(job.script.partition("dagkit.executors.job ")[2].split()[0]))
    folder.finish(0, 0, Completion("wf1", "t0", True, None, None, 1, 0))
    _, second = collect(executor, lambda ended, begun: bool(ended) and bool(begun))

    assert [one.task for one in [*first, *second]] == ["t0", "t1"]


def test_what_was_to_be_stopped_is_stopped_before_it_closes(fake: FakeSlurm, make: Make) -> None:
    executor = make()
    messages = tasks(2)
    executor.submit(messages)

    executor.cancel([one.key for one in messages], FailureKind.CANCELLED)
    executor.close()

    assert not fake.jobs(active=True)


# --- restarts


def test_a_restart_adopts_what_slurm_has(fake: FakeSlurm, make: Make) -> None:
    before = make()
    before.submit(tasks(3))
    before.close()
    fake.complete(fake.jobs()[0])  # while nobody looked

    after = make()
    lost = after.recover([*tasks(3), message("never", {"cmd": "true"})])
    fake.run_all(fake.complete)

    assert [(one.task, one.kind) for one in lost] == [("never", FailureKind.LOST)]
    assert all(done.success for done in ends(after, 3).values())
    assert len(fake.jobs()) == 3


def test_what_was_submitted_and_not_saved_is_adopted_when_it_is_submitted_again(fake: FakeSlurm, make: Make) -> None:
    before = make()
    before.submit(tasks(3))
    before.close()

    after = make()
    assert after.recover([]) == []
    assert after.submit(tasks(4)) == 4

    assert [job.id for job in fake.jobs()] == ["1_0", "1_1", "1_2", "2"]


@pytest.mark.parametrize("fault", ["times out, accepted", "times out, not accepted"])
def test_a_restart_finds_out_about_submissions_without_an_answer(fake: FakeSlurm, make: Make, fault: Any) -> None:
    fake.fault("sbatch", fault)
    before = make()
    before.submit(tasks(3))
    before.close()

    after = make()
    assert after.recover(tasks(3)) == []
    poll_until(after, lambda: not after._elements.unanswered)

    assert len(fake.jobs()) == 3
    fake.run_all(fake.complete)
    assert all(done.success for done in ends(after, 3).values())


def test_reported_and_not_saved_is_reported_again(fake: FakeSlurm, make: Make) -> None:
    before = make()
    before.submit(tasks(2))
    fake.complete(fake.jobs()[0])
    fake.end(fake.jobs()[1], "NODE_FAIL")
    collect(before, lambda ended, begun: len(ended) == 2)  # and the coordinator dies before it saves
    before.close()

    after = make()
    after.recover(tasks(2))
    done = ends(after, 2)

    assert done["t0"].success
    assert done["t1"].kind is FailureKind.NODE


def test_another_login_node_adopts_what_the_shared_file_system_tells(
    fake: FakeSlurm, make: Make, store: Store, tmp_path: Path
) -> None:
    start(store, {"t0": "completed", "t1": "running", "t2": "running"})
    before = make(ledgers=tmp_path / "login1", default=SlurmQueue(pack=2))
    before.submit(tasks(4))  # that t3 was submitted was not saved
    before.close()
    fake.complete(fake.jobs()[0])  # t0 and t1, while nobody looked

    after = make(ledgers=tmp_path / "login2", default=SlurmQueue(pack=2))
    assert after.recover(tasks(3)[1:]) == []
    assert after.submit(tasks(4)[3:]) == 1
    fake.run_all(fake.complete)
    done = ends(after, 3)

    assert set(done) == {"t1", "t2", "t3"}
    assert all(one.success for one in done.values())
    assert len(fake.jobs()) == 2
    after.poll(0.1)
    assert left_in(tmp_path / "spools") == []


def test_another_login_node_cancels_what_it_has_adopted(
    fake: FakeSlurm, make: Make, store: Store, tmp_path: Path
) -> None:
    start(store, {"t0": "running"})
    before = make(ledgers=tmp_path / "login1")
    before.submit(tasks(1))
    before.close()

    after = make(ledgers=tmp_path / "login2")
    after.recover(tasks(1))
    after.cancel([tasks(1)[0].key], FailureKind.CANCELLED)

    assert ends(after, 1)["t0"].kind is FailureKind.CANCELLED
    assert not fake.jobs(active=True)


def test_what_was_not_handed_over_on_another_login_node_is_submitted_here(
    fake: FakeSlurm, make: Make, store: Store, tmp_path: Path
) -> None:
    start(store, {"t0": "running", "t1": "running"})
    fake.fault("sbatch", "times out, not accepted")
    before = make(ledgers=tmp_path / "login1")
    before.submit(tasks(2))
    before.close()

    after = make(ledgers=tmp_path / "login2")
    assert after.recover(tasks(2)) == []
    poll_until(after, lambda: len(fake.jobs()) == 2)
    fake.run_all(fake.complete)

    assert all(done.success for done in ends(after, 2).values())


def start(store: Store, states: dict[str, str]) -> None:
    """A run of the store, the tasks of which are in these states with their first attempts."""
    spec = WorkflowSpec(name="w", tasks=[TaskSpec(name=f"t{n}", kwargs={"cmd": "true"}) for n in range(4)])
    document = WorkflowState.create(spec, "wf1", 0.0).document()
    document["tasks"].update({name: {"state": state, "attempt_no": 1} for name, state in states.items()})
    store.create("wf1", spec.definition("wf1", NOW), document)


def test_jobs_of_a_run_that_was_cancelled_meanwhile_are_cancelled(fake: FakeSlurm, make: Make, store: Store) -> None:
    spec = WorkflowSpec(name="w", tasks=[TaskSpec(name="t0", kwargs={"cmd": "true"})])
    store.create("wf1", spec.definition("wf1", NOW), WorkflowState.create(spec, "wf1", 0.0).document())
    before = make()
    before.submit(tasks(1))
    before.close()
    store.request_cancel("wf1")

    after = make()
    after.recover([])  # the submission was not saved as running
    after.submit(tasks(1))

    assert ends(after, 1)["t0"].kind is FailureKind.CANCELLED
    assert not fake.jobs(active=True)
