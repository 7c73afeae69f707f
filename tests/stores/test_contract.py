"""What every store promises (dagkit.stores.base), whatever is behind it."""

from __future__ import annotations

import hashlib
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagkit.errors import BackendError, LeaseLost, StateConflict, UnknownRun, WorkflowExists
from dagkit.model.records import Counts
from dagkit.model.states import RunStatus

# --- runs


def test_a_created_run_loads_as_it_was_stored(store, make):
    etag = store.create("wf1", make.definition(), make.state())

    run = store.load("wf1")

    assert (run.definition, run.state, run.etag) == (make.definition(), make.state(), etag)
    assert list(run.definition) == list(make.definition())
    assert list(run.definition["tasks"]) == ["t0", "t1"]
    assert store.load_definition("wf1") == make.definition()


def test_an_id_that_is_taken_is_refused_and_the_first_run_stays(store, make):
    store.create("wf1", make.definition(name="first"), make.state())

    with pytest.raises(WorkflowExists):
        store.create("wf1", make.definition(name="second"), make.state())

    assert store.load_definition("wf1")["name"] == "first"


@pytest.mark.parametrize(
    "call",
    [
        lambda store, make: store.load("nope"),
        lambda store, make: store.load_definition("nope"),
        lambda store, make: store.save("nope", make.changes({}), "1.1"),
        lambda store, make: store.replace("nope", make.definition(), make.state(), "1.1"),
        lambda store, make: store.row("nope"),
        lambda store, make: store.task_entries("nope"),
        lambda store, make: store.request_cancel("nope"),
        lambda store, make: store.clear_cancel("nope"),
    ],
)
def test_an_unknown_run_is_one_clear_error(store, make, call):
    with pytest.raises(UnknownRun, match="no run 'nope'"):
        call(store, make)


def test_a_save_writes_what_changed_and_leaves_the_rest(store, make):
    before = {"t0": {"state": "ready"}, "t1": {"state": "ready"}}
    etag = store.create("wf1", make.definition(tasks=3), make.state(tasks=before))
    done = {"state": "completed", "output_ref": '{"x": 1}', "attempt_no": 1, "completed_at": 1.5}

    saved = store.save("wf1", make.changes({"t0": done, "t2": {"state": "running"}}, before=before), etag)

    run = store.load("wf1")
    assert run.state["tasks"] == {"t0": done, "t1": {"state": "ready"}, "t2": {"state": "running"}}
    assert run.state["workflow_state"] == "running"
    assert run.etag == saved != etag


def test_a_task_that_goes_back_to_its_defaults_is_left_out(store, make):
    etag = store.create("wf1", make.definition(), make.state(tasks={"t0": {"state": "failed"}}))

    store.save("wf1", make.changes({"t0": {}}), etag)

    assert store.load("wf1").state["tasks"] == {}
    assert store.task_entries("wf1", ["t0"]) == {}


def test_a_save_with_an_old_etag_changes_nothing(store, make):
    first = store.create("wf1", make.definition(), make.state())
    second = store.save("wf1", make.changes({"t0": {"state": "running"}}), first)

    with pytest.raises(StateConflict):
        store.save("wf1", make.changes({"t0": {"state": "failed"}}, status="failed"), first)

    assert store.load("wf1").state["tasks"]["t0"] == {"state": "running"}
    assert store.row("wf1").status == RunStatus.RUNNING
    store.save("wf1", make.changes({}), second)


def test_the_etag_of_a_deleted_run_fits_no_later_run_of_that_id(store, make):
    old = store.create("wf1", make.definition(), make.state())
    store.delete("wf1")
    store.create("wf1", make.definition(), make.state())

    with pytest.raises(StateConflict):
        store.save("wf1", make.changes({"t0": {"state": "failed"}}), old)


def test_what_is_stored_does_not_follow_the_callers_objects(store, make):
    document, entry = make.definition(), {"state": "running"}
    etag = store.create("wf1", document, make.state())
    store.save("wf1", make.changes({"t0": entry}), etag)

    document["name"], entry["state"] = "changed", "changed"
    store.load("wf1").state["tasks"]["t0"]["state"] = "changed"

    assert store.load_definition("wf1")["name"] == "demo"
    assert store.load("wf1").state["tasks"]["t0"] == {"state": "running"}


def test_replace_exchanges_definition_and_state(store, make):
    etag = store.create("wf1", make.definition(tasks=3), make.state(tasks={"t2": {"state": "failed"}}))
    assert store.load_definition("wf1")["name"] == "demo"

    replaced = store.replace(
        "wf1", make.definition(name="again", tasks=1), make.state(tasks={"t0": {"state": "ready"}}), etag
    )

    run = store.load("wf1")
    assert (run.definition["name"], run.state["tasks"], run.etag) == ("again", {"t0": {"state": "ready"}}, replaced)
    assert (store.row("wf1").name, store.row("wf1").counts) == ("again", Counts(ready=1))
    assert store.load_definition("wf1")["name"] == "again"
    with pytest.raises(StateConflict):
        store.replace("wf1", make.definition(), make.state(), etag)


def test_delete_removes_the_run_and_everything_below_it(store, make):
    store.create("wf1", make.definition(), make.state())
    store.create("wf2", make.definition("wf2"), make.state("wf2"))
    refs = [store.put_output(run, "t0.json", b"1") for run in ("wf1", "wf2")]
    store.append_log("wf1", "t0", "0.1", 0, b"log")
    store.remember([("f1", refs[0]), ("f2", refs[1])])

    assert store.delete("wf1") is True
    assert store.delete("wf1") is False

    with pytest.raises(UnknownRun):
        store.load("wf1")
    with pytest.raises(BackendError, match=r"blob:wf1/t0\.json"):
        store.get_output(refs[0])
    assert store.read_log("wf1", "t0", "0.1") == b""
    assert store.cached(["f1", "f2"]) == {"f2": refs[1]}
    assert (store.get_output(refs[1]), store.load("wf2").definition["workflow_id"]) == (b"1", "wf2")


def test_a_run_can_be_created_again_after_its_deletion(store, make):
    store.create("wf1", make.definition(), make.state(tasks={"t1": {"state": "failed"}}))
    store.append_log("wf1", "t0", "0.1", 0, b"old")
    store.delete("wf1")

    store.create("wf1", make.definition(), make.state())

    assert store.load("wf1").state == make.state()
    store.append_log("wf1", "t0", "0.1", 0, b"n")
    assert store.read_log("wf1", "t0", "0.1") == b"n"


names = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=30)
texts = st.text(max_size=40)
entries = st.fixed_dictionaries(
    {"state": st.sampled_from(["running", "completed", "failed"])},
    optional={
        "error": texts,
        "output_ref": texts,
        "attempt_no": st.integers(1, 9),
        "usage": st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False)),
    },
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(saves=st.lists(st.dictionaries(names, entries, max_size=5), min_size=1, max_size=4))
def test_any_names_and_texts_come_back_as_they_were_saved(store, make, saves):
    store.delete("wf1")
    etag = store.create("wf1", make.definition(), make.state(tasks={}))
    expected = {}

    for saved in saves:
        change = make.changes({}, before=dict(expected))
        change.tasks.extend((index, name, entry) for index, (name, entry) in enumerate(saved.items()))
        etag = store.save("wf1", change, etag)
        expected.update(saved)

    assert store.load("wf1").state["tasks"] == expected
    assert store.task_entries("wf1", expected) == expected


# --- the index


def test_the_row_says_what_the_run_is(store, make, clock):
    store.create(
        "wf1",
        make.definition(tasks=3),
        make.state(tasks={"t0": {"state": "ready"}, "t1": {"state": "ready_pending_budget"}}),
    )

    row = store.row("wf1")

    assert (row.workflow_id, row.name, row.status, row.default_queue) == ("wf1", "demo", RunStatus.PENDING, "cpu")
    assert row.counts == Counts(ready=2, pending=1)
    assert row.queues_used == ("cpu", "gpu")
    assert (row.cancel_requested, row.error, row.driven_by) == (False, "", None)
    assert row.created_at == row.updated_at == pytest.approx(clock.time, abs=5)


def test_a_save_refreshes_the_row(store, make, clock):
    etag = store.create("wf1", make.definition(), make.state())
    clock.advance(10)

    store.save("wf1", make.changes({}, status="failed", counts=Counts(failed=1, skipped=1), error="t0 failed"), etag)

    row = store.row("wf1")
    assert (row.status, row.counts, row.error) == (RunStatus.FAILED, Counts(failed=1, skipped=1), "t0 failed")
    assert row.updated_at - row.created_at == pytest.approx(10, abs=5)


def test_merge_nodes_are_neither_counted_nor_give_a_queue(store, make):
    document = make.definition()
    document["tasks"]["__merge_t1_0"] = {"parents": ["t0"], "queue": "nowhere", "kwargs": {}}
    store.create("wf1", document, make.state())

    assert store.row("wf1").counts.total == 2
    assert store.row("wf1").queues_used == ("cpu", "gpu")


def test_an_unknown_status_is_shown_as_such(store, make):
    store.create("wf1", make.definition(), make.state(status="paused"))

    assert store.row("wf1").status == "paused"


def test_rows_come_latest_first_and_can_be_chosen(store, make, clock):
    etags = {}
    for number in range(4):
        clock.advance(1)
        etags[number] = store.create(f"wf{number}", make.definition(f"wf{number}"), make.state(f"wf{number}"))
    clock.advance(1)
    store.save("wf1", make.changes({}, status="completed"), etags[1])

    assert [row.workflow_id for row in store.rows()] == ["wf1", "wf3", "wf2", "wf0"]
    assert [row.workflow_id for row in store.rows(limit=2)] == ["wf1", "wf3"]
    assert [row.workflow_id for row in store.rows(status=[RunStatus.COMPLETED, RunStatus.FAILED])] == ["wf1"]
    assert [row.workflow_id for row in store.rows(status={RunStatus.PENDING}, limit=1)] == ["wf3"]
    assert store.rows(status=[]) == store.rows(limit=0) == []


def test_task_entries_gives_those_asked_for(store, make):
    store.create(
        "wf1", make.definition(tasks=3), make.state(tasks={"t0": {"state": "ready"}, "t2": {"state": "ready"}})
    )

    assert store.task_entries("wf1") == {"t0": {"state": "ready"}, "t2": {"state": "ready"}}
    assert store.task_entries("wf1", iter(["t2", "t1", "nope"])) == {"t2": {"state": "ready"}}
    assert store.task_entries("wf1", []) == {}


def test_the_driver_is_the_runs_own_coordinator_or_else_the_service(store, make):
    etag = store.create("wf1", make.definition(), make.state())
    service = store.acquire_lease("coordinator", "service (host-a)", 60)
    assert store.row("wf1").driven_by == "service (host-a)"

    own = store.acquire_lease("run/wf1", "notebook (host-b)", 60)
    assert store.row("wf1").driven_by == store.rows()[0].driven_by == "notebook (host-b)"

    store.release_lease(own)
    store.save("wf1", make.changes({}, status="completed"), etag)
    assert store.row("wf1").driven_by is None
    store.release_lease(service)


# --- control


def test_a_cancel_request_is_seen_and_survives_saves_until_it_is_withdrawn(store, make):
    etag = store.create("wf1", make.definition(), make.state())
    store.create("wf2", make.definition("wf2"), make.state("wf2"))

    store.request_cancel("wf1")
    store.request_cancel("wf1")
    etag = store.save("wf1", make.changes({"t0": {"state": "running"}}), etag)

    assert store.cancel_requested(["wf1", "wf2", "nope"]) == {"wf1"}
    assert store.row("wf1").cancel_requested is True
    assert store.load("wf1").state["cancel_requested"] is True
    store.clear_cancel("wf1")
    assert store.cancel_requested(["wf1"]) == set()
    assert store.load("wf1").state["cancel_requested"] is False


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_that_is_over_is_not_cancelled(store, make, status):
    store.create("wf1", make.definition(), make.state(status=status))

    store.request_cancel("wf1")

    assert store.cancel_requested(["wf1"]) == set()


# --- outputs, payloads, logs


def test_an_output_comes_back_by_its_ref_and_is_replaced_by_the_next_attempt(store):
    ref = store.put_output("wf1", "train.json", b"first")
    assert ref == store.put_output("wf1", "train.json", b"second") == "blob:wf1/train.json"

    assert store.get_output(ref) == b"second"


@pytest.mark.parametrize(
    "name", ["a/b", "../../up", "..", ".hidden", "ä ö/ü", "x" * 700, "a\\b:c*?", "CON", "-rf", "%2F"]
)
def test_outputs_and_logs_of_any_task_name_are_kept_apart(store, name):
    others = ["a", "a%2Fb", "a_b", "x" * 699]
    refs = {task: store.put_output("wf1", f"{task}.json", task.encode()) for task in [name, *others]}
    for task in [name, *others]:
        store.append_log("wf1", task, "0.1", 0, task.encode())

    assert refs[name] == f"blob:wf1/{name}.json"
    assert {task: store.get_output(ref).decode() for task, ref in refs.items()} == {task: task for task in refs}
    assert all(store.read_log("wf1", task, "0.1") == task.encode() for task in refs)


@pytest.mark.parametrize("ref", ["blob:wf1/none.json", "blob:", "blob:wf1", "wf1/a.json", "", "blob:/a"])
def test_a_missing_output_is_an_error_that_names_the_ref(store, ref):
    with pytest.raises(BackendError) as caught:
        store.get_output(ref)

    assert ref in str(caught.value)


def test_payloads_are_addressed_by_their_bytes(store):
    data = bytes(range(256)) * 100

    digest = store.put_payload(data)

    assert digest == store.put_payload(bytearray(data)) == "sha256:" + hashlib.sha256(data).hexdigest()
    assert store.get_payload(digest) == data


@pytest.mark.parametrize("digest", ["sha256:" + "0" * 64, "sha256:../../etc/passwd", "md5:00", ""])
def test_a_payload_that_is_not_there_is_a_clear_error(store, digest):
    with pytest.raises(BackendError):
        store.get_payload(digest)


def test_log_bytes_are_written_at_offsets_and_repeating_changes_nothing(store):
    for _ in range(2):
        store.append_log("wf1", "train", "0.1", 0, b"hello ")
        store.append_log("wf1", "train", "0.1", 6, b"world")
    store.append_log("wf1", "train", "0.2", 0, b"second")

    assert store.read_log("wf1", "train", "0.1") == b"hello world"
    assert store.read_log("wf1", "train", "0.2") == b"second"


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 2, b"34"),
        (10, None, b""),
        (99, 5, b""),
        (-3, None, b"789"),
        (-3, 2, b"78"),
        (-99, None, b"0123456789"),  # more than there is: all
        (0, 0, b""),
    ],
)
def test_part_of_a_log_can_be_read(store, offset, limit, expected):
    store.append_log("wf1", "train", "0.1", 0, b"0123456789")

    assert store.read_log("wf1", "train", "0.1", offset, limit) == expected


def test_there_is_no_log_before_there_is_one(store):
    assert store.read_log("wf1", "train", "0.1") == b""
    assert store.read_log("wf1", "train", "0.1", -100) == b""


def test_what_is_written_to_the_log_path_is_read_as_the_log(store):
    path = store.log_path("wf1", "a/b", "0.1")
    if path is None:  # it has no files that a worker could write to: then the log is sent
        store.append_log("wf1", "a/b", "0.1", 0, b"text")
    else:
        path.write_bytes(b"text")

    assert store.read_log("wf1", "a/b", "0.1") == b"text"


# --- cache


def test_results_are_remembered_by_fingerprint(store):
    store.remember([("f1", '{"x": 1}'), ("f2", "2")])
    store.remember([("f2", "22")])
    store.remember([])

    assert store.cached(["f1", "f2", "f3"]) == {"f1": '{"x": 1}', "f2": "22"}
    assert store.cached([]) == {}


def test_a_result_whose_output_is_gone_is_not_offered(store):
    store.remember([("f1", "blob:wf1/gone.json"), ("f2", store.put_output("wf1", "kept.json", b"1"))])

    assert store.cached(["f1", "f2"]) == {"f2": "blob:wf1/kept.json"}


# --- leases


def test_a_lease_has_one_owner_until_it_is_released(store):
    lease = store.acquire_lease("run/wf1", "a", 60)

    assert lease.owner == "a"
    assert store.acquire_lease("run/wf1", "b", 60) is None
    assert store.acquire_lease("run/wf1", "a", 60) is None  # owners are words for people; only the token counts
    assert store.lease("run/wf1").owner == "a"
    store.release_lease(lease)
    assert store.lease("run/wf1") is None
    assert store.acquire_lease("run/wf1", "b", 60).owner == "b"


def test_an_expired_lease_is_taken_over_and_the_old_owner_is_told(store, clock):
    old = store.acquire_lease("run/wf1", "a", 15)
    clock.advance(15.5)
    assert store.lease("run/wf1") is None

    new = store.acquire_lease("run/wf1", "b", 15)

    with pytest.raises(LeaseLost, match="b has taken it over"):
        store.renew_lease(old, 15)
    store.release_lease(old)
    assert store.lease("run/wf1").token == new.token != old.token


def test_a_renewed_lease_lasts_longer(store, clock):
    lease = store.acquire_lease("run/wf1", "a", 15)
    for _ in range(3):
        clock.advance(10)
        lease = store.renew_lease(lease, 15)

    assert store.acquire_lease("run/wf1", "b", 15) is None
    assert store.lease("run/wf1").expires_at == pytest.approx(store.now() + 15, abs=2)


def test_a_late_renewal_that_nobody_forestalled_is_fine(store, clock):
    lease = store.acquire_lease("run/wf1", "a", 15)
    clock.advance(20)

    renewed = store.renew_lease(lease, 15)

    assert renewed.token == lease.token
    assert store.acquire_lease("run/wf1", "b", 15) is None


def test_renewing_for_a_shorter_time_does_not_shorten(store):
    lease = store.acquire_lease("run/wf1", "a", 60)

    renewed = store.renew_lease(lease, 15)

    assert renewed.expires_at >= lease.expires_at - 0.5


def test_a_clock_that_is_set_back_makes_no_second_owner_and_no_lease_without_end(store, clock):
    lease = store.acquire_lease("run/wf1", "a", 15)
    clock.advance(-3600)

    assert store.acquire_lease("run/wf1", "b", 15) is None
    clock.advance(10)
    lease = store.renew_lease(lease, 15)
    clock.advance(10)
    assert store.acquire_lease("run/wf1", "b", 15) is None
    clock.advance(6)  # 16 s after the last renewal: nobody is there any more
    assert store.acquire_lease("run/wf1", "b", 15) is not None
    with pytest.raises(LeaseLost):
        store.renew_lease(lease, 15)


def test_a_clock_that_is_set_forward_takes_the_lease_from_an_owner_who_is_told(store, clock):
    lease = store.acquire_lease("run/wf1", "a", 15)
    clock.advance(3600)

    assert store.acquire_lease("run/wf1", "b", 15) is not None
    with pytest.raises(LeaseLost):
        store.renew_lease(lease, 15)


def test_a_broken_lease_is_free_and_its_owner_is_told(store):
    lease = store.acquire_lease("coordinator", "a", 60)

    store.break_lease("coordinator")
    store.break_lease("coordinator")

    with pytest.raises(LeaseLost, match="released or broken"):
        store.renew_lease(lease, 60)
    assert store.acquire_lease("coordinator", "b", 60) is not None


def test_leases_are_listed_by_prefix(store, clock):
    store.acquire_lease("run/gone", "x", 1)
    clock.advance(2)
    for name in ("run/b", "coordinator", "run/a", "run_c"):
        store.acquire_lease(name, "x", 60)

    assert [lease.name for lease in store.leases()] == ["coordinator", "run/a", "run/b", "run_c"]
    assert [lease.name for lease in store.leases("run/")] == ["run/a", "run/b"]
    assert store.lease("run/") is None


def test_only_one_of_many_threads_gets_the_lease(store):
    got, barrier = [], threading.Barrier(8)

    def contend(number):
        barrier.wait(10)
        if lease := store.acquire_lease("run/wf1", f"owner {number}", 60):
            got.append(lease)

    run_all(contend, 8)

    assert len(got) == 1
    assert store.lease("run/wf1").owner == got[0].owner


def test_of_many_writers_with_one_etag_exactly_one_wins(store, make):
    etag = store.create("wf1", make.definition(), make.state())
    won, lost, barrier = [], [], threading.Barrier(8)

    def write(number):
        barrier.wait(10)
        try:
            store.save("wf1", make.changes({"t0": {"state": "running", "attempt_no": number + 1}}), etag)
            won.append(number)
        except StateConflict:
            lost.append(number)

    run_all(write, 8)

    assert (len(won), len(lost)) == (1, 7)
    assert store.load("wf1").state["tasks"]["t0"]["attempt_no"] == won[0] + 1


def test_a_reader_never_sees_half_a_save(store, make):
    """Every save sets all tasks and the head to one number; no load may show two."""
    etag = store.create("wf1", make.definition(tasks=20), make.state(tasks={}, error="0"))
    seen, over = [], threading.Event()

    def read():
        while not over.is_set():
            loaded = store.load("wf1").state
            seen.append({loaded["error"], *(str(entry["attempt_no"]) for entry in loaded["tasks"].values())})

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        entry = {"state": "running", "attempt_no": number}
        etag = store.save("wf1", make.changes({f"t{i}": entry for i in range(20)}, error=str(number)), etag)
    over.set()
    reader.join(10)

    assert seen
    assert all(len(one) == 1 for one in seen)


def run_all(target, count):
    threads = [threading.Thread(target=target, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


# --- the rest


def test_check_answers_in_the_three_words(store):
    findings = store.check()

    assert findings
    assert {status for _, status, _ in findings} <= {"pass", "warn", "fail"}
    assert all(name and message for name, _, message in findings)


def test_close_may_be_called_twice(store, make):
    store.create("wf1", make.definition(), make.state())

    store.close()
    store.close()


def test_a_run_that_was_stored_whole_is_no_leftover(store, make):
    store.create("wf1", make.definition(), make.state())

    assert store.leftovers(-3600) == []
