"""Bulk jobs on this machine: keys, fingerprints, outputs, waves, resets, restarts."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dagkit.bulk import BulkJob, BulkRunner, BulkStatus, CommandProfile, ExecutionProfile, run_bulk
from dagkit.bulk.registry import Registry
from dagkit.errors import ConfigError, RunBusy, UsageError

ECHO = CommandProfile([sys.executable, "-c", "import sys, json; json.dump(sys.argv[1:], open('said.json', 'w'))"])
TOUCH = CommandProfile(["touch", "out.txt"])
FAIL = CommandProfile(["false"])


def run(folder: Path, jobs: Sequence[BulkJob], command: CommandProfile = TOUCH, **more: Any) -> dict[BulkStatus, int]:
    result = run_bulk(jobs, command, registry=folder / "r.db", step_s=0.05, timeout_s=60, **more)
    assert result.is_complete
    return dict(result.status_counts)


def jobs(folder: Path, count: int, **fields: Any) -> list[BulkJob]:
    return [BulkJob(f"job/{n}", folder / str(n), **fields) for n in range(count)]


def drive(runner: BulkRunner, ticks: int = 400) -> None:
    for _ in range(ticks):
        runner.tick(0.05)
        if all(record.status.is_over for record in runner.records()):
            return
    raise AssertionError(runner.status_counts())


def test_jobs_succeed_and_are_not_run_twice(tmp_path: Path) -> None:
    wanted = jobs(tmp_path, 5, expected_outputs=["out.txt"])

    assert run(tmp_path, wanted) == {BulkStatus.SUCCEEDED: 5}
    (tmp_path / "0" / "out.txt").unlink()
    assert run(tmp_path, wanted) == {BulkStatus.SUCCEEDED: 5}

    assert not (tmp_path / "0" / "out.txt").exists()


def test_arguments_arrive_byte_for_byte(tmp_path: Path) -> None:
    hostile = ["a b", "'; touch /tmp/oops; '", "$HOME", "`id`", "ü\n\t", "*", ""]

    assert run(tmp_path, [BulkJob("k", tmp_path / "w", command_args=hostile)], ECHO) == {BulkStatus.SUCCEEDED: 1}

    assert json.loads((tmp_path / "w" / "said.json").read_text()) == hostile


def test_a_table_of_arguments_becomes_options(tmp_path: Path) -> None:
    job = BulkJob("k", tmp_path / "w", command_args={"size": 4, "fast": True, "slow": False, "at": [1, 2]})

    run(tmp_path, [job], ECHO)

    assert json.loads((tmp_path / "w" / "said.json").read_text()) == ["--size", "4", "--fast", "--at", "1", "2"]


def test_changed_arguments_under_an_old_key_run_again(tmp_path: Path) -> None:
    run(tmp_path, [BulkJob("k", tmp_path / "w", command_args=["1"])], ECHO)

    run(tmp_path, [BulkJob("k", tmp_path / "w", command_args=["2"])], ECHO)

    assert json.loads((tmp_path / "w" / "said.json").read_text()) == ["2"]


def test_an_old_file_is_no_output_of_this_run(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "out.txt").write_text("old")

    counts = run(tmp_path, jobs(tmp_path, 1, expected_outputs=["out.txt"]), CommandProfile(["true"]))

    assert counts == {BulkStatus.FAILED: 1}


def test_a_failure_says_why_and_is_reset(tmp_path: Path) -> None:
    assert run(tmp_path, jobs(tmp_path, 2), FAIL) == {BulkStatus.FAILED: 2}

    with BulkRunner(FAIL, registry=tmp_path / "r.db") as runner:
        assert all(record.reason.startswith("user: ") for record in runner.records())
        assert runner.reset() == 2
        assert runner.status_counts() == {BulkStatus.PENDING: 2}
        runner.register(jobs(tmp_path, 2))
        drive(runner)
        assert [record.generation for record in runner.records()] == [1, 1]


def test_stages_and_waves_of_a_rolling_workflow(tmp_path: Path) -> None:
    with BulkRunner(TOUCH, registry=tmp_path / "r.db") as runner:
        runner.register([BulkJob(f"a{n}", tmp_path / "a", stage_id="a", wave_id="w1") for n in range(3)])
        assert not runner.all_submitted("a")
        assert not runner.is_wave_ready("w1")
        drive(runner)
        assert runner.all_submitted("a")
        assert runner.ready_waves() == ["w1"]

        runner.register([BulkJob("b", tmp_path / "b", stage_id="b", wave_id="w1")])
        assert not runner.is_wave_ready("w1")
        drive(runner)

        assert runner.status_counts("b") == {BulkStatus.SUCCEEDED: 1}
        assert not runner.is_wave_ready("no such wave")


def test_a_cancelled_job_is_cancelled_before_and_while_it_runs(tmp_path: Path) -> None:
    with BulkRunner(CommandProfile(["sleep", "60"]), registry=tmp_path / "r.db") as runner:
        runner.register([BulkJob("runs", tmp_path / "w"), BulkJob("waits", tmp_path / "w", priority=-1)])
        assert runner.cancel(["waits"]) == 1
        while not any(record.status is BulkStatus.RUNNING for record in runner.records()):
            runner.tick(0.05)

        runner.cancel()
        drive(runner)

        assert runner.status_counts() == {BulkStatus.CANCELLED: 2}


def test_jobs_of_a_process_that_ended_are_pending_and_run(tmp_path: Path) -> None:
    with BulkRunner(CommandProfile(["sleep", "60"]), registry=tmp_path / "r.db") as runner:
        runner.register([BulkJob("k", tmp_path / "w", expected_outputs=["out.txt"])])
        while not any(record.status is BulkStatus.RUNNING for record in runner.records()):
            runner.tick(0.05)
    for record in (registry := Registry(tmp_path / "r.db")).records.values():
        record.cmd = "touch out.txt"
        registry.save([record])
    registry.close()

    with BulkRunner(CommandProfile(["sleep", "60"]), registry=tmp_path / "r.db") as runner:
        runner.register([BulkJob("k", tmp_path / "w", expected_outputs=["out.txt"])])
        drive(runner)

        assert runner.status_counts() == {BulkStatus.SUCCEEDED: 1}


def test_two_drivers_of_one_registry_one_waits(tmp_path: Path) -> None:
    with BulkRunner(TOUCH, registry=tmp_path / "r.db") as first:
        first.register(jobs(tmp_path, 2))
        with BulkRunner(TOUCH, registry=tmp_path / "r.db") as second, pytest.raises(RunBusy, match="process"):
            second.tick()
        waiting = threading.Thread(target=run, args=(tmp_path, jobs(tmp_path, 2)))
        waiting.start()
        drive(first)
        assert waiting.is_alive()
    waiting.join(30)

    assert not waiting.is_alive()


def test_a_key_whose_job_runs_cannot_become_another_job(tmp_path: Path) -> None:
    with BulkRunner(CommandProfile(["sleep", "60"]), registry=tmp_path / "r.db") as runner:
        runner.register([BulkJob("k", tmp_path / "w")])
        runner.tick()

        with pytest.raises(UsageError, match="cancel it first"):
            runner.register([BulkJob("k", tmp_path / "w", command_args=["1"])])


def test_a_job_that_runs_out_of_time_gets_more(tmp_path: Path) -> None:
    script = "import sys, time, pathlib; p = pathlib.Path('n'); n = p.exists(); p.touch(); time.sleep(0 if n else 60)"
    execution = ExecutionProfile(resources={"runtime": "1s"})

    counts = run(
        tmp_path, [BulkJob("k", tmp_path / "w")], CommandProfile([sys.executable, "-c", script]), execution=execution
    )

    assert counts == {BulkStatus.SUCCEEDED: 1}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"job_key": " "}, "blank"),
        ({"command_args": "a b"}, "a list"),
        ({"expected_outputs": ["../x"]}, "below"),
        ({"max_submit_attempts": 0}, "from 1"),
        ({"command_args": ["\0"]}, "NUL"),
    ],
)
def test_what_cannot_be_a_job_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        BulkJob(**{"job_key": "k", "work_dir": "w", **fields})


def test_a_command_is_a_profile_or_a_list_and_nothing_else(tmp_path: Path) -> None:
    wanted = jobs(tmp_path, 1, expected_outputs=["out.txt"])

    assert run(tmp_path, wanted, ["touch", "out.txt"]) == {BulkStatus.SUCCEEDED: 1}  # type: ignore[arg-type]
    for wrong in ("touch out.txt", 7, [], [1]):
        with pytest.raises(UsageError, match="is not a list of texts"):
            run(tmp_path, wanted, wrong)  # type: ignore[arg-type]


def test_one_key_for_two_jobs_is_refused(tmp_path: Path) -> None:
    with BulkRunner(TOUCH, registry=tmp_path / "r.db") as runner, pytest.raises(UsageError, match="two different"):
        runner.register([BulkJob("k", tmp_path / "a"), BulkJob("k", tmp_path / "b")])


def test_a_registry_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="network"):
        Registry(tmp_path / "r.db", lambda path: "nfs")
