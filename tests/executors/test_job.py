"""What a scheduler's job runs, as a process that is signalled like one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagkit.executors.spool import JobFolder, Spool
from dagkit.model.messages import Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.model.trace_ids import traceparent
from dagkit.stores.base import Store
from executors.driving import call, message, wait_until

TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def start(
    spool: Spool, store: Store, messages: list[TaskMessage], options: dict[str, Any], **environ: str
) -> subprocess.Popen[str]:
    """The job's process, in a group of its own, as Slurm starts one."""
    folder = spool.folder("sub")
    folder.write(store.url, [messages], {"path": [TESTS], "kill_timeout_s": 1, **options})
    command = [sys.executable, "-m", "dagkit.executors.job", str(folder.path), "0"]
    return subprocess.Popen(
        command, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, said = job.communicate(timeout=30)
    finally:
        job.kill()
    return job.returncode, said


def left(spool: Spool) -> dict[str, Completion]:
    return {arrival.completion.task: arrival.completion for arrival in spool.arrivals()}


def notes(folder: Path, name: str) -> dict[str, Any]:
    call_ = {"function": f"runtime.notice_steps:{name}", "args": [str(folder)], "kwargs": {}}
    return {"cmd": "dagkit exec", "call": call_}


def test_tasks_of_a_pack_run_one_after_the_other(spool: Spool, store: Store) -> None:
    messages = [message("a", call("echo", 1)), message("b", call("fail")), message("c", {"cmd": "true"})]

    code, _ = ended(start(spool, store, messages, {}))

    found = left(spool)
    assert code == 0
    assert {name: done.success for name, done in found.items()} == {"a": True, "b": False, "c": True}


def test_a_job_that_is_started_again_runs_only_what_has_no_completion(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    messages = [message(name, call("mark", str(tmp_path), name)) for name in ("a", "b")]
    folder = spool.folder("sub")
    folder.finish(0, 0, Completion("wf1", "a", True, "1", None, 1, 0))

    ended(start(spool, store, messages, {}))

    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").read_text() == "ran\n"
    assert left(spool)["a"].output_ref == "1"


def test_tasks_of_a_pack_that_are_not_wanted_any_more_end_and_the_others_run(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    messages = [
        message("runs", notes(tmp_path, "hang")),
        message("waits", call("mark", str(tmp_path), "waits")),
        message("stays", call("mark", str(tmp_path), "stays")),
    ]
    job = start(spool, store, messages, {"on_stop": "leave"})
    wait_until((tmp_path / "pid").exists)

    spool.folder("sub").stop(0, [0])
    spool.folder("sub").stop(0, [1])
    code, _ = ended(job)

    assert code == 0
    assert list(left(spool)) == ["stays"]
    assert not (tmp_path / "waits").exists()


def test_the_span_of_an_attempt_is_told_though_the_scheduler_hides_the_environment(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    messages = [message("a", {"cmd": f"echo $TRACEPARENT > {tmp_path}/told"})]

    ended(start(spool, store, messages, {"traced": True}, DAGKIT_TRACING=""))

    assert (tmp_path / "told").read_text().strip() == traceparent("wf1", "a", 0, 1)


def test_a_stopped_job_leaves_the_verdict_to_its_scheduler(spool: Spool, store: Store, tmp_path: Path) -> None:
    messages = [
        message("a", call("echo", 1)),
        message("b", notes(tmp_path, "hang")),
        message("c", call("mark", str(tmp_path), "c")),
    ]
    job = start(spool, store, messages, {"on_stop": "leave"})
    wait_until((tmp_path / "pid").exists)

    job.send_signal(signal.SIGTERM)
    code, _ = ended(job)

    assert code == 128 + signal.SIGTERM
    assert list(left(spool)) == ["a"]
    assert (tmp_path / "notices").read_text() == "stopped\n"
    assert not (tmp_path / "c").exists()


def test_a_task_that_is_signalled_before_its_job_is_stopped_too(spool: Spool, store: Store, tmp_path: Path) -> None:
    # slurmd signals the processes of a job one by one, in no order
    job = start(spool, store, [message("a", notes(tmp_path, "hang"))], {"on_stop": "leave"})
    wait_until((tmp_path / "pid").exists)

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    wait_until((tmp_path / "notices").exists)
    job.send_signal(signal.SIGTERM)
    code, _ = ended(job)

    assert code == 128 + signal.SIGTERM
    assert left(spool) == {}


def test_where_the_scheduler_says_nothing_a_stopped_task_was_preempted(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    job = start(spool, store, [message("a", notes(tmp_path, "hang"))], {})
    wait_until((tmp_path / "pid").exists)

    job.send_signal(signal.SIGTERM)
    code, _ = ended(job)

    assert code == 0
    assert left(spool)["a"].kind is FailureKind.PREEMPTED


def test_notice_of_the_time_limit_reaches_the_task(spool: Spool, store: Store, tmp_path: Path) -> None:
    job = start(spool, store, [message("a", notes(tmp_path, "hang"))], {"on_stop": "leave"})
    wait_until((tmp_path / "pid").exists)

    job.send_signal(signal.SIGUSR1)
    wait_until((tmp_path / "notices").exists)

    assert (tmp_path / "notices").read_text() == "time limit\n"
    assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    ended(job)


def test_a_command_is_not_killed_by_the_notice(spool: Spool, store: Store, tmp_path: Path) -> None:
    job = start(spool, store, [message("a", {"cmd": f"touch {tmp_path}/on; sleep 0.5"})], {"on_stop": "leave"})
    wait_until((tmp_path / "on").exists)

    job.send_signal(signal.SIGUSR1)

    assert ended(job)[0] == 0
    assert left(spool)["a"].success


def test_only_the_first_rank_reports(spool: Spool, store: Store) -> None:
    messages = [message("a", {"cmd": "echo $SLURM_PROCID; echo $SLURM_PROCID > $JOBQ_OUTPUT_FILE"})]

    code, _ = ended(start(spool, store, messages, {"srun": True}, SLURM_PROCID="2"))
    assert (code, left(spool)) == (0, {})
    assert store.read_log("wf1", "a.rank2", "0.1") == b"2\n"

    ended(start(spool, store, messages, {"srun": True}, SLURM_PROCID="0"))
    assert left(spool)["a"].output_ref == "0"


def test_a_rank_that_fails_says_which(spool: Spool, store: Store) -> None:
    code, said = ended(start(spool, store, [message("a", {"cmd": "exit 3"})], {"srun": True}, SLURM_PROCID="2"))

    assert code == 1
    assert "rank 2" in said
    assert "exit code 3" in said


@pytest.mark.parametrize("index", ["7", "NO_SUCH_VARIABLE"])
def test_a_job_that_cannot_do_its_work_says_why(spool: Spool, store: Store, index: str) -> None:
    folder: JobFolder = spool.folder("sub")
    folder.write(store.url, [[message("a", {"cmd": "true"})]], {})
    command = [sys.executable, "-m", "dagkit.executors.job", str(folder.path), index]

    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 70
    assert done.stderr.startswith("dagkit job: ")
