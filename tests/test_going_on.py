"""Going on with runs whose process has ended: hot, cold, with more resources; refused where somebody drives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import embedded, shell, task, workflow
from dagkit.errors import RunBusy, RunTimeout, UsageError
from dagkit.launch import attach
from dagkit.model.spec import WorkflowSpec
from dagkit.resume import carried_over
from dagkit.run import Run

LIMIT_S = 30.0
SCRIPT = """
import sys
from dagkit import shell, workflow

@workflow
def flow():
    return shell("echo x >> begun; until test -e gate; do sleep 0.02; done", name="slow")()

if __name__ == "__main__":
    flow().run(store=".dagkit", id="r", target=sys.argv[1], wait=False, progress=False)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    embedded.close_all()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def abandoned(folder: Path, target: str) -> Run:
    """A run whose process was killed while its task was running."""
    folder.joinpath("script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", target]
    with subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE, start_new_session=True) as process:
        until(lambda: folder.joinpath(".dagkit").is_dir() and is_running(folder))
        os.killpg(process.pid, signal.SIGKILL)
    return attach("r", folder / ".dagkit", drive=False)


def is_running(folder: Path) -> bool:
    try:
        return attach("r", folder / ".dagkit", drive=False).counts.running == 1
    except dagkit.errors.DagkitError:
        return False


@pytest.mark.parametrize("how", ["hot", "cold"])
def test_a_local_task_that_died_with_its_process_runs_again(tmp_path: Path, how: Any) -> None:
    run = abandoned(tmp_path, "local")
    tmp_path.joinpath("gate").touch()
    assert run.resume(how) is run
    run.wait(LIMIT_S)
    assert run.counts.completed == 1


def test_a_message_that_still_waits_is_adopted_when_hot(tmp_path: Path) -> None:
    run = abandoned(tmp_path, "queued")
    run.resume("hot")
    with pytest.raises(RunBusy, match="is driven by"):
        attach("r", tmp_path / ".dagkit", drive=False).resume()
    row = run.task("slow")
    assert (row.state.value, row.attempt, row.generation) == ("running", 1, 0)


def test_letting_go_of_tasks_that_wait_on_a_queue_takes_no_time(tmp_path: Path) -> None:
    """A coordinator waited five seconds for workers to stop what they would go on with anyway."""
    abandoned(tmp_path, "queued").resume()
    begin = time.monotonic()
    embedded.close_all()
    assert time.monotonic() - begin < 3


def test_cold_gives_up_after_its_timeout_and_says_so(tmp_path: Path) -> None:
    run = abandoned(tmp_path, "queued")
    begin = time.monotonic()
    with pytest.raises(RunTimeout, match="cancelling"):
        run.resume("cold", timeout=0.5)
    assert time.monotonic() - begin < 10


def test_what_failed_is_tried_afresh(tmp_path: Path) -> None:
    mark = tmp_path / "repaired"

    @workflow
    def flow() -> Any:
        return shell(f"test -e {mark}", name="bad")(), shell("true", name="good")()

    run = flow().run(store=tmp_path / ".dagkit", progress=False)
    assert (run.counts.completed, run.counts.failed) == (1, 1)
    mark.touch()
    run.resume().wait(LIMIT_S)
    assert run.counts.completed == 2
    assert run.task("good").generation == 0


def test_more_memory_than_the_last_attempt_had(tmp_path: Path) -> None:
    @task(memory="1G")
    def hungry() -> None:
        raise MemoryError

    @workflow
    def flow() -> Any:
        return hungry()

    run = flow().run(store=tmp_path / ".dagkit", progress=False)
    run.resume(increase_resources=True).wait(LIMIT_S)
    assert run.task("hungry").resources == {"memory": "2G"}
    run.retry(increase_resources=True)
    run.wait(LIMIT_S)
    assert run.task("hungry").resources == {"memory": "3G"}


def test_words_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    @workflow
    def flow() -> Any:
        return shell("true")()

    run = flow().run(store=tmp_path / ".dagkit", progress=False, id="w")
    with pytest.raises(UsageError, match=r"hot .* or cold"):
        run.resume("warm")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="resume='warm'"):
        flow().run(store=tmp_path / ".dagkit", progress=False, id="w", resume="warm")  # type: ignore[arg-type]


def test_a_flow_goes_on_cold_after_what_ran_was_stopped(tmp_path: Path) -> None:
    abandoned(tmp_path, "local")
    tmp_path.joinpath("gate").touch()
    words = [
        sys.executable,
        "-c",
        "import script; print(script.flow().run(id='r', resume='cold', progress=False).status)",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "completed\n", done.stderr


def test_running_tasks_are_carried_over_when_they_do_the_same_work() -> None:
    one = WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a", "kwargs": {"cmd": "x"}}]})
    other = WorkflowSpec.from_dict({"name": "w", "tasks": [{"name": "a", "kwargs": {"cmd": "y"}}]})
    state = {"tasks": {"a": {"state": "running", "attempt_no": 2}}}
    assert carried_over(one, state, one) == {"a": {"state": "running", "attempt_no": 2}}
    assert carried_over(one, state, other) == {"a": {"generation": 1}}


def test_by_its_id_on_the_command_line(tmp_path: Path) -> None:
    abandoned(tmp_path, "local")
    tmp_path.joinpath("gate").touch()
    words = [sys.executable, "-m", "dagkit.cli", "resume", "r"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Workflow r goes on." in done.stderr


def test_a_run_timeout_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    abandoned(tmp_path, "local")
    words = [sys.executable, "-m", "dagkit.cli", "resume", "r", "--run-timeout", "0.3s"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is running, 0 of 1 tasks have ended" in done.stderr


def test_the_summary_says_what_a_resumed_run_took_over(tmp_path: Path) -> None:
    mark = tmp_path / "repaired"

    @workflow
    def flow() -> Any:
        return shell(f"test -e {mark}", name="bad")(), shell("true", name="good")()

    first = flow().run(progress=False, id="w").summary()
    assert (first["previously_completed"], first["completed"], first["failed_tasks"]) == (0, 1, ["bad"])
    mark.touch()
    second = flow().run(progress=False, id="w", resume=True).summary()
    assert (second["previously_completed"], second["completed"], second["status"]) == (1, 2, "completed")


def test_the_table_says_what_tasks_ask_for_if_any_does(tmp_path: Path) -> None:
    @task(memory="2G", cores=1)
    def asking() -> None: ...

    run = asking().run(store=tmp_path / ".dagkit", progress=False)
    assert list(run.table()["asks_for"]) == ["memory 2G, cores 1"]
