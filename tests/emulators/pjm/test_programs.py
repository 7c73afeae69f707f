"""The programs on PATH: jobs that really run, their environment and files, and ends by force."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagkit.testing.pjm import PjmSimulator, Site


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[PjmSimulator]:
    with PjmSimulator(tmp_path / "pjm", Site.quick(is_group_needed=True)).running() as machine:
        yield machine


@pytest.fixture
def typed(tmp_path: Path, sim: PjmSimulator) -> Callable[..., str]:
    def run(*words: str, code: int = 0, **environ: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **sim.environment, **environ}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done
        return done.stdout + done.stderr

    return run


def submit(typed: Callable[..., str], folder: Path, text: str, *options: str) -> str:
    (folder / "job.sh").write_text(f"#!/bin/bash\n#PJM -g group1\n{text}\n")
    return typed("pjsub", "-z", "jid", *options, "job.sh").strip()


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_runs_where_it_was_submitted_with_little_of_its_environment(
    tmp_path: Path, typed: Callable[..., str]
) -> None:
    job = submit(typed, tmp_path, "env > env.txt; pwd; echo wrong >&2; exit 3", "-x", "MINE=a b,PJM_JOBID=no")

    said = typed("pjwait", job, SECRET="x")

    assert said == f"{job} 0 3\n"
    found = dict(line.split("=", 1) for line in (tmp_path / "env.txt").read_text().splitlines() if "=" in line)
    assert found["MINE"] == "a b"
    assert found["PJM_JOBID"] == found["PJM_SUBJOBID"] == job
    assert found["PJM_ENVIRONMENT"] == "BATCH"
    assert found["PJM_O_WORKDIR"] == str(tmp_path)
    assert {"SECRET", "PJM_BULKNUM", "PYTHONPATH"} & found.keys() == set()
    assert (tmp_path / f"job.sh.{job}.out").read_text() == f"{tmp_path}\n"
    assert (tmp_path / f"job.sh.{job}.err").read_text() == "wrong\n"


def test_parts_share_a_file_that_was_named_and_have_their_own_otherwise(
    tmp_path: Path, typed: Callable[..., str]
) -> None:
    shared = submit(typed, tmp_path, "echo $PJM_BULKNUM", "--bulk", "--sparam", "0-2", "-j", "-o", "all.txt")
    own = submit(typed, tmp_path, "echo $PJM_BULKNUM", "--bulk", "--sparam", "3-4", "-j", "-N", "own")
    tokens = submit(typed, tmp_path, "true", "--bulk", "--sparam", "7-7", "-o", "%n-%j-%J-%b.txt")

    typed("pjwait", shared, own, tokens)

    assert sorted((tmp_path / "all.txt").read_text().split()) == ["0", "1", "2"]
    assert (tmp_path / f"own.{own}[4].out").read_text() == "4\n"
    assert (tmp_path / f"job.sh-{tokens}-{tokens}[7]-7.txt").exists()


def test_a_script_is_copied_when_it_is_submitted(tmp_path: Path, sim: PjmSimulator, typed: Callable[..., str]) -> None:
    sim.set(nodes=0)
    job = submit(typed, tmp_path, "echo first > which.txt")
    (tmp_path / "job.sh").write_text("echo second > which.txt\n")
    sim.set(nodes=1)

    typed("pjwait", job)

    assert (tmp_path / "which.txt").read_text() == "first\n"


def test_a_deletion_ends_everything_that_a_job_has_started(
    tmp_path: Path, sim: PjmSimulator, typed: Callable[..., str]
) -> None:
    job = submit(typed, tmp_path, "setsid sleep 60 & echo $! > pid; trap '' TERM; sleep 60")
    until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))

    typed("pjdel", job)

    assert typed("pjwait", job).startswith(f"{job} 1 -")
    until(lambda: not Path(f"/proc/{int((tmp_path / 'pid').read_text())}").exists())


def test_at_its_limit_a_job_is_warned_and_then_killed(tmp_path: Path, typed: Callable[..., str]) -> None:
    job = submit(typed, tmp_path, "trap 'echo warned > warned.txt' XCPU; sleep 60; sleep 60", "-L", "elapse=1")

    assert typed("pjwait", job) == f"{job} 11 - 24\n"

    assert (tmp_path / "warned.txt").exists()


def test_what_a_job_leaves_behind_ends_with_it(tmp_path: Path, typed: Callable[..., str]) -> None:
    job = submit(typed, tmp_path, "setsid sleep 60 & echo $! > pid")

    typed("pjwait", job)

    until(lambda: not Path(f"/proc/{int((tmp_path / 'pid').read_text())}").exists())


def test_a_signal_is_told(tmp_path: Path, typed: Callable[..., str]) -> None:
    job = submit(typed, tmp_path, "kill -SEGV $$")

    assert typed("pjwait", job) == f"{job} 0 139 11\n"


def test_pjsub_may_be_killed_after_it_was_heard_or_before(
    tmp_path: Path, sim: PjmSimulator, typed: Callable[..., str]
) -> None:
    submit(typed, tmp_path, "true")
    for kind in ("accept-kill", "submit-killed"):
        sim.fault(kind)
        typed("pjsub", "-N", kind, "job.sh", code=-9)
    for kind in ("kill-caller-before", "kill-caller-after"):
        sim.fault(kind)
        said = subprocess.run(
            ["sh", "-c", f"pjsub -N {kind} job.sh; echo still here"], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, **sim.environment}, timeout=60, check=False,
        )  # fmt: skip
        assert said.returncode == -9

    assert [job.name for job in sim.jobs()] == ["job.sh", "accept-kill", "kill-caller-after"]
    assert [one.result for one in sim.oracle().submits][1:] == [
        "accepted",
        "submit-killed",
        "kill-caller-before",
        "accepted",
    ]


def test_a_script_on_standard_input(tmp_path: Path, sim: PjmSimulator) -> None:
    done = subprocess.run(
        ["pjsub", "-g", "group1", "-N", "piped"], input="echo ok > piped.txt\n", cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, **sim.environment}, timeout=60, check=False,
    )  # fmt: skip

    assert "submitted" in done.stdout
    until(lambda: (tmp_path / "piped.txt").exists())


def test_pjm_lines_of_a_script_and_options_that_may_not_be_there(tmp_path: Path, typed: Callable[..., str]) -> None:
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n# a comment\n#PJM -g group1 -N inside\n#PJM -L elapse=1:00 # so long\ntrue\n#PJM -N ignored\n"
    )
    job = typed("pjsub", "-z", "jid", "-L", "node=2", "job.sh").strip()
    (tmp_path / "bad.sh").write_text("#PJM -g group1 --no-check-directory\ntrue\n")

    assert "JOB NAME                    : inside" in typed("pjstat", "-s", job)
    assert "ELAPSE TIME (LIMIT)         : 00:01:00 (60)" in typed("pjstat", "-s", job)
    assert "NODE NUM (REQUIRE)          : 2\n" in typed("pjstat", "-s", job)
    assert "0049" in typed("pjsub", "bad.sh", code=1)
    assert "0049" in typed("pjsub", "--unheard-of", "job.sh", code=1)
    assert "0049" in typed("pjsub", "-g", "group1", "-N", "0ne", "job.sh", code=1)


def test_the_other_programs(tmp_path: Path, typed: Callable[..., str], sim: PjmSimulator) -> None:
    assert "(elapse=) 00:01:00 72:00:00 00:01:00\n" in typed("pjacl", "-u", "user1", "-g", "group1", "--rg", "small")
    job = submit(typed, tmp_path, "true")
    typed("pjwait", job)

    assert "1 calls of pjsub, 0 refused" in typed("pjmsim", "dump")
    assert json.loads(typed("pjmsim", "dump", "--json"))["calls"]["pjsub"] == 1
    assert "no simulated PJM" in typed("pjstat", code=1, PJMSIM_HOME=str(tmp_path / "nowhere"))


def test_a_machine_by_hand(tmp_path: Path, typed: Callable[..., str]) -> None:
    other = str(tmp_path / "other")

    def hand(*words: str) -> str:
        return typed(*words, PJMSIM_HOME=other)

    hand("pjmsim", "init", "--virtual", "--mode", "plan", "--nodes", "2", "--set", "may_bulk=no")
    hand("pjmsim", "set-limit", "USER", "ru-accept", "2")
    hand("pjmsim", "set-load", "ru-accept", "1")
    hand("pjmsim", "rule", "a*", "--run-s", "10", "--ec", "4")
    hand("pjmsim", "fault", "warning", "--match", "a*")
    (tmp_path / "job.sh").write_text("true\n")
    assert hand("pjsub", "-g", "group1", "-N", "a", "job.sh").startswith("warn:")
    assert "0070" in typed("pjsub", "-g", "group1", "--bulk", "--sparam", "0-1", "job.sh", code=1, PJMSIM_HOME=other)
    hand("pjmsim", "tick", "+30")

    assert hand("pjwait", "43607190") == "43607190 0 4\n"
    assert "ru-accept                       100" not in hand("pjstat", "--limit")
    hand("pjmsim", "set-limit", "USER", "ru-accept", "unlimited")
    hand("pjmsim", "fail-node", "2")
    hand("pjmsim", "set", "nodes=4")
    hand("pjmsim", "stop")


def test_a_node_that_goes_down_at_once_lets_nothing_happen(
    tmp_path: Path, sim: PjmSimulator, typed: Callable[..., str]
) -> None:
    """A job was killed before its script had begun, and the script ran all the same: a campaign had it done twice."""
    sim.fault("node-down", times=None, value=0)
    jobs = [submit(typed, tmp_path, "sleep 0.3; touch ran-$PJM_JOBID") for _ in range(5)]

    typed("pjwait", *jobs)
    last = submit(typed, tmp_path, "true")
    sim.forget_faults()
    typed("pjwait", last)
    time.sleep(0.6)

    assert [job.pc for job in sim.jobs()][:5] == [20] * 5
    assert list(tmp_path.glob("ran-*")) == []


@pytest.mark.parametrize("words", [("pjstat",), ("pjstat", "--limit"), ("pjdel", "JOB")])
def test_whoever_asks_may_be_killed(
    tmp_path: Path, sim: PjmSimulator, typed: Callable[..., str], words: tuple[str, ...]
) -> None:
    sim.set(nodes=0)
    job = submit(typed, tmp_path, "true")
    sim.fault("delete-kills-caller" if words[0] == "pjdel" else "stat-kills-caller")
    line = " ".join(words).replace("JOB", job)

    said = subprocess.run(
        ["sh", "-c", f"{line}; echo still here"], env={**os.environ, **sim.environment}, timeout=60, check=False
    )

    assert said.returncode == -9
    until(lambda: [job.st for job in sim.jobs()] == (["CCL"] if words[0] == "pjdel" else ["QUE"]))


def test_statistics_are_left_where_they_were_asked_for(tmp_path: Path, typed: Callable[..., str]) -> None:
    single = submit(typed, tmp_path, "exit 2", "-s", "-N", "one")
    bulk = submit(typed, tmp_path, "true", "-S", "--spath", "of-%b.stats", "--bulk", "--sparam", "3-3")

    typed("pjwait", single, bulk)

    text = (tmp_path / f"one.{single}.stats").read_text()
    assert text.startswith("Job Statistical Information\n\n JOB ID                      : ")
    assert " EXIT CODE                   : 2\n" in text
    assert f": {bulk}[3]\n" in (tmp_path / "of-3.stats").read_text()
