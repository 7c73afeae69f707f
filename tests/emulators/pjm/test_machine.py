"""How jobs go on the simulated PJM: states and times, limits, schedulers, faults; nothing really runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagkit.testing.pjm import PjmSimulator, Site
from dagkit.testing.pjm.faults import KINDS
from dagkit.testing.pjm.scheduling import Running, Waiting, choose
from emulators.pjm.conftest import Made, Prompt, at

Ask = Callable[[Any], Prompt]


def states(sim: PjmSimulator) -> list[str]:
    return [job.st for job in sim.jobs()]


def way(sim: PjmSimulator, name: str) -> list[str]:
    return [change.st for change in sim.oracle().changes if change.id == name]


# --- states


def test_a_job_goes_its_way_and_is_found_first_here_and_then_there(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine("pjsub", machine.script())
    sim.rule(run_s=10)
    seen = []
    for _ in range(120):
        sim.tick(0.5)
        live, past = machine("pjstat"), machine("pjstat", "-H")
        seen.append(("43607190" in live, "43607190" in past))

    assert way(sim, "43607190") == ["ACC", "QUE", "RNA", "RNP", "RUN", "RNE", "RNO", "EXT"]
    assert list(dict.fromkeys(seen)) == [(True, False), (True, True), (False, True)]


def test_there_may_be_a_time_in_which_nobody_knows_a_job(make: Made, prompt: Ask) -> None:
    sim = make(history_lag_s=60.0)
    machine = prompt(sim)
    machine("pjsub", machine.script())

    sim.tick(120)

    assert "43607190" not in machine("pjstat") + machine("pjstat", "-H")
    sim.tick(60)
    assert "43607190" in machine("pjstat", "-H")
    assert "43607190" in machine("pjstat", "-s", "43607190")


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ({"ec": 3}, ",EXT,3,0,0,-"),
        ({"run_s": 400}, ",EXT,-,11,24,ELAPSE LIMIT EXCEEDED"),
        ({"ec": None, "sn": 9, "pc": 12, "reason": "LIMIT OVER MEMORY"}, ",EXT,-,12,9,LIMIT OVER MEMORY"),
        ({"state": "RJT", "ec": None, "pc": 3, "reason": "GATE CHECK"}, ",RJT,-,3,0,GATE CHECK"),
    ],
)
def test_ends(make: Made, prompt: Ask, rule: dict[str, Any], shown: str) -> None:
    sim = make(live_s=1000.0)
    sim.rule(**rule)
    machine = prompt(sim)
    machine("pjsub", "-L", "elapse=2:00", machine.script())

    sim.tick(500)

    assert shown in machine("pjstat", "--data", "--choose=jid,st,ec,pc,sn,ermsg")


def test_a_deletion_takes_its_time_and_not_every_state_allows_one(make: Made, prompt: Ask) -> None:
    sim = make(prologue_s=5.0, accept_s=0.0, schedule_s=1.0, acquire_s=0.0)
    machine = prompt(sim)
    machine("pjsub", machine.script())
    sim.tick(2)
    assert states(sim) == ["RNP"]
    assert "cannot be processed" in machine("pjdel", "43607190", code=1)
    sim.tick(5)

    machine("pjdel", "43607190")
    assert states(sim) == ["RUN"]
    sim.tick(3)

    assert [(job.st, job.pc) for job in sim.jobs()] == [("CCL", 1)]
    assert "does not exist" in machine("pjdel", "43607190", code=1)


def test_what_is_held_or_in_error_keeps_its_slot_until_it_is_deleted(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    sim.fault("job-error")
    sim.fault("job-held")
    for _ in range(2):
        machine("pjsub", machine.script())
    sim.tick(300)

    assert states(sim) == ["ERR", "HLD"]
    assert sim.alloc("ru-accept") == 2
    machine("pjdel", "43607190")
    machine("pjrls", "43607191")
    sim.tick(300)
    assert states(sim) == ["CCL", "EXT"]
    assert sim.alloc("ru-accept") == 0


def test_a_hold_by_hand(make: Made, prompt: Ask) -> None:
    sim = make(nodes=0)
    machine = prompt(sim)
    machine("pjsub", machine.script())
    sim.tick(10)

    assert machine("pjhold", "43607190") == "[INFO] PJM 0300 pjhold Accepted job 43607190.\n"

    assert "HLD" in machine("pjstat")
    assert [job.pc for job in sim.jobs()] == [4]


def test_a_bulk_job_sums_up_its_parts(make: Made, prompt: Ask) -> None:
    sim = make(nodes=1, may_backfill=False)
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-2", machine.script())
    seen = []
    for _ in range(400):
        sim.tick(1)
        row = [line.split(",") for line in machine("pjstat", "--data", "--choose=jid,st,ec").splitlines()[1:]]
        seen += [tuple(cells[2:]) for cells in row if cells[1] == "43607190"]

    short = list(dict.fromkeys(seen))
    assert short == [(state, "-") for state in ("QUE", "RNA", "RUN", "RNO", "EXT")]


def test_steps_run_one_after_the_other_and_by_their_conditions(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    sim.rule(ec=1)
    machine("pjsub", "--step", machine.script())
    machine("pjsub", "--step", "--sparam", "jid=43607190", "job.sh")
    machine("pjsub", "--step", "--sparam", "jid=43607190,sd=ec!=0:one:1", "job.sh")

    sim.tick(80)
    assert [job.st for job in sim.jobs()] == ["EXT", "RUN", "ACC"]
    sim.tick(100)

    assert [(job.id, job.st, job.pc) for job in sim.jobs()] == [
        ("43607190_0", "EXT", 0),
        ("43607190_1", "EXT", 0),
        ("43607190_2", "CCL", 6),
    ]


def test_a_node_goes_down_with_what_runs_on_it(make: Made, prompt: Ask) -> None:
    sim = make(nodes=2)
    machine = prompt(sim)
    machine("pjsub", machine.script())
    machine("pjsub", "--restart", "job.sh")
    sim.tick(20)

    sim.fail_node(2)

    assert [(job.st, job.pc) for job in sim.jobs()] == [("EXT", 20), ("QUE", 0)]
    sim.tick(600)
    assert [job.st for job in sim.jobs()] == ["EXT", "QUE"]
    sim.fail_node(2, is_back=True)
    sim.tick(600)
    assert [job.st for job in sim.jobs()] == ["EXT", "EXT"]
    assert sim.oracle().runs == {"43607190": 1, "43607191": 2}


def test_dates_around_the_new_year(make: Made, prompt: Ask) -> None:
    sim = make("2026/12/31 23:59:55")
    machine = prompt(sim)
    machine("pjsub", machine.script())
    sim.tick(20)

    assert "01/01 00:00:03" in machine("pjstat")
    assert "JOB START DATE              : 2027/01/01 00:00:03" in machine("pjstat", "-s", "43607190")


# --- limits


def test_a_bulk_job_is_taken_whole_or_not_at_all(make: Made, prompt: Ask) -> None:
    sim = make(nodes=0)
    sim.limit("ru-accept-bulksubjob", 10, "GROUP")
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-5", machine.script())

    machine("pjsub", "--bulk", "--sparam", "0-4", "job.sh", code=1)
    machine("pjsub", "--bulk", "--sparam", "0-3", "job.sh")

    assert (sim.alloc("ru-accept"), sim.alloc("ru-accept-bulksubjob"), sim.alloc("ru-accept-allsubjob")) == (2, 10, 10)
    assert sim.oracle().queue_full == 1


def test_what_others_take_is_not_ours_and_is_counted_where_it_is(make: Made, prompt: Ask) -> None:
    sim = make(nodes=0)
    sim.limit("ru-accept", 10, "GROUP")
    machine = prompt(sim)
    machine("pjsub", machine.script())

    sim.load("ru-accept", 9)

    assert [sim.alloc("ru-accept", section) for section in ("USER", "GROUP", "ALL")] == [1, 10, 10]
    machine("pjsub", "job.sh", code=1)
    sim.load("ru-accept", 8)
    machine("pjsub", "job.sh")


def test_run_limits_and_nodes(make: Made, prompt: Ask) -> None:
    sim = make(nodes=8)
    sim.limit("ru-run-job", 3)
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-9", "-L", "node=2", machine.script())

    sim.tick(20)
    assert sorted(states(sim)) == ["QUE"] * 7 + ["RUN"] * 3
    sim.limit("ru-run-job", None)
    sim.tick(60)
    assert states(sim).count("RUN") <= 4
    sim.tick(600)
    assert set(states(sim)) == {"EXT"}
    assert max(peak.alloc for peak in sim.oracle().peaks if peak.name == "ru-use-node") == 8


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 100)), max_size=12),
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 4)), max_size=4),
    st.booleans(),
)
def test_nobody_is_delayed_by_a_job_that_passes(
    jobs: list[tuple[int, int]], running: list[tuple[int, int]], may_backfill: bool
) -> None:
    held = [Running(float(end), node) for end, node in running]
    total = max(10, sum(one.node for one in held))
    free = total - sum(one.node for one in held)
    waiting = [Waiting((place, -1), node, float(elapse)) for place, (node, elapse) in enumerate(jobs)]

    choice = choose(0.0, free, 100, waiting, held, may_backfill=may_backfill)

    need = {one.key: one for one in waiting}
    assert sum(need[key].node for key in choice.start) <= free
    assert may_backfill or not choice.backfilled
    without = choose(0.0, free, 100, waiting, held, may_backfill=False)
    assert choice.predicted == without.predicted
    for key, when in choice.predicted.items():
        busy = sum(one.node for one in held if one.end_at > when)
        busy += sum(need[one].node for one in choice.start if need[one].elapse_s > when)
        assert busy + need[key].node <= total


def test_bursts_of_neighbours_never_take_a_limit_beyond_itself(make: Made, prompt: Ask) -> None:
    sim = make(nodes=4)
    sim.limit("ru-accept", 50, "GROUP")
    sim.neighbours("ru-accept", 10, 45, every_s=60)
    machine = prompt(sim)
    machine.script()
    seen = set()
    for _ in range(300):
        sim.run(["pjsub", "job.sh"], directory=machine.folder)
        sim.tick(10)
        seen.add(sim.alloc("ru-accept", "GROUP"))

    assert max(seen) <= 50
    assert len(seen) > 10
    assert sim.oracle().queue_full > 0
    assert sim.oracle().over == ()


# --- faults


VALUES = {"says": "[ERR.] PJM 0123 pjsub Odd.", "job-moved": "large", "warning": "warn: retention is invalid."}
ASKED = (["pjsub", "-g", "group1", "job.sh"], ["pjstat", "--limit"], ["pjstat", "--data"], ["pjstat", "-H"])


def test_every_fault_can_happen(tmp_path: Path) -> None:
    here = set()
    (tmp_path / "job.sh").write_text("true\n")
    for kind in KINDS:
        if kind.startswith(("kill-caller", "accept-kill", "submit-killed")) or kind.endswith("kills-caller"):
            continue  # they end processes, and are tried where there are some
        sim = PjmSimulator(tmp_path / kind, Site(mode="plan"), at=at("2026/06/01 12:00:00"), speed=None)
        sim.run(["pjstat", "--limit"])
        sim.fault(kind, value=VALUES.get(kind, 0))
        said = ""
        for words in ASKED:
            done = sim.run(words, directory=tmp_path)
            said += f"{done.returncode} {done.stdout}{done.stderr}"
            sim.tick(12)
        sim.run(["pjdel", "43607190"])
        assert sim._do("SELECT count(*) FROM faults") == [(0,)], kind
        here.add(said)
    assert len(here) > 12


def test_an_outage_lasts_as_long_as_it_was_told(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    sim.fault("stat-fails", times=None, for_s=600)

    assert machine("pjstat", code=1) == "[ERR.] PJM 0399 pjstat System error.\n"
    sim.tick(599)
    machine("pjstat", code=1)
    sim.tick(2)
    machine("pjstat")


def test_a_fault_meets_those_that_it_is_for(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    sim.fault("accept-garbled", match="b*")
    machine.script()

    assert "submitted" in machine("pjsub", "-N", "a", "job.sh")
    assert "submitted" not in machine("pjsub", "-N", "b", "job.sh")
    assert len(sim.jobs()) == 2


def test_stale_limits(make: Made, prompt: Ask) -> None:
    sim = make(nodes=0)
    machine = prompt(sim)
    before = machine("pjstat", "--limit")
    sim.tick(60)
    machine("pjsub", machine.script())
    sim.fault("limits-stale", value=30)

    assert machine("pjstat", "--limit") == before
    assert machine("pjstat", "--limit") != before


def test_files_that_a_rule_promises_appear_late(make: Made, prompt: Ask) -> None:
    sim = make(output_lag_s=30.0)
    machine = prompt(sim)
    sim.rule("two*", touch=("%n-%j-%b.txt",))
    machine("pjsub", "--bulk", "--sparam", "0-1", "-N", "two", machine.script())
    while set(states(sim)) != {"EXT"}:
        sim.tick(1)

    names = [f"two-43607190-{number}.txt" for number in range(2)]
    assert not any((machine.folder / name).exists() for name in names)
    sim.tick(31)
    assert all((machine.folder / name).exists() for name in names)


# --- the record


def test_the_record_counts_what_was_asked_and_what_ran(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    for name in ("a", "b", "a"):
        machine("pjsub", "-N", name, machine.script())
    machine("pjsub", "-L", "node=1000", "job.sh", code=1)
    sim.tick(200)

    found = sim.oracle()
    assert found.calls == {"pjsub": 4}
    assert found.longest == {"pjsub": 3}
    assert found.duplicates == {"a": 2}
    assert [one.result for one in found.submits] == ["accepted"] * 3 + ["0057"]
    assert set(found.runs.values()) == {1}
    assert found.plain()["refused"] == 1


def test_a_machine_that_is_there_is_gone_on_with(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine("pjsub", machine.script())

    again = PjmSimulator(sim.folder)

    assert [job.name for job in again.jobs()] == ["job.sh"]
    assert again.now == sim.now


def test_ten_thousand_parts_end(make: Made, prompt: Ask) -> None:
    sim = make()
    machine = prompt(sim)
    machine.script()
    for _ in range(10):
        machine("pjsub", "--bulk", "--sparam", "0-999", "-L", "elapse=0:02:00", "job.sh")

    sim.tick(3600)

    assert set(states(sim)) == {"EXT"}
    assert sum(sim.oracle().runs.values()) == 10_000


def test_a_laptop_runs_large_jobs_too_some_at_a_time(make: Made, prompt: Ask) -> None:
    sim = make(nodes=1000, at_a_time=2)
    machine = prompt(sim)
    machine("pjsub", "--bulk", "--sparam", "0-4", "-L", "node=12", machine.script())

    sim.tick(20)
    assert states(sim).count("RUN") == 2
    sim.tick(600)
    assert set(states(sim)) == {"EXT"}
