"""The cases of the facts, with the simulated PJM in the place of a real one: what it prints for them, what it takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.executors.pjm.limits import read_limits
from dagkit.executors.pjm.listing import read_csv
from dagkit.executors.pjm.names import job_name
from dagkit.executors.pjm.request import PjmQueue, request_of
from dagkit.executors.pjm.submission import read_pjsub
from dagkit.model.messages import TaskMessage
from emulators.pjm.conftest import Made, Prompt

Ask = Callable[[Any], Prompt]
FOLDER = Path(__file__).parents[2] / "cases"
COLUMNS = "--choose=jid,jnam,st,ec,pc,sn,ermsg"


def cases(name: str, *shapes: str) -> list[Any]:
    found = yaml.safe_load((FOLDER / f"pjm_{name}.yaml").read_text())["cases"]
    return [pytest.param(one, id=one["id"]) for one in found if not shapes or any(shape in one for shape in shapes)]


@pytest.mark.parametrize("case", cases("outcomes", "st"))
def test_every_end_of_a_job_is_shown_as_the_case_has_it(make: Made, prompt: Ask, case: dict[str, Any]) -> None:
    sim = make(nodes=0)
    machine = prompt(sim)
    machine("pjsub", machine.script())
    fields = {"ec": case["ec"], "pc": case["pc"] or 0, "sn": case["sn"] or 0, "reason": case.get("reason", "-")}

    sim.force(*sim.jobs(), case["st"], **fields)

    (row,) = read_csv(machine("pjstat", "--data", COLUMNS), datetime(2026, 1, 1)).rows
    assert row.st == case["st"]
    assert (row.pc or 0, row.sn or 0) == (fields["pc"], fields["sn"])
    assert row.reason == case.get("reason")
    if case["st"] in ("EXT", "CCL", "RJT", "ERR", "HLD"):
        assert row.ec == case["ec"]


@pytest.mark.parametrize("case", cases("gate", "limits"))
def test_limits_as_the_case_has_them(make: Made, prompt: Ask, case: dict[str, Any]) -> None:
    sim = make(rscunit=case["rscunit"], groups=("group1",) if case["rscunit"] == "rscunit_ft01" else ("g1",))
    sim.limit("ru-accept", None)
    asked = read_limits(case["limits"])
    for block in asked.blocks:
        for name, (most, used) in block.rows.items():
            sim.limit(name, most, block.kind)
            if used and block.kind == "GROUP":
                sim.load(name, used)
            elif used:
                sim._do("INSERT INTO load VALUES (?, '', ?, ?)", block.kind, name, used - sim.alloc(name, block.kind))

    found = read_limits(prompt(sim)("pjstat", "--limit")).capacity(case["rscunit"], case["group"])

    free = case["free"]
    for room, wanted in ((found.jobs, free["normal"]), (found.bulk_calls, free["bulk_calls"])):
        assert (room.free() if room is not None else "unknown") == (inf if wanted == "inf" else wanted)


@pytest.mark.parametrize("case", cases("parse", "compress"))
def test_arguments_name_the_very_parts(make: Made, prompt: Ask, case: dict[str, Any]) -> None:
    sim = make(first_id=10)
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-7", machine.script())
    machine("pjsub", "job.sh")

    rows = machine("pjstat", "--data", "--choose=jid", *case["args"]).splitlines()[1:]

    assert [row.removeprefix(",") for row in rows] == case["compress"]


@pytest.mark.parametrize("case", cases("parse", "key"))
def test_names_of_jobs_are_taken_and_found_whole(make: Made, prompt: Ask, case: dict[str, Any]) -> None:
    machine = prompt(make())
    name = job_name(case["key"])

    machine("pjsub", "-N", name, machine.script())

    assert f",{name}\n" in machine("pjstat", "--data", "--choose=jid,jnam")


@pytest.mark.parametrize("case", cases("parse", "argv_has"))
def test_volumes_are_passed_on_whole(make: Made, prompt: Ask, case: dict[str, Any]) -> None:
    sim = make(is_volume_needed=True)
    machine = prompt(sim)
    queue = PjmQueue(elapse_s=60, gfscache=tuple(case["job"]["gfscache"]))
    task = TaskMessage("wf", "t", 1, 0, "default", {"cmd": "true"})

    machine("pjsub", *request_of(task, queue).arguments(), machine.script())

    assert all(word in sim.oracle().submits[0].arguments for word in case["argv_has"])


@pytest.mark.parametrize("case", [one for one in cases("parse", "pjsub") if one.values[0].get("class") != "submitted"])
def test_what_the_machine_may_say_is_understood_wherever_it_says_it(
    make: Made, prompt: Ask, case: dict[str, Any]
) -> None:
    text = case["pjsub"].get("stderr", "").rstrip("\n")
    if not text:
        return  # silence is tried where answers are lost
    for stream in ("stderr", "stdout"):
        sim = make(error_stream=stream)
        machine = prompt(sim)
        machine.script()
        sim.fault("says", value=text)
        done = sim.run(["pjsub", "job.sh"], directory=machine.folder)
        assert read_pjsub(done.returncode, done.stdout, done.stderr).verdict.value == case["class"]
