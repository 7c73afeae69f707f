"""What the simulated PJM prints is what real ones were seen to print, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.executors.pjm.limits import read_limits
from dagkit.executors.pjm.listing import read_csv, read_records, read_summary, read_table
from dagkit.executors.pjm.submission import read_pjdel, read_pjsub
from dagkit.testing.pjm.site import ResourceGroup
from emulators.pjm.conftest import SAMPLES, Made, Prompt, at, sample

Ask = Callable[[Any], Prompt]
CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "pjm_parse.yaml").read_text())["cases"]


def case(name: str) -> dict[str, Any]:
    return next(one for one in CASES if one["id"] == name)


# --- pjsub


def test_submissions(make: Made, prompt: Ask) -> None:
    machine = prompt(make(first_id=9714))
    machine.script()

    single = machine("pjsub", "job.sh")
    bare = machine("pjsub", "-z", "jid", "job.sh")
    bulk = machine("pjsub", "--bulk", "--sparam", "0-9", "job.sh")

    assert single == sample("submitted").splitlines(keepends=True)[0]
    assert bare == "9715\n"
    assert bulk == "[INFO] PJM 0000 pjsub Job 9716 submitted.\n"


def test_a_step_is_named_with_its_number(make: Made, prompt: Ask) -> None:
    machine = prompt(make(first_id=71080))
    machine.script()

    assert machine("pjsub", "--step", "job.sh") == sample("submitted").splitlines(keepends=True)[1]
    assert machine("pjsub", "--step", "--sparam", "jid=71080", "job.sh") == (
        "[INFO] PJM 0000 pjsub Job 71080_1 submitted.\n"
    )


#: What is typed for each text of the facts; what the machine is like.
REFUSALS = {
    "0012": (["--step", "--sparam", "jid=64856", "job.sh"], {}),
    "0020": (["rscgrp=fx-debug", "job.sh"], {}),
    "0054": (["-L", "rscgrp=large,node=1", "job.sh"], {}),
    "0057 pjsub elapse": (["-L", "rscgrp=spot-small,elapse=05:00:00", "job.sh"], {}),
    "0057 pjsub node": (["-L", "node=32", "job.sh"], {"resource_groups": {"small": ResourceGroup(1, 24, 360)}}),
    "0070": (["--bulk", "--sparam", "0-3", "job.sh"], {"may_bulk": False}),
    "0071": (["job.sh"], {"is_group_needed": True}),
}


@pytest.mark.parametrize("words", REFUSALS)
def test_refusals(make: Made, prompt: Ask, words: str) -> None:
    arguments, site = REFUSALS[words]
    machine = prompt(make(**site))
    machine.script()

    said = machine("pjsub", *arguments, code=1)

    assert said.startswith("[ERR.] PJM 0")
    assert said in sample("refused").splitlines(keepends=True)
    assert words in said


def test_a_full_queue(make: Made, prompt: Ask) -> None:
    sim = make()
    sim.limit("ru-accept", 1)
    machine = prompt(sim)
    machine.script()
    machine("pjsub", "job.sh")

    said = machine("pjsub", "job.sh", code=1)

    assert said in sample("refused").splitlines(keepends=True)
    assert said == case("parse-05")["pjsub"]["stderr"]


def test_folders_and_volumes(make: Made, prompt: Ask) -> None:
    sim = make(data_areas=("/vol0004",))
    machine = prompt(sim)
    machine.script()

    said = machine("pjsub", "job.sh", code=1)
    sim.set(is_volume_needed=True)
    volume = machine("pjsub", "--no-check-directory", "job.sh", code=1)

    first, second = sample("refused").splitlines(keepends=True)[13:15]
    assert said == first.replace("/vol000N/groupname/username", str(machine.folder)) + second
    assert volume in sample("refused")
    machine("pjsub", "--no-check-directory", "-x", "PJM_LLIO_GFSCACHE=/vol0004:/vol0005", "job.sh")


def test_the_gate_and_staging(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine.script()
    sim.fault("budget")
    sim.fault("restricted")
    sim.fault("staging-error")

    assert machine("pjsub", "job.sh", code=1) == case("parse-10")["pjsub"]["stderr"]
    assert machine("pjsub", "job.sh", code=1) == case("parse-29")["pjsub"]["stderr"]
    staging = sim.run(["pjsub", "job.sh"], directory=machine.folder)
    assert (staging.returncode, staging.stderr) == (0, sample("refused").splitlines(keepends=True)[0])


def test_complaints_may_come_on_the_other_stream(make: Made, prompt: Ask) -> None:
    sim = make(error_stream="stdout", is_group_needed=True)
    machine = prompt(sim)
    machine.script()

    done = sim.run(["pjsub", "job.sh"], directory=machine.folder)

    assert (done.returncode, done.stderr) == (1, "")
    assert read_pjsub(1, done.stdout, "").code == "0071"


# --- pjstat


def test_the_verbose_table(make: Made, prompt: Ask) -> None:
    sim = make(
        "2021/04/12 11:25:50", first_id=6291500, user="user01", groups=("group001",), acquire_s=4.0, prologue_s=0.0,
        schedule_s=1.0,
    )  # fmt: skip
    machine = prompt(sim)
    machine("pjsub", "-L", "node=12", machine.script("job1.sh"))
    head, waiting, running = sample("verbose").splitlines(keepends=True)

    sim.tick(2)
    assert machine("pjstat", "-v") == head + waiting == case("parse-12")["pjstat_v"]
    sim.tick(10)
    assert machine("pjstat", "-v") == head + running == case("parse-31")["pjstat_v"]


def test_the_default_table(make: Made, prompt: Ask) -> None:
    sim = make("2020/11/17 09:01:37", first_id=238, acquire_s=0.0, prologue_s=0.0, schedule_s=1.0, accept_s=4.0)
    machine = prompt(sim)
    for name, options in (("job.sh", []), ("bulk.sh", ["--bulk", "--sparam", "1-1"]), ("step.sh", ["--step"])):
        machine("pjsub", *options, "-L", "node=2x3x2,elapse=1:00:00", machine.script(name))
        if name == "job.sh":
            sim.tick(1)

    sim.tick(6)
    machine("pjsub", "--step", "--sparam", "jid=240", "-L", "elapse=1:00:00", "step.sh")

    shown = machine("pjstat")
    assert shown == sample("brief")
    with_parts = [line.split() for line in machine("pjstat", "-E").splitlines()]
    assert ["239[1]", "bulk.sh", "BU", "RUN", "user1"] in [line[:5] for line in with_parts]
    assert ["240_1", "step.sh", "ST", "ACC", "user1", "-", "0001:00:00"] in [line[:7] for line in with_parts]
    assert machine("pjstat", "239[1]").splitlines()[0].split()[-3:] == ["-", "-", "-"]


def test_the_table_of_chosen_columns(make: Made, prompt: Ask) -> None:
    sim = make(first_id=167727, runout_s=20.0)
    machine = prompt(sim)
    sim.rule("ends", run_s=1, reason="COMPLETED")
    sim.rule("runs-out", run_s=25)
    sim.rule("held", run_s=2, state="HLD", pc=4, reason="ASHOLD")
    for name in ("ends", "runs-out", *["other"] * 7, "held"):
        machine("pjsub", "-N", name, machine.script())

    sim.tick(39)

    assert machine("pjstat", "--choose", "jid,st,ermsg", "167727", "167728", "167736") == sample("choose")


def test_rows_for_programs(make: Made, prompt: Ask) -> None:
    sim = make(first_id=34703955)
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "1-2", machine.script())

    assert machine("pjstat", "-E", "--data", "--choose", "jid,jmdl") == sample("data_bulk")
    assert sample("data_bulk") == case("parse-15")["pjstat_data"]
    assert machine("pjstat", "-E", "--data", "--choose=jid,jmdl", "--filter", "jid=1") == "H,JOB_ID,MD\n"


def test_a_column_that_was_not_asked_for(make: Made, prompt: Ask) -> None:
    sim = make("2021/10/11 10:21:35", first_id=34716160, has_extra_column=True, nodes=0)
    machine = prompt(sim)
    machine("pjsub", machine.script())
    sim.tick(88)
    for _ in range(7):
        machine("pjsub", "job.sh")
    machine("pjsub", "--bulk", "--sparam", "1-1", "job.sh")
    sim.tick(2)

    shown = machine("pjstat", "-E", "--data", "--choose", "jid,adt,st", "34716160", "34716168")

    assert shown == sample("data_extra")


def test_the_record_of_a_job(make: Made, prompt: Ask) -> None:
    sim = make(
        "2016/07/29 20:55:00", first_id=390030, nodes=4, schedule_s=1.0, acquire_s=0.0, prologue_s=0.0,
        resource_groups={"fx-small": ResourceGroup(1, 384, 360000)},
    )  # fmt: skip
    machine = prompt(sim)
    machine.script()
    sim.rule("y0.140", run_s=7200)
    sim.rule("first", run_s=900, ec=0)
    machine("pjsub", "-N", "first", "-L", "rscgrp=fx-small,node=3,elapse=12:00:00", "job.sh")
    sim.tick(56)
    machine("pjsub", "-N", "y0.140", "-L", "rscgrp=fx-small,node=2:noncont,elapse=2:00:00", "job.sh")
    started = at("2016/07/29 21:11:29")
    sim.tick(60)
    assert " JOB START DATE              : (2016/07/30 08:55:01)\n" in machine("pjstat", "-s", "390031")

    # The machine of the sample started it in a gap; here the same job is put into the state that was recorded.
    sim._do("UPDATE parts SET st = 'RUN', start_at = ?, is_backfilled = 1 WHERE job = 390031", started)
    sim.tick(started + 6605 - sim.now)

    shown = machine("pjstat", "-s", "390031")
    assert shown == sample("record")
    assert read_records(shown, _when()).rows[0].st == "RUN"


def test_limits(make: Made, prompt: Ask) -> None:
    machine = prompt(make())
    lines = sample("limits").splitlines(keepends=True)
    user = lines[4:16]

    shown = machine("pjstat", "--limit")

    blocks = shown.splitlines(keepends=True)
    assert blocks[:16] == lines[:16]
    assert blocks[16:18] == lines[16:18]
    assert blocks[18:30] == [user[0].replace("      100", "unlimited"), *user[1:]]
    assert blocks[18].rstrip() == lines[18].partition("(")[0].rstrip()
    assert blocks[30:32] == lines[19:21]
    assert blocks[32:] == blocks[18:30]
    assert read_limits(shown).capacity(None, "group1").jobs is not None


def test_counts(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-4", machine.script())
    machine("pjsub", "job.sh")
    head, numbers, parts = sample("summary").splitlines()

    shown = machine("pjstat", "--summary").splitlines()

    assert shown[0] == head
    assert [len(line) for line in shown[1:]] == [len(numbers), len(parts)]
    assert shown[1] == numbers.replace("n", "2", 1).replace("n", "0", 8).replace("n", "2")
    assert shown[2] == parts.replace("n", "5", 1).replace("n", "0", 8).replace("n", "5")
    assert read_summary("\n".join(shown))["ACCEPT"] == 2


def test_ids_that_are_none(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)

    assert machine("pjstat", "r1", code=1) == case("parse-22")["pjstat_error"]
    assert machine("pjstat", "-v", "--choose", "jid,st", "12").split() == ["JOB_ID", "ST"]
    sim.set(unknown_id="nothing")
    assert machine("pjstat", "12") == ""


# --- pjdel


def test_deletions(make: Made, prompt: Ask) -> None:
    sim = make(first_id=6291500)
    machine = prompt(sim)
    machine.script()
    texts = sample("deleted").splitlines(keepends=True)

    def submit(job: int, *options: str) -> None:
        sim._do("UPDATE settings SET value = json_set(value, '$.first_id', ?) WHERE name = 'site'", job)
        sim._do("DELETE FROM parts")
        sim._do("DELETE FROM jobs")
        machine("pjsub", *options, "job.sh")

    submit(6291500)
    assert machine("pjdel", "6291500") == texts[0]
    submit(28128, "--bulk", "--sparam", "0-3")
    assert machine("pjdel", "28128") == texts[1]
    submit(1362939, "--bulk", "--sparam", "0-3")
    assert machine("pjdel", "1362939[3]") == texts[2]
    submit(1363254, "--bulk", "--sparam", "1-2")
    assert machine("pjdel", "1363254[0-2]") == texts[3]  # a range passes over members that do not exist
    submit(12345678, "--step")
    assert machine("pjdel", "12345678") == texts[4]
    assert machine("pjdel", "999", code=1) == texts[5] == case("parse-25")["pjdel"]


# --- other sites, other switches


def test_wisteria(make: Made, prompt: Ask) -> None:
    sim = make(
        "2023/03/02 11:16:30", dialect="wisteria", first_id=1334861, groups=("gr58",), schedule_s=1.0, accept_s=0.0,
        acquire_s=2.0, prologue_s=1.0, resource_groups={"interactive-o_n1": ResourceGroup(1, 1, 7200)},
    )  # fmt: skip
    machine = prompt(sim)
    banner = sample("wisteria").partition("JOB_ID")[0]
    assert machine("pjstat") == f"{banner}No unfinished job found.\n"

    sim.rule(run_s=134)
    machine("pjsub", "-L", "rscgrp=interactive-o_n1,elapse=2:00:00")
    sim.tick(150)

    assert machine("pjstat") == sample("wisteria")


def test_older_machines_count_first(make: Made, prompt: Ask) -> None:
    machine = prompt(make(dialect="fx100"))
    machine("pjsub", machine.script())

    lines = machine("pjstat", "-v").splitlines()

    assert lines[0] == "  ACCEPT QUEUED  STGIN  READY RUNING RUNOUT STGOUT   HOLD  ERROR   TOTAL"
    assert len(lines[1]) == len(lines[0])
    assert [row.st for row in read_table("\n".join(lines), _when()).rows] == ["ACC"]


@pytest.mark.parametrize(("long_ids", "whole"), [("shift", True), ("cut", False)])
def test_ids_wider_than_their_column(make: Made, prompt: Ask, long_ids: str, whole: bool) -> None:
    machine = prompt(make(long_ids=long_ids))
    machine("pjsub", "--bulk", "--sparam", "10-11", machine.script())

    row = machine("pjstat", "-v", "-E").splitlines()[2]

    assert row.startswith("43607190[10] job.sh" if whole else "43607190[1 job.sh")
    read = read_table(machine("pjstat", "-v", "-E"), _when())
    assert [str(one.id) for one in read.rows if one.id.sub is not None] in ([], ["43607190[10]", "43607190[11]"])


def test_everything_that_is_printed_is_read_by_dagkit(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-4", machine.script())
    sim.tick(20)

    listing = read_csv(machine("pjstat", "-v", "-E", "--data", "--choose=jid,jnam,st,ec,pc,sn,ermsg"), _when())

    assert (len(listing.rows), listing.dropped) == (6, 0)
    assert len(read_pjdel(machine("pjdel", "43607190")).accepted) == 1


def test_the_samples_are_those_of_the_facts() -> None:
    assert {path.stem for path in SAMPLES.glob("*.txt")} >= {"verbose", "limits", "record", "deleted", "refused"}
    assert [len(line) for line in sample("verbose").splitlines()] == [218] * 3


def _when() -> Any:
    from datetime import datetime

    return datetime(2021, 4, 12, 12)
