"""The Azure store when things go wrong: replies that are lost, writers that fight, submits that died half way."""

from __future__ import annotations

import json
import threading
import time

import pytest
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient

from dagkit.azure.account import parse_connection_string
from dagkit.azure.place import Place
from dagkit.errors import BackendError, CorruptState, LeaseLost, NewerFormat, StateConflict, UnknownRun, WorkflowExists
from dagkit.model.records import Counts
from dagkit.runtime.storage import Storage
from dagkit.stores import documents, open_store
from dagkit.stores.azure import AzureStore
from services.faulty_proxy import Fault, faulty

pytestmark = pytest.mark.xdist_group("azurite")


@pytest.fixture
def store(azurite_account):
    opened = open_store(f"azure://{azurite_account.name}/Proj")
    yield opened
    opened.close()


@pytest.fixture
def blobs(azurite_account):
    """The service seen by its own SDK."""
    with BlobServiceClient.from_connection_string(azurite_account.connection_string) as client:
        yield client


@pytest.fixture
def rows(azurite_account):
    """The index table seen by its own SDK."""
    with TableServiceClient.from_connection_string(azurite_account.connection_string) as client:
        yield client.get_table_client("ProjWorkflowsIndex")


@pytest.fixture
def proxied(azurite_account, monkeypatch):
    """A store behind proxies, and the proxies for blobs and tables."""
    with faulty(azurite_account) as (account, (blob, _, table)):
        monkeypatch.setenv("JOBQ_CONNECTION_STRING", account.connection_string)
        opened = open_store(f"azure://{account.name}/Proj")
        yield opened, blob, table
        opened.close()


# --- lost replies


def test_a_save_whose_reply_was_lost_is_recognised_as_our_own(proxied, make):
    store, blob, _ = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    blob.faults.append(Fault("lose_reply", "PUT", "w.state.bin"))

    etag = store.save("w", make.changes({"t0": {"state": "running"}}), etag)
    etag = store.save("w", make.changes({"t0": {"state": "completed"}}), etag)

    assert store.load("w").state["tasks"]["t0"]["state"] == "completed"
    assert store.load("w").etag == etag


def test_a_lost_reply_does_not_hide_another_writer(proxied, make, azurite_account, monkeypatch):
    store, blob, _ = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    monkeypatch.setenv("JOBQ_CONNECTION_STRING", azurite_account.connection_string)
    other = open_store(store.url)
    other.save("w", make.changes({"t0": {"state": "running"}}), etag)
    other.close()
    blob.faults.append(Fault("lose_reply", "PUT", "w.state.bin"))

    with pytest.raises(StateConflict):
        store.save("w", make.changes({"t0": {"state": "failed"}}), etag)

    assert store.load("w").state["tasks"]["t0"]["state"] == "running"


@pytest.mark.parametrize("path", ["w.def.bin", "w.state.bin"])
def test_a_submit_whose_reply_was_lost_has_worked(proxied, make, path):
    store, blob, _ = proxied
    store.create("first", make.definition("first"), make.state("first"))  # the container is there now
    blob.faults.append(Fault("lose_reply", "PUT", path))

    etag = store.create("w", make.definition("w"), make.state("w"))

    assert store.load("w").etag == etag


def test_a_lease_whose_reply_was_lost_is_ours(proxied):
    store, blob, _ = proxied
    store.put_payload(b"makes the container")
    blob.faults.append(Fault("lose_reply", "PUT", "leases/coordinator"))

    lease = store.acquire_lease("coordinator", "a", 60)

    assert lease is not None
    assert store.renew_lease(lease, 60).token == lease.token


def test_a_log_whose_reply_was_lost_has_nothing_twice(proxied):
    store, blob, _ = proxied
    store.append_log("w", "t", "0.1", 0, b"first ")
    blob.faults.append(Fault("lose_reply", "PUT", "appendblock"))

    store.append_log("w", "t", "0.1", 6, b"second")

    assert store.read_log("w", "t", "0.1") == b"first second"


# --- services that are ill


@pytest.mark.parametrize("kind", ["answer", "cut"])
def test_a_service_that_is_ill_for_a_moment_is_asked_again(proxied, make, kind):
    store, blob, table = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    blob.faults.append(Fault(kind, "PUT", "w.state.bin"))
    table.faults.append(Fault(kind, "PATCH", "Workflows"))

    store.save("w", make.changes({"t0": {"state": "running"}}), etag)

    assert store.load("w").state["tasks"]["t0"]["state"] == "running"
    assert store.row("w").status == "running"


def test_a_service_that_stays_ill_is_one_clear_error_in_bounded_time(proxied, make):
    store, blob, _ = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    blob.faults.append(Fault("answer", times=1_000))
    started = time.monotonic()

    with pytest.raises(BackendError, match=r"saving run w: storage account .* busy or ill \(503 ServerBusy\)"):
        store.save("w", make.changes({}), etag)

    assert time.monotonic() - started < 30


def test_the_last_word_on_a_run_reaches_the_index(proxied, make):
    store, _, table = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    table.faults.append(Fault("answer", "PATCH", status=400, code="InvalidInput"))

    store.save("w", make.changes({}, status="completed"), etag)

    assert store.row("w").status == "completed"


def test_an_index_that_cannot_be_written_does_not_fail_a_save(proxied, make, caplog):
    store, _, table = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    table.faults.append(Fault("answer", status=400, code="InvalidInput"))

    etag = store.save("w", make.changes({}, status="running"), etag)

    assert "index row is behind" in caplog.text
    assert store.row("w").status == "pending"
    store.save("w", make.changes({}, status="completed"), etag)
    assert store.row("w").status == "completed"


# --- submits that died


class Died(Exception):
    """Stands for the end of the process."""


def interrupted(store, make, after):
    """A submit that ends after so many of its writes."""
    definition = make.definition("w")
    store._state.put("w.def.bin", documents.pack(definition), "dying")
    if after > 1:
        store._state.put("w.state.bin", documents.pack(make.state("w")), "dying")


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_submit_is_completed_by_the_same_definition(store, make, after):
    interrupted(store, make, after)
    again = {**make.definition("w"), "created_at": "2030-01-01T00:00:00+00:00"}

    etag = store.create("w", again, make.state("w"))

    assert store.load("w").etag == etag
    assert store.row("w").status == "pending"
    assert store.save("w", make.changes({}), etag)
    with pytest.raises(WorkflowExists):
        store.create("w", again, make.state("w"))


@pytest.mark.parametrize("after", [1, 2])
def test_interrupted_submits_are_found_when_they_are_old_and_can_be_deleted(store, make, after):
    store.create("whole", make.definition("whole"), make.state("whole"))
    interrupted(store, make, after)

    assert store.leftovers(3600) == []
    assert store.leftovers(-10) == ["w"]
    store.delete("w")
    assert store.leftovers(-10) == []
    assert store.load("whole").definition["workflow_id"] == "whole"


@pytest.mark.parametrize("after", [1, 2])
def test_another_definition_does_not_take_the_place_of_an_interrupted_submit(store, make, after):
    interrupted(store, make, after)

    with pytest.raises(WorkflowExists, match="demo"):
        store.create("w", make.definition("w", name="other"), make.state("w"))

    store.delete("w")
    store.create("w", make.definition("w", name="other"), make.state("w"))
    assert store.load("w").definition["name"] == "other"


def test_a_replacement_that_died_before_its_state_changes_nothing(store, make):
    etag = store.create("w", make.definition("w"), make.state("w"))
    store._state.put("w.def.1.bin", documents.pack(make.definition("w", name="new")), "dying")

    assert store.load("w").definition["name"] == "demo"
    assert store.load_definition("w")["name"] == "demo"
    replaced = store.replace("w", make.definition("w", name="newer"), make.state("w"), etag)
    assert store.load("w").definition["name"] == store.load_definition("w")["name"] == "newer"
    store.save("w", make.changes({}), replaced)
    assert store.load("w").definition["name"] == "newer"


def test_a_definition_is_not_taken_from_an_earlier_run_of_that_id(store, make):
    other = open_store(store.url)
    store.create("w", make.definition("w", name="first"), make.state("w"))
    assert other.load_definition("w")["name"] == "first"
    store.delete("w")
    store.create("w", make.definition("w", name="second"), make.state("w"))

    assert other.load_definition("w")["name"] == other.load("w").definition["name"] == "second"
    other.close()


# --- the layout


def test_the_layout_is_that_of_ai4s_jobq(store, make, blobs, rows):
    etag = store.create("wf1", make.definition("wf1"), make.state("wf1"))
    store.save("wf1", make.changes({}, counts=Counts(completed=1, ready=1)), etag)
    store.put_output("wf1", "a/b.json", b"1")
    store.put_output("wf1", "workflow-files/t0/model.pt", b"weights")

    states = {blob.name for blob in blobs.get_container_client("proj-workflows").list_blobs()}
    assert states == {"wf1.def.bin", "wf1.state.bin"}
    assert [blob.name for blob in blobs.get_container_client("proj-outputs").list_blobs()] == ["wf1/a/b.json"]
    files = blobs.get_container_client("jobq-workflow-data").list_blobs()
    assert [blob.name for blob in files] == ["workflow-files/wf1/t0/model.pt"]
    row = rows.get_entity("wf-0e", "wf1")
    numbers = {name: row[f"{name}_tasks"] for name in ("total", "completed", "failed", "running", "pending", "skipped")}
    assert numbers == {"total": 2, "completed": 1, "failed": 0, "running": 0, "pending": 1, "skipped": 0}
    assert (row["name"], row["workflow_state"], row["cancel_requested"]) == ("demo", "running", False)
    assert (row["default_queue"], row["queues_used"], row["error"]) == ("cpu", "cpu,gpu", "")
    assert row["created_at"] <= row["updated_at"]
    data = blobs.get_blob_client("proj-workflows", "wf1.def.bin").download_blob().readall()
    assert data[:2] == b"\x1f\x8b"
    assert list(documents.unpack(data, "it"))[:7] == [
        *("v", "workflow_id", "name", "default_queue", "result_policy", "max_parallelism", "created_at")
    ]


FULL = {
    "state": "completed",
    "completed_parents": 0,
    "failed_parents": 0,
    "output_ref": '{"x": 1}',
    "error": None,
    "started_at": "2026-05-05T00:00:00+00:00",
    "completed_at": "2026-05-05T00:00:01+00:00",
    "attempt_no": 1,
}


def theirs(blobs, rows, make, *, together=False):
    """A run as ai4s-jobq stores it: every key, plain JSON or gzip, a row with other columns than ours."""
    definition = make.definition("w")
    state = {**make.head("w", "running"), "tasks": {"t0": FULL, "t1": {**FULL, "state": "ready", "output_ref": None}}}
    container = blobs.create_container("proj-workflows")
    if together:
        tasks = {name: {**definition["tasks"][name], **state["tasks"][name]} for name in definition["tasks"]}
        container.upload_blob("w.json", json.dumps({**definition, **state, "tasks": tasks}))
    else:
        container.upload_blob("w.def.bin", json.dumps(definition))
        container.upload_blob("w.state.bin", documents.pack(state))
    rows.create_table()
    counts = {f"{word}_tasks": number for word, number in Counts(completed=1, pending=1).grouped().items()}
    key = {"PartitionKey": "wf-07", "RowKey": "w", "name": "demo", "workflow_state": "running"}
    rows.create_entity({**key, **counts, "default_queue": "cpu", "queues_used": "cpu,gpu", "error": ""})
    return definition, state


def test_a_run_that_ai4s_jobq_stored_is_read_and_goes_on(store, make, blobs, rows):
    definition, state = theirs(blobs, rows, make)

    run = store.load("w")
    assert (run.definition, run.state) == (definition, state)
    assert store.load_definition("w") == definition
    assert store.row("w").counts == Counts(completed=1, pending=1)
    store.request_cancel("w")
    store.save("w", make.changes({"t1": {"state": "completed"}}, before={"t0": FULL}), run.etag)

    assert store.load("w").state["tasks"] == {"t0": FULL, "t1": {"state": "completed"}}
    assert store.cancel_requested(["w"]) == {"w"}


def test_an_old_run_in_one_blob_becomes_two_when_it_is_saved(store, make, blobs, rows):
    definition, state = theirs(blobs, rows, make, together=True)

    run = store.load("w")
    assert (run.definition["tasks"], run.state["tasks"]) == (definition["tasks"], state["tasks"])
    assert store.task_entries("w", ["t0"]) == {"t0": FULL}
    with pytest.raises(WorkflowExists):
        store.create("w", definition, state)
    etag = store.save("w", make.changes({"t1": {"state": "running"}}, before={"t0": FULL}), run.etag)
    with pytest.raises(StateConflict):
        store.save("w", make.changes({}), run.etag)

    assert store.load("w").state["tasks"]["t1"] == {"state": "running"}
    assert store.load("w").definition["tasks"] == definition["tasks"]
    store.save("w", make.changes({}), etag)
    assert store.delete("w") is True
    assert list(blobs.get_container_client("proj-workflows").list_blobs()) == []


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"\x1f\x8bnot gzip", CorruptState), (b"[]", CorruptState), (b'{"v": 2}', NewerFormat), (b"", CorruptState)],
)
def test_state_that_cannot_be_read_is_said_and_left_alone(store, make, blobs, data, error):
    store.create("w", make.definition("w"), make.state("w"))
    blobs.get_blob_client("proj-workflows", "w.state.bin").upload_blob(data, overwrite=True)

    with pytest.raises(error, match="state of run w"):
        store.load("w")
    with pytest.raises(error):
        store.task_entries("w")


def test_a_deleted_run_leaves_nothing(store, make, blobs, rows):
    for workflow_id in ("w", "w.def", "w2"):
        etag = store.create(workflow_id, make.definition(workflow_id), make.state(workflow_id))
        store.replace(workflow_id, make.definition(workflow_id), make.state(workflow_id), etag)
        store.put_output(workflow_id, "t0.json", b"1")
        store.put_output(workflow_id, "../odd\\name.json", b"1")
        store.put_output(workflow_id, "workflow-files/t0/f", b"1")
        store.append_log(workflow_id, "t0", "0.1", 0, b"log")

    store.delete("w")

    for container in ("proj-workflows", "proj-outputs", "jobq-workflow-data"):
        names = {blob.name for blob in blobs.get_container_client(container).list_blobs()}
        assert not {name for name in names if "w/" in name or name.startswith(("w.def.b", "w.def.1", "w.state"))}
        assert {name for name in names if "w2" in name}
    assert {row["RowKey"] for row in rows.list_entities()} == {"w.def", "w2"}
    assert store.load("w.def").definition["workflow_id"] == "w.def"


@pytest.mark.parametrize("workflow_id", ["it's", "a b", "ü-漢", "100%", "a'b\"c", "A" * 200, "x.state.bin"])
def test_ids_of_any_kind_work_everywhere(store, make, workflow_id):
    etag = store.create(workflow_id, make.definition(workflow_id), make.state(workflow_id))
    store.request_cancel(workflow_id)
    store.save(workflow_id, make.changes({"t0": {"state": "running"}}), etag)

    assert store.load(workflow_id).state["tasks"] == {"t0": {"state": "running"}}
    assert [row.workflow_id for row in store.rows()] == [workflow_id]
    assert store.cancel_requested([workflow_id]) == {workflow_id}
    assert store.get_output(store.put_output(workflow_id, "t.json", b"1")) == b"1"
    assert store.acquire_lease(f"run/{workflow_id}", "me", 60)
    assert store.row(workflow_id).driven_by == "me"
    assert store.delete(workflow_id) is True


def test_files_can_go_to_another_account(azurite, store, make, monkeypatch):
    other = azurite.account()
    monkeypatch.setenv(f"DAGKIT_CONNECTION_STRING_{other.name.upper()}", other.connection_string)
    elsewhere = open_store(store.url, blobs=f"{other.name}/files")

    ref = elsewhere.put_output("w", "workflow-files/t/f.bin", b"data")

    assert elsewhere.url == f"{store.url}?blobs={other.name}/files"
    assert open_store(elsewhere.url).get_output(ref) == b"data"
    with pytest.raises(BackendError, match="not in azure"):
        store.get_output(ref)
    with BlobServiceClient.from_connection_string(other.connection_string) as client:
        assert [blob.name for blob in client.get_container_client("files").list_blobs()] == ["workflow-files/w/t/f.bin"]
    elsewhere.close()


# --- cancel flags of many runs, cached entries, logs


def test_cancel_flags_of_many_runs_are_seen_with_one_look(proxied, make):
    store, _, table = proxied
    for number in range(12):
        store.create(f"w{number}", make.definition(f"w{number}"), make.state(f"w{number}"))
    store.request_cancel("w3")
    table.requests.clear()

    assert store.cancel_requested([f"w{number}" for number in range(12)]) == {"w3"}
    assert len(table.requests) == 1


def test_entries_of_a_state_that_did_not_change_are_not_read_again(proxied, make):
    store, blob, _ = proxied
    etag = store.create("w", make.definition("w"), make.state("w"))
    store.task_entries("w")["t0"]["state"] = "spoiled"

    assert store.task_entries("w") == {"t0": {"state": "ready"}}
    store.save("w", make.changes({"t0": {"state": "running"}}), etag)
    assert store.task_entries("w") == {"t0": {"state": "running"}}
    assert sum("GET" in request and "w.state.bin" in request for request in blob.requests) == 3


def test_a_log_with_a_hole_is_filled_and_overlaps_are_written_once(store):
    store.append_log("w", "t", "0.1", 4, b"late")
    store.append_log("w", "t", "0.1", 6, b"teXY")

    assert store.read_log("w", "t", "0.1") == b"\0\0\0\0lateXY"


def test_a_large_log_and_a_large_output_come_back_whole(store):
    data = bytes(range(256)) * 40_000

    store.append_log("w", "t", "0.1", 0, data)

    assert store.read_log("w", "t", "0.1") == data
    assert store.get_output(store.put_output("w", "t.pkl", data)) == data


# --- time


def test_the_time_is_the_services(store):
    assert store.now() == pytest.approx(time.time(), abs=2)
    assert store.now() <= store.now()


def test_a_short_lease_runs_out_by_the_services_clock(store):
    old = store.acquire_lease("coordinator", "a", 1.0)
    deadline = time.monotonic() + 10

    while (new := store.acquire_lease("coordinator", "b", 60)) is None:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)

    with pytest.raises(LeaseLost, match="b has taken it over"):
        store.renew_lease(old, 1)
    assert store.lease("coordinator").token == new.token


def test_of_two_stores_that_want_a_lapsed_lease_one_gets_it(store, azurite_account):
    stores = [store, *(open_store(store.url) for _ in range(3))]
    store.acquire_lease("coordinator", "gone", 0.0)
    got, barrier = [], threading.Barrier(len(stores))

    def contend(number):
        barrier.wait(10)
        if lease := stores[number].acquire_lease("coordinator", f"owner {number}", 60):
            got.append(lease)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(got) == 1
    for other in stores[1:]:
        other.close()


def test_nothing_is_made_by_looking(azurite_account, blobs):
    looking = AzureStore(Place(azurite_account.name, "Proj"))

    assert looking.rows() == []
    assert looking.leases() == []
    assert looking.read_log("w", "t", "0.1") == b""
    assert looking.cached(["f"]) == {}
    with pytest.raises(UnknownRun):
        looking.load("w")
    assert [status for _, status, _ in looking.check()] == ["pass"] * 5
    assert list(blobs.list_containers()) == []
    looking.close()


def test_the_account_in_a_connection_string_is_the_one(azurite_account):
    account = parse_connection_string(azurite_account.connection_string, "X")

    assert (account.name, account.key) == (azurite_account.name, azurite_account.key)
    assert account.blob == f"http://127.0.0.1:{azurite_account.ports[0]}/{account.name}"


def test_outputs_of_many_parents_are_read_ahead_and_a_missing_one_is_an_error_where_it_is_used(store):
    refs = [store.put_output("w", f"m-{number}.json", f"{number}".encode()) for number in range(20)]
    storage = Storage(store.url, lambda what, about: None)

    storage.expect([*refs, None, "1", "blob:w/missing.json"])

    storage.store.close()
    assert set(storage._cache) == set(refs)
    assert [storage.output(ref) for ref in refs] == list(range(20))
    with pytest.raises(BackendError, match=r"blob:w/missing\.json"):
        storage.output("blob:w/missing.json")
