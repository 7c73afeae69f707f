"""What tasks return, how they fail, and what they find around them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.local import LocalExecutor
from dagkit.model.states import FailureKind
from dagkit.runtime.values import load_output
from dagkit.stores import open_store
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore
from executors.driving import call, collect, message, open_files, run_all, run_one, wait_until


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("shared") / "store")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def executor(store: Store) -> Iterator[LocalExecutor]:
    """One for all tests here: workers are meant to be used again and again."""
    with LocalExecutor(store, slots=2) as local:
        yield local


@pytest.fixture(scope="module")
def in_memory() -> Iterator[LocalExecutor]:
    """An executor whose store its workers cannot open."""
    with LocalExecutor(MemoryStore(), slots=2) as local:
        yield local


def value_of(executor: LocalExecutor, ref: str | None) -> Any:
    return load_output(ref, executor.store.get_output)


# --- results


@pytest.mark.parametrize(("value", "ref"), [(7, "7"), ("text", '"text"'), (None, None), ([1, {"a": None}], None)])
def test_a_call_reports_what_the_function_returned(executor: LocalExecutor, value: Any, ref: str | None) -> None:
    completion = run_one(executor, call("echo", value), attempt=2, generation=1)

    assert completion.success
    assert value_of(executor, completion.output_ref) == value
    assert ref is None or completion.output_ref == ref
    assert (completion.attempt, completion.generation, completion.kind, completion.error) == (2, 1, None, None)


def test_arguments_take_the_place_of_refs(executor: LocalExecutor) -> None:
    kwargs = call("add", {"$ref": "a"}, b={"$ref": "b", "path": ["x", 0]})

    completion = run_one(executor, kwargs, upstream={"a": "40", "b": '{"x": [2]}'})

    assert completion.output_ref == "42"


def test_a_ref_to_what_is_no_parent_fails_that_task(executor: LocalExecutor) -> None:
    completion = run_one(executor, call("echo", {"$ref": "stranger"}), upstream={"a": "1"})

    assert (completion.success, completion.kind) == (False, FailureKind.CONFIG)
    assert "stranger" in (completion.error or "")


def test_a_large_result_is_stored_and_read_where_it_is_used(executor: LocalExecutor) -> None:
    large = "x" * 40_000

    first = run_all(executor, [message("dir/big", call("echo", large))])["dir/big"]
    second = run_one(executor, call("echo", {"$ref": "dir/big"}), upstream={"dir/big": first.output_ref})

    assert first.output_ref == "blob:wf1/dir/big.json"
    assert value_of(executor, second.output_ref) == large


def test_a_result_that_json_would_change_is_stored_as_it_is(executor: LocalExecutor) -> None:
    completion = run_one(executor, call("echo", {"$tuple": [1, 2]}))

    assert (completion.output_ref or "").endswith("task.pkl")
    assert value_of(executor, completion.output_ref) == (1, 2)


def test_large_results_travel_through_a_store_in_memory(in_memory: LocalExecutor) -> None:
    first = run_all(in_memory, [message("big", call("echo", "x" * 3_000_000))])["big"]
    second = run_one(in_memory, call("add", {"$ref": "big"}, "y"), upstream={"big": first.output_ref})

    assert first.output_ref == "blob:wf1/big.json"
    assert value_of(in_memory, second.output_ref) == "x" * 3_000_000 + "y"


def test_a_missing_upstream_output_fails_the_task_that_needs_it(in_memory: LocalExecutor) -> None:
    completion = run_one(in_memory, call("echo", {"$ref": "a"}), upstream={"a": "blob:wf1/a.json"})

    assert not completion.success
    assert "blob:wf1/a.json" in (completion.error or "")


def test_a_task_that_changes_its_argument_changes_nothing_for_the_next(one_slot: LocalExecutor) -> None:
    ref = one_slot.store.put_output("wf1", "items.json", json.dumps(["x" * 40_000]).encode())
    tasks = [message(f"t{i}", call("change", {"$ref": "items"}), upstream={"items": ref}) for i in range(3)]

    done = run_all(one_slot, tasks)

    assert {completion.output_ref for completion in done.values()} == {"2"}


def test_coroutines_run(executor: LocalExecutor) -> None:
    assert run_one(executor, call("add_later", 1, 2)).output_ref == "3"


def test_files_in_a_result_are_stored_with_it(executor: LocalExecutor, tmp_path: Path) -> None:
    made = run_all(executor, [message("made", call("make_file", str(tmp_path / "model.pt"), "weights"))])["made"]
    (tmp_path / "model.pt").unlink()

    read = run_one(executor, call("read_file", {"$ref": "made"}), upstream={"made": made.output_ref})

    assert read.output_ref == '"weights"'


def test_set_output_counts_when_nothing_is_returned(one_slot: LocalExecutor) -> None:
    done = run_all(
        one_slot,
        [
            message("set", call("put_output", {"a": 1})),
            message("returned", call("put_output", {"a": 1}, "returned")),
            message("next", call("echo")),
        ],
    )

    assert [done[name].output_ref for name in ("set", "returned", "next")] == ['{"a": 1}', '"returned"', None]


# --- failures


@pytest.mark.parametrize(
    ("which", "first_line", "kind"),
    [
        ("value", "ValueError: no such file: x.csv", FailureKind.USER),
        ("exit", "SystemExit: 0", FailureKind.USER),
        ("interrupt", "KeyboardInterrupt", FailureKind.USER),
        ("memory", "MemoryError: cannot allocate", FailureKind.MEMORY),
        ("base", "Quiet: from below Exception", FailureKind.USER),
        ("odd", "Odd: <its message cannot be shown: RuntimeError>", FailureKind.USER),
        ("lines", "ValueError: first", FailureKind.USER),
    ],
)
def test_an_exception_is_the_failure_of_its_task(
    executor: LocalExecutor, which: str, first_line: str, kind: FailureKind
) -> None:
    done = run_all(executor, [message("bad", call("fail", which)), message("good", call("echo", 1))])

    bad = done["bad"]
    assert (bad.success, bad.kind, (bad.error or "").splitlines()[0]) == (False, kind, first_line)
    assert done["good"].success


def test_the_traceback_begins_in_the_tasks_own_code(executor: LocalExecutor) -> None:
    for function in ("fail", "fail_later"):
        error = run_one(executor, call(function)).error or ""

        assert "local_steps.py" in error
        assert "src/dagkit" not in error
        assert "asyncio" not in error


def test_a_huge_message_is_cut(executor: LocalExecutor) -> None:
    error = run_one(executor, call("fail", "long")).error or ""

    assert len(error) < 50_000
    assert "1,000,000 characters" in error or "ValueError" in error.splitlines()[0]


def test_a_result_that_cannot_travel_names_its_type(executor: LocalExecutor) -> None:
    completion = run_one(executor, call("unpicklable"))

    assert not completion.success
    assert "lock" in (completion.error or "")


def test_a_function_that_does_not_exist_is_named(executor: LocalExecutor) -> None:
    completion = run_one(executor, {"call": {"function": "no_such_module:f"}})

    assert not completion.success
    assert "no_such_module" in (completion.error or "")


@pytest.mark.parametrize("kwargs", [{}, {"cmd": None}, {"cmd": ""}, {"cmd": "true", "env": {"A": 1}}, {"call": {}}])
def test_a_message_that_cannot_be_run_is_a_config_failure(executor: LocalExecutor, kwargs: dict[str, Any]) -> None:
    completion = run_one(executor, kwargs)

    assert (completion.success, completion.kind) == (False, FailureKind.CONFIG)


# --- surroundings


def test_nothing_of_one_tasks_surroundings_reaches_the_next(one_slot: LocalExecutor, tmp_path: Path) -> None:
    done = run_all(
        one_slot,
        [
            message("first", call("surroundings")),
            message("spoiler", call("spoil_surroundings", str(tmp_path))),
            message("last", call("surroundings")),
        ],
    )

    first, last = (json.loads(done[name].output_ref or "") for name in ("first", "last"))
    assert {**last, "JOBQ_WORKFLOW_TASK": "first", "JOBQ_TASK_ID": "wf1/first/1"} == first
    assert (first["LEAKED"], first["cwd"], first["JOBQ_WORKFLOW_ID"]) == (None, str(Path.cwd()), "wf1")


def test_a_command_finds_its_environment(executor: LocalExecutor) -> None:
    kwargs = {"cmd": 'echo "[\\"$MINE\\", \\"$JOBQ_TASK_ID\\", $JOBQ_WORKFLOW_ATTEMPT]" > $JOBQ_OUTPUT_FILE'}

    completion = run_one(executor, {**kwargs, "env": {"MINE": "yes"}}, attempt=3, generation=2)

    assert json.loads(completion.output_ref or "") == ["yes", "wf1/task/2.3", 3]


def test_a_command_runs_where_it_says(executor: LocalExecutor, tmp_path: Path) -> None:
    run_one(executor, {"cmd": "touch here", "cwd": str(tmp_path)})
    missing = run_one(executor, {"cmd": "true", "cwd": str(tmp_path / "nowhere")})

    assert (tmp_path / "here").exists()
    assert "nowhere" in (missing.error or "")


def test_parents_are_read_by_name(executor: LocalExecutor) -> None:
    upstream = {"up": '{"value": 42}', "none": None}

    assert json.loads(run_one(executor, call("parents"), upstream=upstream).output_ref or "") == {
        "up": {"value": 42},
        "none": None,
    }
    assert run_one(executor, call("parents_in_a_loop", "up"), upstream=upstream).output_ref == '{"value":42}'
    script = run_one(executor, call("parents_in_a_script"), upstream=upstream).output_ref or ""
    assert json.loads(json.loads(script)) == {"up": {"value": 42}, "none": None}


def test_every_task_sees_its_own_parents(one_slot: LocalExecutor) -> None:
    """The file is rewritten in place: shorter after longer, and the reverse, must not leave anything of the other."""
    upstreams: list[dict[str, str | None]] = [
        {"a": "1"},
        {"a": '"' + "x" * 500 + '"'},
        {},
        {f"p{i}": '"' + "y" * 5000 + '"' for i in range(30)},
        {"b": "2", "c": "3"},
    ]

    done = run_all(one_slot, [message(f"t{i}", call("parents"), upstream=up) for i, up in enumerate(upstreams)])

    for i, upstream in enumerate(upstreams):
        expected = {name: json.loads(ref or "null") for name, ref in upstream.items()}
        assert value_of(one_slot, done[f"t{i}"].output_ref) == (expected or {})


def test_a_task_learns_that_its_run_is_cancelled(store: Store, executor: LocalExecutor) -> None:
    document = {"v": 1, "workflow_id": "wf1", "name": "n", "tasks": {}}
    store.create("wf1", document, {"v": 1, "workflow_id": "wf1", "workflow_state": "running", "tasks": {}})
    executor.submit([message("t", call("wait_until_cancelled"))])
    collect(executor, lambda _, begun: bool(begun))

    store.request_cancel("wf1")

    ended, _ = collect(executor, lambda ended, _: bool(ended))
    assert ended[0].output_ref == '"noticed"'


def test_a_task_of_a_run_in_memory_can_ask_for_its_cancel_flag(in_memory: LocalExecutor) -> None:
    assert run_one(in_memory, call("cancelled_flag")).output_ref == "false"


def test_the_worker_has_no_main_module_of_ours(executor: LocalExecutor) -> None:
    assert run_one(executor, call("main_name")).output_ref == '"__main__"'


# --- the port


def test_what_is_in_flight_is_not_run_again(executor: LocalExecutor, tmp_path: Path) -> None:
    one = message("t", call("mark_and_pause", str(tmp_path), "t", 0.05))

    assert executor.submit([one]) == 1
    assert executor.submit([one, one]) == 2
    collect(executor, lambda ended, _: bool(ended))

    assert (tmp_path / "t").read_text() == "ran\n"


def test_it_takes_no_more_than_it_says(store: Store) -> None:
    with LocalExecutor(store, slots=3) as fresh:
        capacity = fresh.capacity()
        taken = fresh.submit([message(f"t{i}", call("echo", i)) for i in range(10)])

        assert (capacity, taken, fresh.capacity()) == (3, 3, 0)


def test_interrupt_ends_a_wait(executor: LocalExecutor) -> None:
    timer = threading.Timer(0.05, executor.interrupt)
    timer.start()

    assert executor.poll(60) == []

    timer.join()


def test_after_a_restart_everything_that_ran_is_lost(executor: LocalExecutor) -> None:
    lost = executor.recover([message("t", call("echo"), attempt=2)])

    assert [(c.task, c.success, c.kind, c.attempt) for c in lost] == [("t", False, FailureKind.LOST, 2)]


def test_it_runs_in_any_thread(executor: LocalExecutor) -> None:
    found: list[str | None] = []

    thread = threading.Thread(target=lambda: found.append(run_one(executor, call("echo", 1)).output_ref))
    thread.start()
    thread.join(30)

    assert found == ["1"]


def test_usage_of_a_longer_task_is_measured(executor: LocalExecutor) -> None:
    usage = run_one(executor, call("burn", 0.1)).usage or {}

    assert usage["wall_s"] >= 0.09
    assert usage["cpu_s"] == pytest.approx(0.1, abs=0.09)
    assert {"started_at", "host", "pid"} <= set(usage)


def test_usage_of_a_command_is_measured(one_slot: LocalExecutor) -> None:
    """In a new worker: one that has been as large itself cannot tell."""
    large = "import time; x = b'x' * 200_000_000"
    usage = run_one(one_slot, {"cmd": f'{sys.executable} -c "{large}"; exit 4'}).usage or {}

    assert usage["exit_code"] == 4
    assert usage["peak_rss_bytes"] > 200_000_000
    assert usage["cpu_s"] > 0


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_workers_that_do_not_start_are_one_clear_error(store: Store, python: str) -> None:
    with LocalExecutor(store, slots=1, python=python) as local, pytest.raises(BackendError, match=python):  # noqa: PT012
        local.submit([message("t", call("echo"))])
        for _ in range(200):
            local.poll(0.1)


def test_a_closed_executor_takes_nothing(store: Store) -> None:
    local = LocalExecutor(store)
    local.close()

    with pytest.raises(BackendError, match="closed"):
        local.submit([message("t", call("echo"))])


def test_slots_must_be_positive(store: Store) -> None:
    with pytest.raises(ConfigError, match="slots"):
        LocalExecutor(store, slots=0)


def test_close_leaves_no_descriptor_no_file_and_no_thread(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.check()
    files, threads = open_files(), threading.active_count()
    local = LocalExecutor(store, slots=2)
    run_all(local, [message(f"t{i}", call("echo", i)) for i in range(50)])
    pids = [slot.process.pid for slot in local._crew.members]
    scratch = local._crew._scratch.path

    local.close()

    assert scratch is not None
    assert not scratch.exists()
    assert open_files() == files
    assert threading.active_count() == threads
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not list((tmp_path / "store").rglob(".open-*"))


def test_commands_run_in_a_login_shell_where_that_is_wanted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOBQ_USE_LOGIN_SHELL: modules and paths that a user's profile sets up."""
    (tmp_path / ".profile").write_text("export FROM_PROFILE=yes\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with LocalExecutor(store, slots=1, login_shell=True) as executor:
        assert run_one(executor, {"cmd": 'echo "$FROM_PROFILE" > "$HOME/seen"'}).success

    assert (tmp_path / "seen").read_text() == "yes\n"
