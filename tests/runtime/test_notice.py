from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dagkit.executors.local import LocalExecutor
from dagkit.model.messages import TaskMessage
from dagkit.model.states import FailureKind
from dagkit.runtime import notice
from dagkit.stores import open_store
from executors.driving import collect, message, poll_until, run_one, wait_until


def step(name: str, folder: Path, **more: object) -> dict[str, object]:
    call = {"function": f"runtime.notice_steps:{name}", "args": [str(folder)], "kwargs": more}
    return {"cmd": "dagkit exec", "call": call}


def test_a_task_that_is_stopped_is_told_once_and_before_its_end(tmp_path: Path) -> None:
    with LocalExecutor(open_store(tmp_path / "store"), slots=1) as local:
        hanging = message("a", step("hang", tmp_path))
        local.submit([hanging])
        poll_until(local, (tmp_path / "pid").exists)

        local.cancel([hanging.key], FailureKind.PREEMPTED)
        (ended,), _ = collect(local, lambda ended, begun: bool(ended))

        assert ended.kind is FailureKind.PREEMPTED
        assert (tmp_path / "notices").read_text() == "stopped\n"


def test_a_task_told_of_its_time_limit_may_save_and_fails_for_lack_of_time(tmp_path: Path) -> None:
    with LocalExecutor(open_store(tmp_path / "store"), slots=1) as local:
        local.submit([message("a", step("hang", tmp_path, end=True))])
        poll_until(local, (tmp_path / "pid").exists)

        os.kill(int((tmp_path / "pid").read_text()), signal.SIGUSR1)
        (ended,), _ = collect(local, lambda ended, begun: bool(ended))

        assert ended.kind is FailureKind.TIMEOUT
        assert (ended.error or "").startswith("RuntimeError: saved")
        assert (tmp_path / "notices").read_text() == "time limit\n"


def test_what_a_task_asked_for_is_forgotten_with_it(tmp_path: Path) -> None:
    with LocalExecutor(open_store(tmp_path / "store"), slots=1) as local:
        assert run_one(local, step("quick", tmp_path)).success
        hanging = message("b", step("hang", tmp_path))
        local.submit([hanging])
        poll_until(local, (tmp_path / "pid").exists)
        local.cancel([hanging.key], FailureKind.CANCELLED)
        collect(local, lambda ended, begun: bool(ended))

        assert not (tmp_path / "late").exists()


def test_attempts_of_a_task_share_a_folder_and_other_tasks_do_not(tmp_path: Path) -> None:
    with LocalExecutor(open_store(tmp_path / "store"), slots=1) as local:

        def attempt(task: str, number: int) -> str | None:
            local.submit([TaskMessage("wf1", task, number, 0, "default", step("count", tmp_path))])
            (ended,), _ = collect(local, lambda ended, begun: bool(ended))
            return ended.output_ref if ended.success else (ended.error or "").splitlines()[0]

        found = [attempt("a", 1), attempt("b", 1), attempt("a", 2), attempt("a", 3)]

        assert found == ["ValueError: again", "ValueError: again", "ValueError: again", "2"]


def test_a_script_of_a_shell_task_is_told_by_the_signals_themselves(tmp_path: Path) -> None:
    code = (
        "import dagkit, os, pathlib, sys, time\n"
        "dagkit.on_preempt(lambda reason: print(reason, flush=True))\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "JOBQ_WORKFLOW_TASK": "a"}
    script = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "ready")], env=environment, stdout=subprocess.PIPE, text=True
    )
    wait_until((tmp_path / "ready").exists)

    script.send_signal(signal.SIGTERM)

    assert script.communicate(timeout=20)[0] == "stopped\n"
    assert script.returncode == 128 + signal.SIGTERM


def test_outside_a_task_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBQ_WORKFLOW_TASK", raising=False)

    with pytest.raises(ValueError, match="inside a task only"):
        notice.on_preempt(print)


def test_a_store_without_a_folder_needs_one_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("JOBQ_WORKFLOW_TASK", "a"), ("JOBQ_WORKFLOW_ID", "w"), ("DAGKIT_STORE", "memory:")):
        monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match="DAGKIT_CHECKPOINTS"):
        notice.checkpoint_dir()

    monkeypatch.setenv("DAGKIT_CHECKPOINTS", str(tmp_path))
    assert notice.checkpoint_dir() == tmp_path / "w" / "a"
