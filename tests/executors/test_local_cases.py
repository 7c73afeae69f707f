"""The cases of shell tasks and of the helpers that task code imports (tests/cases/outputs.yaml), with real commands."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from dagkit.errors import BackendError
from dagkit.executors.local import LocalExecutor
from dagkit.model.states import FailureKind
from dagkit.runtime.values import load_output
from dagkit.stores.base import Store
from dagkit.stores.memory import MemoryStore
from executors.driving import run_one

CASES = yaml.safe_load((Path(__file__).parent.parent / "cases" / "outputs.yaml").read_text())["cases"]
RUNS = {case["id"]: case for case in CASES if "run" in case and case["run"].get("workflow", True)}
SIZES = {case["id"]: case for case in CASES if "output_bytes" in case}

SET_OUTPUT = f"{shlex.quote(sys.executable)} -c 'import json, sys, dagkit; dagkit.set_output(json.loads(sys.argv[1]))'"


class DownStore(MemoryStore):
    """Cannot store outputs."""

    def put_output(self, workflow_id: str, path: str, data: bytes) -> str:
        raise BackendError("the output store is down")


@pytest.fixture
def down() -> Iterator[LocalExecutor]:
    with LocalExecutor(DownStore(), slots=1) as local:
        yield local


def kwargs_of(run: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name, content in run.get("files", {}).items():
        (folder / name).write_text(content)
    kwargs = {key: run[key] for key in ("cmd", "env", "cwd") if key in run}
    if isinstance(kwargs.get("cmd"), str):
        kwargs["cmd"] = kwargs["cmd"].replace("$SET", SET_OUTPUT)
    return {"cwd": str(folder), **kwargs}


@pytest.mark.parametrize("case", RUNS.values(), ids=RUNS.keys())
def test_run_case(case: dict[str, Any], one_slot: LocalExecutor, down: LocalExecutor, tmp_path: Path) -> None:
    run, expect = case["run"], case["expect"]
    local = down if run.get("output_store") == "down" else one_slot
    upstream = {name: None if value is None else json.dumps(value) for name, value in run.get("upstream", {}).items()}

    completion = run_one(local, kwargs_of(run, tmp_path), upstream=upstream, attempt=run.get("attempt", 1))

    assert completion.success is expect["success"]
    if "kind" in expect:
        assert completion.kind is FailureKind(expect["kind"])
    for word in expect.get("error", []):
        assert word in (completion.error or "")
    if "attempt" in expect:
        assert completion.attempt == expect["attempt"]
    if "output" in expect:
        found = load_output(completion.output_ref, local.store.get_output)
        assert found == expect["output"]
    if "stored" in expect:
        assert (completion.output_ref or "").startswith("blob:") is expect["stored"]
    for place, content in expect.get("files", {}).items():
        found = load_output(completion.output_ref, local.store.get_output)
        for step in str(place).split("."):
            found = found[int(step) if isinstance(found, list) else step]
        assert found.read_bytes().decode() == content


@pytest.mark.parametrize("case", SIZES.values(), ids=SIZES.keys())
def test_size_case(case: dict[str, Any], one_slot: LocalExecutor) -> None:
    size, characters = case["output_bytes"], case.get("characters")
    letters = size - 2 if characters is None else characters - 2
    wide = 0 if characters is None else size - characters
    text = '"' + "é" * wide + "x" * (letters - wide) + '"'
    assert len(text.encode()) == size

    written = run_one(one_slot, {"cmd": f"cat {_file(one_slot, text)} > $JOBQ_OUTPUT_FILE"})

    assert (written.output_ref or "").startswith("blob:") is (case["kept"] == "stored")


def _file(local: LocalExecutor, text: str) -> Path:
    path = Path(local.store.url.removeprefix("sqlite:"), "text.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_output_of_a_failing_command_is_reported_with_the_failure(one_slot: LocalExecutor) -> None:
    readable = run_one(one_slot, {"cmd": "echo 5 > $JOBQ_OUTPUT_FILE; exit 3"})
    unreadable = run_one(one_slot, {"cmd": "echo no json > $JOBQ_OUTPUT_FILE; exit 3"})

    assert (readable.success, readable.output_ref) == (False, "5")
    assert (unreadable.success, unreadable.output_ref) == (False, None)
    assert "exit code 3" in (unreadable.error or "")


@pytest.mark.parametrize("text", ["NaN", "{", "[1,]", "'x'", "\\377"])
def test_an_output_that_is_not_json_fails_the_attempt(one_slot: LocalExecutor, text: str) -> None:
    completion = run_one(one_slot, {"cmd": f"printf {shlex.quote(text)} > $JOBQ_OUTPUT_FILE"})

    assert not completion.success
    assert "output" in (completion.error or "")


def test_a_command_killed_by_a_signal_says_which(one_slot: LocalExecutor) -> None:
    completion = run_one(one_slot, {"cmd": "kill -SEGV $$"})

    assert completion.kind is FailureKind.USER
    assert "SIGSEGV" in (completion.error or "")
    assert (completion.usage or {})["signal"] == "SIGSEGV"


def test_a_process_that_keeps_the_output_open_is_killed_in_the_end(one_slot: LocalExecutor, store: Store) -> None:
    completion = run_one(one_slot, {"cmd": "sleep 1000 & echo $! ; exit 4"})

    assert "exit code 4" in (completion.error or "")
    assert 4 < (completion.usage or {})["wall_s"] < 20
    pid = store.read_log("wf1", "task", "0.1").decode().strip()
    process = psutil.Process(int(pid)) if psutil.pid_exists(int(pid)) else None
    assert process is None or not psutil.wait_procs([process], timeout=10)[1] or process.status() == "zombie"


def test_a_background_process_with_its_own_output_is_left_alone(one_slot: LocalExecutor, store: Store) -> None:
    completion = run_one(one_slot, {"cmd": "sleep 30 >/dev/null 2>&1 & echo $!"})

    pid = store.read_log("wf1", "task", "0.1").decode().strip()
    assert completion.success
    assert (completion.usage or {})["wall_s"] < 4
    assert Path(f"/proc/{pid}").exists()
    run_one(one_slot, {"cmd": f"kill {pid}"})


def test_an_output_file_written_after_the_end_reaches_nobody(one_slot: LocalExecutor, tmp_path: Path) -> None:
    late = f"(while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo 666 > $JOBQ_OUTPUT_FILE; touch {tmp_path}/wrote)"
    run_one(one_slot, {"cmd": f"{late} > /dev/null 2>&1 &"})

    following = run_one(one_slot, {"cmd": f"touch {tmp_path}/go; while [ ! -e {tmp_path}/wrote ]; do sleep 0.01; done"})

    assert (following.success, following.output_ref) == (True, None)
