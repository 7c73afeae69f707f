"""What the PJM commands print, and what they are given: the cases of the facts, and whatever else may come."""

from __future__ import annotations

import re
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dagkit.errors import BackendError, ConfigError
from dagkit.executors.pjm.cells import nodes_of, seconds_of, start_of
from dagkit.executors.pjm.ids import JobId, compressed, expanded
from dagkit.executors.pjm.limits import read_limits
from dagkit.executors.pjm.listing import Listing, Row, bad_ids, read_csv, read_records, read_summary, read_table
from dagkit.executors.pjm.names import job_name
from dagkit.executors.pjm.request import PjmQueue, checked_queue, request_of
from dagkit.executors.pjm.submission import Verdict, read_pjdel, read_pjsub
from dagkit.model.messages import TaskMessage

FOLDER = Path(__file__).parents[2] / "cases"
CASES = yaml.safe_load((FOLDER / "pjm_parse.yaml").read_text())["cases"]
GATE_CASES = yaml.safe_load((FOLDER / "pjm_gate.yaml").read_text())["cases"]
NOW = datetime(2021, 4, 12, 12)
READERS = {"pjstat_v": read_table, "pjstat_choose": read_table, "pjstat_data": read_csv, "pjstat_s": read_records}


def cases(*shapes: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if any(shape in case for shape in shapes)]


def shown(row: Row, field: str) -> Any:
    """A field as the cases write it."""
    start, nodes = row.start, row.nodes
    values = {
        "job": row.id.job,
        "sub": row.id.sub,
        "step": row.id.step,
        "start": start and start.at.isoformat(),
        "predicted": start and start.is_predicted,
        "backfilled": start and start.is_backfilled,
        "nodes": nodes and nodes.count,
        "shape": nodes and nodes.shape and list(nodes.shape),
        "accept": row.accept and row.accept.isoformat(),
    }
    return values[field] if field in values else getattr(row, field)


def test_every_case_is_run() -> None:
    known = (*READERS, "pjsub", "pjdel", "start", "elapse_limit", "node_require", "compress", "key", "job")
    assert all(any(shape in case for shape in (*known, "pjstat_error", "summary")) for case in CASES)


@pytest.mark.parametrize("case", cases("pjsub"))
def test_submissions(case: dict[str, Any]) -> None:
    call = case["pjsub"]

    answer = read_pjsub(None if call.get("timed_out") else call["rc"], call.get("stdout", ""), call.get("stderr", ""))

    assert answer.verdict.value == case["class"]
    for field in ("job", "step", "reason", "code", "field", "value", "limit"):
        if field in case:
            assert getattr(answer, field) == case[field]
    if "warnings" in case:
        assert len(answer.warnings) == case["warnings"]


@pytest.mark.parametrize("case", cases(*READERS))
def test_listings(case: dict[str, Any]) -> None:
    shape = next(shape for shape in READERS if shape in case)

    listing = READERS[shape](case[shape], NOW)

    assert len(listing.rows) == len(case["rows"])
    assert listing.dropped == case.get("dropped", 0)
    for row, expected in zip(listing.rows, case["rows"], strict=True):
        assert {field: shown(row, field) for field in expected} == expected


@pytest.mark.parametrize("case", cases("start", "elapse_limit", "node_require"))
def test_cells(case: dict[str, Any]) -> None:
    means = case["means"]
    if "start" in case:
        start = start_of(case["start"], NOW)
        found: Any = start and {
            "at": start.at.isoformat(),
            "predicted": start.is_predicted,
            "backfilled": start.is_backfilled,
        }
    elif "elapse_limit" in case:
        found = seconds_of(case["elapse_limit"])
    else:
        nodes = nodes_of(case["node_require"])
        found = nodes and {"nodes": nodes.count, "shape": nodes.shape and list(nodes.shape)}
    assert found == means


@pytest.mark.parametrize("case", cases("pjstat_error"))
def test_ids_that_pjstat_refuses(case: dict[str, Any]) -> None:
    assert bad_ids(case["pjstat_error"]) == case["bad_ids"]


@pytest.mark.parametrize("case", cases("pjdel"))
def test_deletions(case: dict[str, Any]) -> None:
    deleted = read_pjdel(case["pjdel"])
    assert [str(one) for one in deleted.accepted] == case["accepted"]
    assert [str(one) for one in deleted.gone] == case["gone"]


@pytest.mark.parametrize("case", cases("compress"))
def test_arguments_that_name_ids(case: dict[str, Any]) -> None:
    ids = [JobId.parse(text) for text in case["compress"]]
    assert None not in ids
    args = compressed(one for one in ids if one is not None)
    assert args == case["args"]
    assert [str(one) for arg in args for one in expanded(arg)] == case["compress"]


@pytest.mark.parametrize("case", cases("key"))
def test_names_of_jobs(case: dict[str, Any]) -> None:
    name = job_name(case["key"])
    assert re.fullmatch(case["name_is"]["matches"], name)
    if "unlike_key" in case["name_is"]:
        assert name != job_name(case["name_is"]["unlike_key"])


@pytest.mark.parametrize("case", cases("argv_has"))
def test_arguments_of_pjsub(case: dict[str, Any]) -> None:
    queue = PjmQueue(elapse_s=60, gfscache=tuple(case["job"]["gfscache"]))
    argv = request_of(TaskMessage("run", "t", 1, 0, "q", {}), checked_queue("q", queue)).arguments()
    wanted = case["argv_has"]
    assert any(argv[at : at + len(wanted)] == wanted for at in range(len(argv)))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in GATE_CASES if "limits" in case])
def test_limits(case: dict[str, Any]) -> None:
    capacity = read_limits(case["limits"]).capacity(case["rscunit"], case["group"])

    rooms = {"normal": capacity.jobs, "bulk_calls": capacity.bulk_calls, "bulk_subjobs": capacity.bulk_subjobs}
    found = {key: "unknown" if room is None else room.free() for key, room in rooms.items()}
    assert found == {key: inf if value == "inf" else value for key, value in case["free"].items()}
    assert bool(capacity.problem) == ("unknown" in found.values())


# --- what the facts say and no case shows


def test_a_pjsub_that_was_killed_may_have_submitted() -> None:
    for rc in (-9, 255):
        assert read_pjsub(rc, "", "").verdict is Verdict.AMBIGUOUS
    assert read_pjsub(-9, "[INFO] PJM 0000 pjsub Job 12 submitted.\n", "").job == "12"


def test_a_success_may_be_spelled_otherwise_and_come_with_warnings() -> None:
    warning = "warn: specification of core retention is invalid because job size is too large.\n"
    answer = read_pjsub(0, f"{warning}[INFO.] PJM 0000 pjsub Job 64856_0 submitted.\n", "")
    assert (answer.verdict, answer.job, answer.step, len(answer.warnings)) == (Verdict.SUBMITTED, "64856", 0, 1)


def test_words_in_a_path_are_no_answer() -> None:
    """R5: a script called `PJM 0072` must not make the queue full."""
    stderr = "[ERR.] PJM 0020 pjsub Cannot open the file (PJM 0072 pjsub Job exceeded the accept limit) : 2.\n"
    assert read_pjsub(1, "", stderr).verdict is Verdict.CONFIG


def test_an_error_with_exit_code_0_is_an_error() -> None:
    assert read_pjsub(0, "[ERR.] PJM 0007 pjsub Staging option error (3).\n", "").verdict is Verdict.CONFIG


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("group is not active (ACC->QUE)", Verdict.CONFIG),
        ("Node is too few (ACC->QUE)", Verdict.RESTRICTED),
        ("Computing resources shortage occurred.[user] (ACC->QUE)", Verdict.BUDGET),
        ("something new (ACC->QUE)", Verdict.UNKNOWN_REJECT),
    ],
)
def test_reasons_of_the_gate(text: str, verdict: Verdict) -> None:
    assert read_pjsub(1, "", f"[ERR.] PJM 0079 pjsub {text}\n").verdict is verdict


def test_bulk_that_is_switched_off_and_a_full_queue_on_stdout() -> None:
    assert (
        read_pjsub(1, "", "[ERR.] PJM 0070 pjsub No execute permission: pjsub-bulk.\n").verdict is Verdict.BULK_DENIED
    )
    full = read_pjsub(1, "[ERR.] PJM 0072 pjsub Job exceeded the accept limit.\n", "")
    assert full.verdict is Verdict.QUEUE_FULL


HEADER = "JOB_ID     ST  REASON                         \n"


def test_an_id_that_is_too_long_for_its_column_pushes_its_row() -> None:
    text = HEADER + "43607196[10] RUN WAIT SCHED                     \n"
    (row,) = read_table(text, NOW).rows
    assert (row.id, row.st, row.reason) == (JobId("43607196", 10), "RUN", "WAIT SCHED")


def test_an_id_that_was_cut_is_no_id() -> None:
    assert read_table(HEADER + "43607196[10RUN -                              \n", NOW) == Listing([], 1)
    assert read_table(HEADER + "43607196[1 RUN -                              \n", NOW) == Listing([], 1)


def test_a_row_that_was_cut_off_is_dropped_and_counted() -> None:
    assert read_csv("H,JOB_ID,ST,PC\n,12,EXT,0\n,13,EX", NOW).dropped == 1
    assert read_table(HEADER + "12 \n", NOW).dropped == 1


def test_a_comma_in_the_last_column_belongs_to_it() -> None:
    (row,) = read_csv("H,JOB_ID,ST,REASON\n,12,HLD,user :stop, please\n", NOW).rows
    assert row.reason == "user :stop, please"


def test_the_format_of_another_site_is_refused() -> None:
    wisteria = "scheduled stop\n\nJOB_ID JOB_NAME STATUS PROJECT\n1334861 STDIN END gr58\n"
    for text in (wisteria, "No unfinished job found.\n"):
        with pytest.raises(BackendError, match="not Fugaku's format"):
            read_table(text, NOW)
    with pytest.raises(BackendError, match="not Fugaku's format"):
        read_csv("pjstat: command moved\n", NOW)


def test_records_have_dates_with_a_year() -> None:
    text = """
 JOB ID                      : 390031
 JOB NAME                    : y0.140
 STATE                       : RUN
 NODE NUM (REQUIRE)          : 2:noncont
 ELAPSE TIME (LIMIT)         : 02:00:00 (7200)
 ELAPSE TIME (USE)           : 01:50:05 (6605)
 JOB START DATE              : 2016/07/29 21:11:29<
 ACCEPT DATE                 : 2016/07/29 20:55:56
 RESOURCE GROUP              : fx-small
"""
    (row,) = read_records(text, NOW).rows
    assert (row.id.job, row.st, row.limit_s, row.elapse_s, row.rscgrp) == ("390031", "RUN", 7200, 6605, "fx-small")
    assert row.start is not None
    assert (row.start.at, row.start.is_backfilled) == (datetime(2016, 7, 29, 21, 11, 29), True)
    assert row.nodes is not None
    assert (row.nodes.count, row.nodes.shape) == (2, None)


def test_the_summary_is_read_by_the_words_of_its_header() -> None:
    text = "   ACCEPT QUEUED RUNING   TOTAL\n        0      3      2       5\n s      0      9      9      18\n"
    assert read_summary(text) == {"ACCEPT": 0, "QUEUED": 3, "RUNING": 2, "TOTAL": 5}
    assert read_summary("nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "now", "at"),
    [
        ("12/31 23:59:58", datetime(2027, 1, 1, 0, 0, 5), datetime(2026, 12, 31, 23, 59, 58)),
        ("01/01 00:00:01", datetime(2026, 12, 31, 23, 59, 59), datetime(2027, 1, 1, 0, 0, 1)),
        ("(01/02 08:00)", datetime(2026, 12, 31, 12), datetime(2027, 1, 2, 8)),
        ("(12/31 11:00)", datetime(2026, 12, 31, 12), datetime(2026, 12, 31, 11)),
        ("02/29 10:00:00", datetime(2026, 3, 1), datetime(2024, 2, 29, 10)),
        ("2016/07/29 20:55:56", datetime(2026, 3, 1), datetime(2016, 7, 29, 20, 55, 56)),
    ],
)
def test_the_year_of_a_date(text: str, now: datetime, at: datetime) -> None:
    start = start_of(text, now)
    assert start is not None
    assert start.at == at


@pytest.mark.parametrize("text", ["13/45 10:00:00", "yesterday", "(", "04/12", "99/99 99:99:99"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert start_of(text, NOW) is None


def test_limits_of_several_units_and_groups_are_kept_apart() -> None:
    text = """
      RSCUNIT: u1
      USER: me
       LIMIT-NAME   LIMIT  ALLOC
       ru-accept      100     40   #1
      GROUP: g1
       ru-accept      unlimited 7
       ru-accept-bulksubjob  2000  500
      GROUP: g2
       ru-accept      5  5
      RSCUNIT: u2
      USER: me
       ru-accept      1  1
    """
    limits = read_limits(text)
    assert limits.units() == ["u1", "u2"]
    free = limits.capacity("u1", "g1")
    assert free.jobs is not None
    assert free.jobs.free() == 60
    assert free.bulk_subjobs is not None
    assert free.bulk_subjobs.free() == 1500
    assert "unit None" in limits.capacity(None, "g1").problem
    assert limits.capacity("u1", "g3").jobs is None
    assert read_limits("").capacity("u1", None).jobs is None


# --- settings


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (PjmQueue(rscgrp="small;rm -rf"), "rscgrp"),
        (PjmQueue(node="many"), "node"),
        (PjmQueue(gfscache=("/vol0004,/vol0005",)), "gfscache"),
        (PjmQueue(mpi=(("proc", "4 4"),)), "mpi.proc"),
        (PjmQueue(rsc=(("elapse", "1:00"),)), "setting of its own"),
        (PjmQueue(mode="burst"), "single, bulk, auto"),
    ],
)
def test_settings_that_pjsub_would_take_apart_otherwise_are_refused(queue: PjmQueue, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked_queue("q", queue)


def test_resources_become_arguments() -> None:
    queue = PjmQueue(
        rscgrp="small", group="hp1", node="2x3x2:torus", mpi=(("proc", "48"),), llio=(("sharedtmp-size", "1Gi"),)
    )
    message = TaskMessage("run", "t", 1, 0, "q", {}, resources={"runtime": 90.5, "extra": {"freq": 2000}})

    argv = request_of(message, checked_queue("q", queue)).arguments()

    assert argv == [
        *("-L", "node=2x3x2:torus,elapse=0:01:31,rscgrp=small,freq=2000"),
        *("-g", "hp1", "--mpi", "proc=48", "--llio", "sharedtmp-size=1Gi", "--norestart"),
    ]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (None, "needs an elapse limit"),
        ({"runtime": 60, "extra": {"node": "9"}}, "settings of their own"),
        ({"runtime": 60, "extra": {"freq": "2 000"}}, "no value of pjsub -L"),
        ({"runtime": 60, "extra": {"pack": 0}}, "pack"),
    ],
)
def test_resources_that_cannot_be_passed_on_are_named(resources: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        request_of(TaskMessage("run", "t", 1, 0, "q", {}, resources=resources), PjmQueue())


# --- whatever comes

ids = st.builds(JobId, st.integers(1, 99_999_999).map(str), st.none() | st.integers(0, 999_999), st.none())


@given(st.lists(ids, max_size=40))
def test_compressed_ids_expand_to_themselves(some: list[JobId]) -> None:
    args = compressed(some)
    back = [one for arg in args for one in expanded(arg)]
    assert sorted(map(str, set(some))) == sorted(map(str, back))
    assert len(back) == len(set(back))


@given(st.text())
def test_any_key_has_a_legal_name(key: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,62}", job_name(key))


@given(
    st.text()
    | st.lists(st.sampled_from([*"H,-[]():\n 0123/<", "JOB_ID", " ST ", "RUN", "[ERR.] PJM 0072 pjsub x"])).map("".join)
)
def test_no_text_breaks_a_reader(text: str) -> None:
    for reader in (read_table, read_csv):
        try:
            listing = reader(text, NOW)
        except BackendError:
            continue
        assert all(row.id.job.isdigit() for row in listing.rows)
    read_records(text, NOW)
    read_summary(text)
    read_limits(text)
    bad_ids(text)
    read_pjdel(text)
    assert read_pjsub(1, text, text).verdict in Verdict
