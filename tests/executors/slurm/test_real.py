"""Workflows on a real one-node Slurm with accounting, from submission to result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dagkit
from dagkit import shell, task, workflow
from dagkit.errors import TaskFailed
from dagkit.model.trace_ids import traceparent
from dagkit.run import Run
from executors.slurm import real_steps
from services.processes import wait_until
from services.slurm import Slurm

pytestmark = pytest.mark.xdist_group("slurm")

TARGET = """
[targets.hpc]
default = "slurm"
look_s = 0.3
most_look_s = 1
grace_s = 5
short_grace_s = 1
collect_s = 0.1
files_s = 0.2

[targets.hpc.queues]
here = "local"
minute = { executor = "slurm", partition = "minute", notice_s = 56, max_runtime = "1m" }
short = { executor = "slurm", partition = "minute", notice_s = 1, max_runtime = "1m" }
long = { executor = "slurm", partition = "debug" }
timeout = { executor = "slurm", partition = "minute", notice_s = 1 }
scavenge = { executor = "slurm", partition = "scavenge" }
wide = { executor = "slurm", partition = "both", srun = true }
four = { executor = "slurm", qos = "four" }
narrow = { executor = "slurm", parallelism = 2 }
far = { executor = "slurm", partition = "both", requeue = false, sbatch = { nodelist = "n2" } }
nosuch = { executor = "slurm", partition = "nosuch" }

[targets.hpc.queues.boxed]
executor = "slurm"
setup = ["export FLAVOUR='sweet sour'"]
container = "env BOXED=yes"
sbatch = { comment = "a b" }
"""


LONG = """
import json, sys
from dagkit import shell, task, workflow
from executors.slurm import real_steps

@workflow
def flow():
    fails = shell("echo begun; sleep 300", name="fails").options(queue="timeout", memory="60M")
    moves = shell("[ $SLURM_JOB_PARTITION = debug ] || sleep 300", name="moves")
    scaled = moves.options(queue="short", fallback_queues=["long"], runtime="1m", memory="60M", retries=1)
    saves = task(queue="minute", runtime="1m", memory="60M", retries=1)(real_steps.save_when_told)
    return [fails(), scaled(), saves(sys.argv[1])]

run = flow().run(target="hpc", progress=False)
tasks = {row.name: str(row.state) for row in run.tasks()}
(error,) = run.errors()
print(json.dumps({"kind": error.kind, "error": error.error, "moves": tasks["moves"], "log": run.logs("fails"),
                  "saved": run.outputs()["save_when_told"]}))
"""


@pytest.fixture(scope="module", autouse=True)
def long_task(slurm_cluster: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process with tasks that reach the limit of the partition of one minute while the other tests run: one fails,
    one is moved to another queue, one is told before and saves."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "dagkit.toml").write_text(TARGET)
    environment = {**os.environ, **slurm_cluster.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", LONG, str(folder)]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        yield driver
        driver.kill()


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the target `hpc`, in which this process works."""
    (tmp_path / "dagkit.toml").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    dagkit.embedded.close_all()


def of(name: str, **options: Any) -> Any:
    return task(**options)(getattr(real_steps, name)) if options else task(getattr(real_steps, name))


def ran(call: Callable[[], Any], **options: Any) -> Run:
    """The run of a workflow that `call` traces, at its end."""

    @workflow
    def flow() -> Any:
        return call()

    return flow().run(target="hpc", progress=False, **{"timeout": 100, **options})


def executions(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


# --- results


def test_a_diamond_of_python_tasks(project: Path) -> None:
    @task
    def start(x: int) -> int:
        print("starting with", x)
        return x

    @task
    def left(x: int) -> int:
        return x + 1

    @task
    def right(x: int) -> list[bytes]:
        return [b"%d" % x] * 3  # no JSON

    @task
    def join(a: int, b: list[bytes]) -> str:
        return f"{a} {b}"

    def diamond() -> Any:
        first = start(4)
        return join(left(first), right(first))

    run = ran(diamond)

    assert run.result() == "5 [b'4', b'4', b'4']"
    assert "starting with 4" in run.logs("start")
    assert not list(project.glob(".dagkit/slurm/*/spool/*/*"))


def test_an_array_of_200(project: Path, slurm: Slurm) -> None:
    @task
    def square(number: int) -> int:
        return number * number

    @workflow
    def many() -> Any:
        return square.map(range(200))

    run = many().run(target="hpc", progress=False, timeout=140)

    assert run.result() == [number * number for number in range(200)]
    names = set(slurm.ask("sacct", "-nXP", "-o", "JobName", "--starttime=now-200seconds").split())
    assert len([name for name in names if name.startswith("square.")]) == 1


def test_a_queue_is_local_while_another_is_slurm(project: Path) -> None:
    @task(queue="here")
    def here() -> str:
        return os.environ.get("SLURM_JOB_PARTITION", "no job")

    @task
    def there(before: str) -> list[str]:
        return [before, os.environ.get("SLURM_JOB_PARTITION", "no job")]

    assert ran(lambda: there(here())).result() == ["no job", "debug"]


def test_shell_tasks_and_the_surroundings_that_settings_make(project: Path) -> None:
    @task(queue="boxed", cores=2, gpus=1, memory="300M", runtime="2m")
    def look() -> Any:
        return real_steps.surroundings()

    told = shell('echo "said $FLAVOUR"; echo "\\"$BOXED\\"" > $JOBQ_OUTPUT_FILE', name="told").options(queue="boxed")

    run = ran(lambda: [look(), told()])

    (found, boxed) = run.result()
    assert boxed == "yes"
    assert found["FLAVOUR"] == "sweet sour"
    assert (found["BOXED"], found["SLURM_CPUS_PER_TASK"], found["SLURM_JOB_PARTITION"]) == ("yes", "2", "debug")
    assert found["SLURM_JOB_GPUS"] in ("0", "1")
    assert "said sweet sour" in run.logs("told")


def test_a_task_on_two_nodes_runs_as_ranks_and_the_first_reports(project: Path) -> None:
    wide = {"queue": "wide", "nodes": 2, "resources": {"ntasks": 4}}

    run = ran(lambda: of("rank", **wide)())

    assert run.result() == "0 of 4"


def test_a_rank_that_fails_ends_the_task(project: Path) -> None:
    wide = {"queue": "wide", "nodes": 2, "resources": {"ntasks": 2}}

    run = ran(lambda: of("fail_as_rank", **wide)(1))

    with pytest.raises(TaskFailed, match="rank 1 has no data"):
        run.result()


# --- failures


def test_a_task_over_its_memory_fails_for_memory(project: Path, slurm: Slurm) -> None:
    run = ran(lambda: of("hold", memory="120M")(600))

    with pytest.raises(TaskFailed) as caught:
        run.result()

    assert caught.value.kind == "memory"


def test_a_task_over_its_memory_gets_more_until_it_fits(project: Path, slurm: Slurm) -> None:
    run = ran(lambda: of("hold", memory="120M", retries=2)(200))

    assert run.result() == 200
    (entry,) = run.store.task_entries(run.id).values()
    assert entry["attempt_no"] == 3


def test_a_command_of_which_a_part_is_killed_for_memory_fails_for_memory(project: Path) -> None:
    greedy = f"{sys.executable} -c 'bytearray(600 << 20)'; code=$?; echo it ended; exit $code"

    with pytest.raises(TaskFailed) as caught:
        ran(lambda: shell(greedy, name="greedy").options(memory="120M")()).result()

    assert caught.value.kind == "memory"


def test_a_job_that_slurm_refuses_is_one_clear_error(project: Path) -> None:
    @task(queue="nosuch", retries=3)
    def never() -> None: ...

    with pytest.raises(TaskFailed) as caught:
        ran(lambda: never()).result()

    assert (caught.value.kind, caught.value.attempts) == ("config", 1)
    assert "invalid partition specified: nosuch" in caught.value.error
    assert "dagkit.toml" in caught.value.error


def test_a_job_that_dies_without_a_word_is_judged_by_accounting(project: Path) -> None:
    with pytest.raises(TaskFailed) as caught:
        ran(lambda: of("kill_job")()).result()

    assert "FAILED, exit 0:9" in caught.value.error


def test_the_same_without_accounting(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = tmp_path / "bin" / "sacct"
    off.parent.mkdir()
    off.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    off.chmod(0o755)
    monkeypatch.setenv("PATH", f"{off.parent}:{os.environ['PATH']}")

    with pytest.raises(TaskFailed) as caught:
        ran(lambda: of("kill_job")()).result()

    assert "(FAILED)" in caught.value.error


# --- notices


def test_a_preempted_job_is_requeued_as_the_same_attempt(project: Path, slurm: Slurm) -> None:
    @workflow
    def flow() -> Any:
        return of("resume_after_preemption", queue="scavenge", cores=10)(str(project))

    run = flow().run(target="hpc", progress=False, wait=False)
    wait_until((project / "begun").exists, "the job runs")

    slurm.ask("sbatch", "--cpus-per-task=15", "--mem=10", "--output=/dev/null", "--wrap=sleep 1")
    run.wait(60, progress=False)

    assert run.result() == "resumed"
    assert executions(project, "executions") == 2
    (entry,) = run.store.task_entries(run.id).values()
    assert entry["attempt_no"] == 1


def test_a_job_that_is_signalled_and_requeued_by_hand_saves_and_goes_on(project: Path, slurm: Slurm) -> None:
    @workflow
    def flow() -> Any:
        return of("save_and_stay", memory="100M")(str(project))

    run = flow().run(target="hpc", progress=False, wait=False)
    wait_until((project / "begun").exists, "the job runs")
    (job,) = slurm.queued_jobs("save_and_stay")
    number = job.split()[0]

    slurm.ask("scancel", "--signal=USR1", "--batch", number)
    wait_until((project / "saved").exists, "the task was told")
    slurm.ask("scontrol", "requeue", number)
    wait_until(lambda: "PENDING" in slurm.ask("squeue", "-h", "-o", "%T", "-j", number), "it waits to begin again")
    # Slurm lets it wait for two minutes; begun at once, it is refused by a node that still clears up after it.
    slurm.ask("scontrol", "update", f"jobid={number}", "starttime=now+5")
    run.wait(90, progress=False)

    known = slurm.ask("sacct", "-D", "-X", "-n", "-o", "jobid,state,exitcode,start,end", "-j", number)
    assert str(run.status) == "completed", f"after {executions(project, 'executions')} executions\n{known}"
    assert executions(project, "executions") == 2
    assert run.task("save_and_stay").attempt == 1


def test_a_node_that_is_lost_costs_no_retry(project: Path, slurm: Slurm) -> None:
    @workflow
    def flow() -> Any:
        return of("stay_the_first_time", queue="far")(str(project))

    run = flow().run(target="hpc", progress=False, wait=False)
    wait_until((project / "begun").exists, "the job runs")

    slurm.ask("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    run.wait(60, progress=False)

    assert run.result() == "again"
    (entry,) = run.store.task_entries(run.id).values()
    assert (entry["attempt_no"], entry["uncharged"]) == (2, 1)


TRACED = """
import os
from dagkit import task, workflow

@task(memory="100M")
def inner():
    return os.environ["TRACEPARENT"]

@workflow
def flow():
    return inner()

print("RESULT", flow().run(target="hpc", id="traced", progress=False).result())
"""


def test_spans_of_tasks_on_slurm_are_below_those_of_their_attempts(project: Path, slurm: Slurm) -> None:
    (project / "dagkit.toml").write_text(f'tracing = true\n{TARGET}\n[targets.hpc.sbatch]\nexport = "NIL"\n')
    environment = {**os.environ, **slurm.environment, "OTEL_TRACES_EXPORTER": "console"}

    done = subprocess.run(
        [sys.executable, "-c", TRACED], cwd=project, env=environment, capture_output=True, text=True, timeout=60
    )

    told = traceparent("traced", "inner", 0, 1)
    assert f"RESULT {told}" in done.stdout, done.stderr
    assert f'"span_id": "0x{told[36:52]}"' in done.stdout


# --- stopping, limits, restarts


def test_cancelling_a_run_leaves_nothing_in_slurm(project: Path, slurm: Slurm) -> None:
    @workflow
    def flow() -> Any:
        stay = of("note_and_stay", queue="narrow")
        return [stay(str(project), f"a{number}") for number in range(6)]

    run = flow().run(target="hpc", progress=False, wait=False)
    wait_until(lambda: executions(project, "a0") and executions(project, "a1"), "two of six run")

    run.cancel()
    run.wait(60, progress=False)

    assert str(run.status) == "cancelled"
    wait_until(lambda: not slurm.queued_jobs("note_and_stay"), "nothing of it is queued")


def test_a_submit_limit_of_four_with_40_tasks(project: Path) -> None:
    @task(queue="four")
    def small(number: int) -> int:
        return number

    run = ran(lambda: small.map(range(40)), timeout=140)

    assert run.result() == list(range(40))


DRIVER = """
import sys
from dagkit import task, workflow
from executors.slurm import real_steps

@workflow
def flow(folder):
    stay = task(queue="narrow")(real_steps.note_and_stay)
    return [stay(folder, f"a{number}") for number in range(4)]

flow(sys.argv[1]).run(target="hpc", id="killed", progress=False)
"""


def test_a_run_outlives_the_coordinator_that_was_killed(project: Path, slurm: Slurm) -> None:
    tests = str(Path(__file__).parents[2])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(project)],
        env={**os.environ, "PYTHONPATH": tests},
        start_new_session=True,
    )
    try:
        wait_until(lambda: executions(project, "a0") and executions(project, "a1"), "two jobs run and two wait")
        wait_until(lambda: len(slurm.queued_jobs("note_and_stay")) == 4, "Slurm has four")
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(10)
    (project / "go").touch()

    run = dagkit.attach("killed")
    run.wait(60, progress=False)

    assert run.result() == ["seen"] * 4
    assert [executions(project, f"a{number}") for number in range(4)] == [1, 1, 1, 1]


def test_tasks_at_the_time_limit_of_their_partition(project: Path, long_task: subprocess.Popen[str]) -> None:
    said, _ = long_task.communicate(timeout=150)

    found = json.loads(said)
    assert (found["kind"], found["moves"]) == ("timeout", "completed")
    assert "reached its time limit (TIMEOUT" in found["error"]
    assert found["log"].startswith("begun\n")
    assert "DUE TO TIME LIMIT" in found["log"]
    assert found["saved"] == "time limit"
