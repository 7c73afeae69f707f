"""Whole runs on the local target: what a person at a notebook, a prompt or a script gets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import shell, task, workflow
from dagkit.errors import RunCancelled, RunTimeout, TaskFailed, UnknownRun, UnknownTask, WorkflowExists
from dagkit.launch import start
from dagkit.model.states import RunStatus, TaskState


@task
def double(x: int) -> int:
    return 2 * x


@task
def add(*numbers: int) -> int:
    return sum(numbers)


@task
def say(text: str) -> str:
    print(text)
    return text


@task(retries=1)
def explode(reason: str) -> int:
    print("about to explode")
    raise ValueError(reason)


@task
def linger(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@workflow
def diamond(x: int) -> Any:
    top = double(x)
    return add(double(top), double(top))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / ".dagkit")


def test_a_diamond_returns_its_value(store: str) -> None:
    run = diamond(3).run(store=store, progress=False)

    assert run.result() == 24
    assert run.status is RunStatus.COMPLETED
    assert run["double"] == 6
    assert [row.state for row in run.tasks()] == [TaskState.COMPLETED] * 4


def test_a_node_alone_runs_with_its_ancestors(store: str) -> None:
    node = add(double(1), double(2))

    assert node.run(store=store, progress=False).result() == 6


def test_a_failure_carries_the_remote_traceback_the_log_and_the_attempts(store: str) -> None:
    run = explode("the lamp is out").run(store=store, progress=False)

    assert run.status is RunStatus.FAILED
    with pytest.raises(TaskFailed, match="the lamp is out") as failure:
        run.result()
    assert failure.value.task == "explode"
    assert (failure.value.attempts, failure.value.max_attempts) == (2, 2)
    assert "raise ValueError(reason)" in failure.value.traceback
    assert "about to explode" in failure.value.log_tail
    assert run.errors()[0].error == "ValueError: the lamp is out"


def test_what_depends_on_a_failure_says_so(store: str) -> None:
    run = add(explode("no"), double(1)).run(store=store, progress=False)

    assert run.task("add").state is TaskState.UPSTREAM_FAILED
    with pytest.raises(TaskFailed, match="did not run"):
        run["add"]


def test_an_unknown_task_is_named_with_what_it_may_have_meant(store: str) -> None:
    run = double(1).run(store=store, progress=False)

    with pytest.raises(UnknownTask, match="double"):
        run["dubble"]


def test_logs_of_a_task_are_what_it_printed(store: str) -> None:
    run = say("hello from afar").run(store=store, progress=False)

    assert run.logs("say") == "hello from afar\n"


def test_logs_are_followed_while_the_task_runs(store: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"echo one; while [ ! -e {gate} ]; do sleep 0.02; done; echo two"
    run = shell(command, name="talk")().run(store=store, progress=False, wait=False)
    pieces = run.logs("talk", follow=True)

    first = next(pieces)
    gate.touch()

    assert first == "one\n"
    assert "".join(pieces) == "two\n"


def test_waiting_stops_at_its_limit_and_the_run_goes_on(store: str) -> None:
    run = linger(1.0).run(store=store, progress=False, wait=False)

    with pytest.raises(RunTimeout, match="goes on"):
        run.wait(timeout=0.05)
    assert run.result(timeout=20) == 1.0


def test_a_cancelled_run_stops_its_tasks_and_can_be_retried(store: str) -> None:
    run = add(linger(60.0), 1).run(store=store, progress=False, wait=False)
    until(lambda: run.task("linger").state is TaskState.RUNNING)

    run.cancel()

    assert run.wait(timeout=20) is RunStatus.CANCELLED
    assert run.task("linger").state is TaskState.CANCELLED
    with pytest.raises(RunCancelled):
        run.result()


def test_a_retry_runs_what_failed_and_what_hung_on_it(store: str, tmp_path: Path) -> None:
    flag = tmp_path / "fixed"

    @task
    def fragile(path: str) -> str:
        return Path(path).read_text()

    run = say(fragile(str(flag))).run(store=store, progress=False)
    assert run.status is RunStatus.FAILED

    flag.write_text("mended")
    counts = run.retry()

    assert (counts.reset, counts.now_ready, counts.still_pending) == (2, 1, 1)
    assert run.result(timeout=20) == "mended"


def test_rerun_from_a_task_runs_it_and_its_descendants_again(store: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    @task
    def note(word: str, after: Any = None) -> str:
        with log.open("a") as file:
            file.write(word + "\n")
        return word

    @workflow
    def three() -> Any:
        a = note.options(name="a")("a")
        b = note.options(name="b")("b", a)
        return note.options(name="c")("c", b)

    run = three().run(store=store, progress=False)
    assert run.rerun(from_="b") == 2

    assert run.result(timeout=20) == "c"
    assert log.read_text().split() == ["a", "b", "c", "b", "c"]


def test_reproduce_runs_the_very_arguments_here(store: str) -> None:
    run = explode("as it was").run(store=store, progress=False)

    with pytest.raises(ValueError, match="as it was"):
        run.reproduce("explode")
    assert diamond(2).run(store=store, progress=False).reproduce("add") == 16


def test_awaiting_a_run_leaves_the_loop_free(store: str) -> None:
    async def main() -> tuple[Any, int]:
        run = linger(0.3).run(store=store, progress=False, wait=False)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        value = await run
        ticking.cancel()
        return value, ticks

    value, ticks = asyncio.run(main())

    assert value == 0.3
    assert ticks > 5


def test_a_run_inside_a_running_event_loop(store: str) -> None:
    async def main() -> Any:
        return diamond(1).run(store=store, progress=False).result()

    assert asyncio.run(main()) == 8


def test_runs_in_two_threads_share_the_workers(store: str) -> None:
    results: dict[int, Any] = {}

    def one(k: int) -> None:
        results[k] = diamond(k).run(store=store, progress=False).result()

    threads = [threading.Thread(target=one, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert results == {0: 0, 1: 8, 2: 16, 3: 24}


def test_no_thread_and_no_process_is_left_behind(store: str) -> None:
    import psutil

    here = psutil.Process()
    threads, processes = set(threading.enumerate()), set(here.children(recursive=True))
    diamond(1).run(store=store, progress=False).result()

    until(lambda: not [t for t in set(threading.enumerate()) - threads if t.name.startswith("dagkit")])
    until(lambda: set(here.children(recursive=True)) <= processes)


def test_an_id_that_is_taken_says_how_to_go_on(store: str) -> None:
    diamond(1).run(store=store, progress=False, id="mine")

    with pytest.raises(WorkflowExists, match="resume=True"):
        diamond(1).run(store=store, progress=False, id="mine")


def test_the_same_id_while_it_runs_is_the_same_run(store: str) -> None:
    node = linger(0.5)
    first = node.run(store=store, progress=False, id="mine", wait=False)
    second = node.run(store=store, progress=False, id="mine")

    assert second.id == first.id
    assert second.result() == 0.5


def test_resume_keeps_what_is_unchanged_and_runs_the_rest(store: str, tmp_path: Path) -> None:
    log, flag = tmp_path / "log", tmp_path / "flag"

    @task
    def count(k: int, log: str) -> int:
        with open(log, "a") as file:
            file.write(f"{k}\n")
        return k

    @task
    def total(numbers: list[int], flag: str) -> int:
        if not Path(flag).exists():
            raise RuntimeError("not yet")
        return sum(numbers)

    @workflow
    def sums(last: int) -> Any:
        return total([count.options(name=f"count-{k}")(k if k < 2 else last, str(log)) for k in range(3)], str(flag))

    assert sums(2).run(store=store, progress=False, id="s").status is RunStatus.FAILED
    flag.touch()
    run = sums(2).run(store=store, progress=False, id="s", resume=True)
    assert run.result() == 3
    assert sorted(log.read_text().split()) == ["0", "1", "2"]

    run = sums(10).run(store=store, progress=False, id="s", resume=True)
    assert run.result() == 11
    assert sorted(log.read_text().split()) == ["0", "1", "10", "2"]


def test_cached_results_are_reused_in_another_run_and_only_when_asked(store: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def work(k: int, log: str) -> int:
        with open(log, "a") as file:
            file.write(f"{k}\n")
        return k

    cached, plain = task(cache=True)(work), task(work)

    for _ in range(2):
        assert cached(1, str(log)).run(store=store, progress=False).result() == 1
        assert plain(2, str(log)).run(store=store, progress=False).result() == 2

    assert sorted(log.read_text().split()) == ["1", "2", "2"]


def test_attach_in_another_process_reads_the_result(store: str) -> None:
    run = diamond(3).run(store=store, progress=False)
    script = f"import dagkit; print(dagkit.attach({run.id!r}, store={store!r}).result())"

    assert python(script).stdout.strip() == "24"


def test_attach_to_an_unknown_run_is_one_clear_error(store: str) -> None:
    diamond(1).run(store=store, progress=False)

    with pytest.raises(UnknownRun, match="nothing-like-it"):
        dagkit.attach("nothing-like-it", store=store)


def test_runs_lists_what_the_store_has(store: str) -> None:
    run = diamond(1).run(store=store, progress=False)

    table = dagkit.runs(store=store)

    assert [(row["run"], row["status"]) for row in table] == [(run.id, "completed")]


def test_table_and_usage_describe_every_task(store: str) -> None:
    run = diamond(1).run(store=store, progress=False)

    assert list(run.table()["state"]) == ["completed"] * 4
    usage = {row["template"]: row for row in run.usage()}
    assert usage["add"]["tasks"] == 1
    assert usage["add"]["time_s_max"] >= 0


def test_fail_fast_stops_the_rest(store: str) -> None:
    @workflow
    def risky() -> None:
        explode.options(retries=0)("first")
        for _ in range(30):
            linger(0.05)

    run = risky().run(store=store, progress=False, fail_fast=True)

    assert run.status is RunStatus.FAILED
    assert run.counts.cancelled > 0


def test_max_parallelism_holds(store: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @task
    def crowd(k: int, folder: str) -> int:
        here = Path(folder) / str(k)
        here.parent.mkdir(exist_ok=True)
        here.touch()
        most = len(list(Path(folder).iterdir()))
        time.sleep(0.02)
        here.unlink()
        return most

    @workflow
    def burst() -> Any:
        return crowd.partial(folder=str(seen)).map(range(20))

    assert max(burst().run(store=store, progress=False, max_parallelism=1).result()) == 1


def test_a_memory_store_works_too() -> None:
    from dagkit.testing import MemoryStore

    store = MemoryStore()
    flow = diamond(5)

    assert start(flow.spec, flow.payloads, store=store, progress=False).result() == 40
    store.close()


def python(
    script: str, *arguments: str, cwd: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        check=True,
    )


def test_a_script_without_a_main_guard_runs(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        textwrap.dedent(
            """
            from dagkit import task
            @task
            def f(x): return x + 1
            print(f(f(1)).run(progress=False).result())
            """
        )
    )

    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True
    )

    assert done.stdout.strip() == "3"
    assert done.stderr == ""


def test_an_interactive_session_runs(tmp_path: Path) -> None:
    lines = [
        "from dagkit import task",
        "@task\ndef f(x): return x + 1\n",
        "print(f(f(1)).run(progress=False).result())",
        "class Box:\n    def __init__(self, v): self.v = v\n",
        "@task\ndef box(v): return Box(v)\n",
        "print(isinstance(box(3).run(progress=False).result(), Box))",
    ]
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=True,
    )

    assert done.stdout.split() == ["3", "True"]


def test_a_script_that_never_closes_anything_exits_quickly(tmp_path: Path) -> None:
    script = """
    from dagkit import task
    import time
    @task
    def f(): time.sleep(60)
    run = f().run(progress=False, wait=False)
    while run.task("f").state.value != "running": time.sleep(0.01)
    """
    started = time.monotonic()

    python(script, cwd=tmp_path, timeout=30)

    assert time.monotonic() - started < 15


def until(condition: Any, deadline_s: float = 20.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@task
def calls_a_task(x: int) -> Any:
    return double(x)


@task
def calls_a_function(x: int) -> int:
    return double.fn(x) + 1


@task
def runs_a_workflow(x: int) -> int:
    value: int = diamond(x).run(progress=False).result()
    return value + 1


def test_a_task_called_inside_a_task_says_what_was_meant(store: str) -> None:
    with pytest.raises(TaskFailed, match=r"called inside another task.*double\.fn\(\.\.\.\)"):
        calls_a_task(1).run(store=store, progress=False).result()

    assert calls_a_function(1).run(store=store, progress=False).result() == 3


def test_a_task_may_run_a_workflow_of_its_own(store: str) -> None:
    assert runs_a_workflow(1).run(store=store, progress=False).result() == 9
