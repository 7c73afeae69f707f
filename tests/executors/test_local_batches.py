"""How tasks are spread over workers: short ones in batches, long ones never behind one another."""

from __future__ import annotations

import random
from pathlib import Path

from dagkit.executors.local import LocalExecutor
from dagkit.executors.pacing import BATCH_S, MAX_BATCH, Pace
from dagkit.model.messages import Completion, Started
from executors.driving import call, collect, message, run_all


def warm_up(executor: LocalExecutor, count: int = 300) -> None:
    """Teach the executor that tasks of the template `t` are short."""
    run_all(executor, [message(f"warm-{i}", call("echo", i), template="t") for i in range(count)])


def test_short_tasks_are_handed_out_in_batches(executor: LocalExecutor) -> None:
    assert executor.capacity() == 2

    warm_up(executor)

    assert executor.capacity() > 10


def test_every_task_of_many_is_reported_once(executor: LocalExecutor) -> None:
    done = run_all(executor, [message(f"t{i}", call("echo", i)) for i in range(3000)])

    assert {done[f"t{i}"].output_ref == str(i) for i in range(3000)} == {True}


def test_tasks_of_unknown_length_run_at_the_same_time(executor: LocalExecutor, tmp_path: Path) -> None:
    warm_up(executor)
    pair = [message(a, call("meet", str(tmp_path), a, b), template="new") for a, b in (("a", "b"), ("b", "a"))]

    done = run_all(executor, pair)

    assert all(completion.success for completion in done.values())


def test_long_tasks_that_looked_short_run_at_the_same_time(executor: LocalExecutor, tmp_path: Path) -> None:
    """Each waits for the next: in one worker, one behind the other, none would ever end."""
    warm_up(executor)
    pair = [message(a, call("meet", str(tmp_path), a, b), template="t") for a, b in (("a", "b"), ("b", "a"))]

    done = run_all(executor, pair)

    assert all(completion.success for completion in done.values())


def test_tasks_behind_one_that_turns_out_long_are_taken_back(executor: LocalExecutor, tmp_path: Path) -> None:
    warm_up(executor)
    behind = [message(f"t{i}", call("mark", str(tmp_path), f"t{i}"), template="t") for i in range(40)]
    go = str(tmp_path / "go")
    tasks = [message("long-1", call("wait_for", go, 20), template="t"), *behind]
    taken = executor.submit(tasks)

    ended, _ = collect(executor, lambda ended, _: len(ended) == taken - 1)
    Path(go).touch()
    last, _ = collect(executor, lambda ended, _: bool(ended))

    assert [completion.task for completion in last] == ["long-1"]
    assert all((tmp_path / completion.task).read_text() == "ran\n" for completion in ended)


def test_start_is_reported_for_long_tasks_and_for_those_with_a_limit(executor: LocalExecutor, tmp_path: Path) -> None:
    warm_up(executor)
    _, begun = collect_all(executor, [message(f"t{i}", call("echo", i), template="t") for i in range(100)])
    assert len(begun) < 10

    _, begun = collect_all(executor, [message("long", call("mark_and_pause", str(tmp_path), "x", 0.2))])
    assert [report.task for report in begun] == ["long"]

    ended, begun = collect_all(
        executor, [message("limited", call("mark_and_pause", str(tmp_path), "x", 0.02), timeout_s=9)]
    )
    assert [report.task for report in begun] == ["limited"]
    started_at = (ended[0].usage or {})["started_at"]
    assert abs(begun[0].at - started_at) < 0.5


def collect_all(executor: LocalExecutor, tasks: list) -> tuple[list[Completion], list[Started]]:  # type: ignore[type-arg]
    taken = executor.submit(tasks)
    return collect(executor, lambda ended, _: len(ended) == taken)


def test_a_mixture_of_everything_ends_once_each(executor: LocalExecutor, tmp_path: Path) -> None:
    chance = random.Random(7)
    kinds = {
        "echo": call("echo", 1),
        "pause": call("mark_and_pause", str(tmp_path), "p", 0.03),
        "fail": call("fail"),
        "exit": call("end_process", str(tmp_path), "exit"),
        "shell": {"cmd": "true"},
        "shell-fails": {"cmd": "exit 3"},
        "print": {"cmd": "echo x"},
    }
    names = chance.choices(list(kinds), weights=[60, 5, 10, 2, 10, 5, 8], k=400)

    done = run_all(executor, [message(f"{name}-{i}", kinds[name], template="t") for i, name in enumerate(names)])

    wrong = [task for task, c in done.items() if c.success == task.startswith(("fail", "exit", "shell-fails"))]
    assert wrong == []


# --- the pace


def test_a_batch_grows_with_experience_and_is_bounded() -> None:
    pace = Pace()
    sizes = [pace.batch]

    for _ in range(10):
        pace.learn(pace.batch, pace.batch * 1e-6)
        sizes.append(pace.batch)

    assert sizes[:3] == [1, 2, 6]
    assert sizes == sorted(sizes)
    assert sizes[-1] == MAX_BATCH


def test_a_batch_is_a_few_milliseconds_of_work() -> None:
    pace = Pace()
    pace.learn(100, 100 * 0.001)

    assert BATCH_S / 2 <= pace.batch * 0.001 <= BATCH_S


def test_one_long_task_ends_the_batches_and_many_short_ones_bring_them_back() -> None:
    pace = Pace()
    pace.learn(1000, 0.001)

    pace.learn(1, 2.0)
    assert pace.batch == 1

    for _ in range(400):
        pace.learn(1, 1e-5)
    assert pace.batch > 50
