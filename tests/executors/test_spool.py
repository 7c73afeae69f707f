"""The folder in which jobs find their tasks and leave their completions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.errors import BackendError, CorruptState
from dagkit.executors.job import UNABLE, main, run_job
from dagkit.executors.spool import Spool
from dagkit.model.messages import Completion, TaskMessage
from dagkit.model.states import FailureKind
from dagkit.stores.base import Store
from dagkit.stores.sqlite import SQLiteStore
from executors.driving import is_alive, wait_until


def task(name: str, cmd: str = "true", attempt: int = 1) -> TaskMessage:
    return TaskMessage("run", name, attempt, 0, "cpu", {"cmd": cmd}, {"before": "1"})


def done(name: str, **more: Any) -> Completion:
    return Completion("run", name, True, "42", attempt=1, generation=0, **more)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SQLiteStore(tmp_path / "store")
    yield opened
    opened.close()


# --- the folder


def test_a_job_finds_the_tasks_that_were_written_down_for_it(spool: Spool) -> None:
    folder = spool.folder("fit.1")
    folder.write("sqlite:/there", [[task("a"), task("b")], [task("c", "echo 'é $HOME'")]], {"pack": 2})

    assert folder.read(0) == ("sqlite:/there", [task("a"), task("b")], {"pack": 2})
    assert folder.read(1)[1] == [task("c", "echo 'é $HOME'")]


@pytest.mark.parametrize("job", [2, -5])
def test_a_job_that_is_not_in_the_manifest_is_named(spool: Spool, job: int) -> None:
    folder = spool.folder("fit.1")
    folder.write("sqlite:/there", [[task("a")]], {})
    with pytest.raises(CorruptState, match=f"holds no job {job}"):
        folder.read(job)


def test_a_manifest_that_is_missing_or_damaged_is_named(spool: Spool) -> None:
    folder = spool.folder("fit.1")
    with pytest.raises(BackendError, match=r"manifest: cannot be read"):
        folder.read(0)
    folder.path.mkdir(parents=True)
    folder.manifest.write_text("{nonsense\n")
    with pytest.raises(CorruptState):
        folder.read(0)


def test_a_completion_arrives_once_and_is_gone_once_it_is_forgotten(spool: Spool) -> None:
    spool.folder("fit.1").finish(3, 1, done("a"))

    (arrival,) = spool.arrivals()
    assert (arrival.submission, arrival.job, arrival.place, arrival.completion) == ("fit.1", 3, 1, done("a"))
    assert spool.arrivals() == []

    spool.forget([arrival])
    assert not arrival.path.exists()
    assert spool.arrivals() == []


def test_what_was_not_forgotten_arrives_again_after_a_restart(spool: Spool) -> None:
    """It may not have been saved: the completion's file is the only copy."""
    spool.folder("fit.1").finish(0, 0, done("a"))
    spool.arrivals()

    assert [arrival.completion for arrival in Spool(spool.root).arrivals()] == [done("a")]


def test_the_first_completion_of_a_job_that_ran_twice_stays(spool: Spool) -> None:
    folder = spool.folder("fit.1")
    folder.finish(0, 0, done("a"))
    folder.finish(0, 0, Completion("run", "a", False, error="later"))

    assert [arrival.completion.success for arrival in spool.arrivals()] == [True]


def test_half_a_file_is_no_completion(spool: Spool) -> None:
    (spool.root / "done" / ".fit.1.0.0.77").write_text('{"half')
    assert spool.arrivals() == []


def test_a_file_that_is_no_completion_is_put_aside_and_the_others_arrive(spool: Spool) -> None:
    (spool.root / "done" / "fit.1.0.0").write_text("nonsense")
    spool.folder("fit.1").finish(1, 0, done("b"))

    assert [arrival.job for arrival in spool.arrivals()] == [1]
    assert (spool.root / "done" / ".unreadable-fit.1.0.0").exists()
    assert [arrival.job for arrival in spool.arrivals()] == []


def test_a_submission_that_is_over_is_removed(spool: Spool) -> None:
    folder = spool.folder("fit.1")
    folder.write("sqlite:/there", [[task("a")]], {})

    spool.remove("fit.1")
    spool.remove("fit.1")

    assert not folder.path.exists()


@pytest.mark.parametrize("name", ["", "../escape", "a/b", "1digit", "a b", "ü", ".hidden", "x" * 200])
def test_a_name_that_would_leave_the_spool_is_refused(spool: Spool, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a submission"):
        spool.folder(name)


def test_a_spool_that_cannot_be_listed_is_one_clear_error(spool: Spool) -> None:
    (spool.root / "done").rmdir()
    with pytest.raises(BackendError, match="cannot be listed"):
        spool.arrivals()


def test_readers_never_see_half_a_completion(spool: Spool) -> None:
    """A job on another machine writes while the submitter looks."""
    folder, stop, seen = spool.folder("fit.1"), threading.Event(), []
    text = "x" * 100_000

    def write() -> None:
        for number in range(100):
            folder.finish(number, 0, done("a", error=text))
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set() or len(seen) < 100:
        seen += spool.arrivals()
    writer.join()

    assert {len(arrival.completion.error or "") for arrival in seen} == {100_000}


# --- the job


def test_a_job_runs_its_tasks_one_after_the_other_and_leaves_a_completion_for_each(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    words = [task(name, f'echo {name} >> {trace}; echo "[1]" > $JOBQ_OUTPUT_FILE') for name in "abc"]
    folder = spool.folder("fit.1")
    folder.write(store.url, [[task("other")], [*words, task("bad", "exit 3")]], {})

    run_job(folder, 1)

    arrivals = {arrival.place: arrival.completion for arrival in spool.arrivals()}
    assert trace.read_text().split() == ["a", "b", "c"]
    assert [arrivals[place].task for place in range(4)] == ["a", "b", "c", "bad"]
    assert [arrivals[place].output_ref for place in range(3)] == ["[1]"] * 3
    assert (arrivals[3].success, arrivals[3].kind) == (False, FailureKind.USER)
    assert arrivals[3].usage is not None
    assert arrivals[3].usage["exit_code"] == 3


def test_a_job_that_the_scheduler_starts_again_runs_only_what_is_missing(
    spool: Spool, store: Store, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    folder = spool.folder("fit.1")
    folder.write(store.url, [[task("a", f"echo a >> {trace}"), task("b", f"echo b >> {trace}")]], {})
    folder.finish(0, 0, done("a"))

    run_job(folder, 0)

    assert trace.read_text().split() == ["b"]
    assert {arrival.completion.task for arrival in spool.arrivals()} == {"a", "b"}


def test_what_a_task_printed_is_in_the_log_of_its_attempt(spool: Spool, store: Store) -> None:
    folder = spool.folder("fit.1")
    folder.write(store.url, [[task("a", "echo hello")]], {})

    run_job(folder, 0)

    assert store.read_log("run", "a", "0.1") == b"hello\n"


def test_a_job_that_is_told_to_end_stops_its_task_and_says_so(spool: Spool, store: Store, tmp_path: Path) -> None:
    """Preemption costs the task no attempt, and what waited behind it has not begun."""
    pid, later = tmp_path / "pid", tmp_path / "later"
    folder = spool.folder("fit.1")
    folder.write(store.url, [[task("a", f"echo $$ > {pid}; sleep 600"), task("b", f"touch {later}")]], {})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLURM_ARRAY_TASK_ID": "0"}
    command = [sys.executable, "-m", "dagkit.executors.job", str(folder.path), "SLURM_ARRAY_TASK_ID"]
    with subprocess.Popen(command, env=environment) as job:
        wait_until(lambda: pid.exists() and pid.read_text().strip())
        job.send_signal(signal.SIGTERM)
        code = job.wait(30)

    kinds = {arrival.completion.task: arrival.completion.kind for arrival in spool.arrivals()}
    assert code == 0
    assert kinds["a"] is FailureKind.PREEMPTED
    assert kinds.get("b", FailureKind.PREEMPTED) is FailureKind.PREEMPTED
    assert not later.exists()
    wait_until(lambda: not is_alive(int(pid.read_text())))


def test_a_job_that_cannot_do_its_work_says_why(
    spool: Spool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = spool.folder("fit.1")
    assert main([str(folder.path), "0"]) == UNABLE
    assert "manifest: cannot be read" in capfd.readouterr().err
    assert main([str(folder.path), "NO_SUCH_VARIABLE"]) == UNABLE
    assert "has not set NO_SUCH_VARIABLE" in capfd.readouterr().err


def test_the_manifest_of_many_jobs_is_read_for_one_of_them(spool: Spool) -> None:
    folder = spool.folder("many.1")
    folder.write("sqlite:/there", [[task(f"t-{number}")] for number in range(5000)], {})

    assert folder.read(4999)[1] == [task("t-4999")]
    assert len(json.loads(folder.manifest.read_bytes().partition(b"\n")[0])["offsets"]) == 5000
