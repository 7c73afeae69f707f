"""What an SQLite store does when the disk, the file or another process does not behave. Only the clock is faked."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from dagkit.errors import BackendError, CorruptState, DagkitError, NewerFormat
from dagkit.stores.sqlite import SQLiteStore
from dagkit.stores.sqlite_check import check

# --- full disk


def test_a_full_disk_is_one_clear_error_and_loses_nothing(sqlite_store, make):
    etag = sqlite_store.create("wf1", make.definition(), make.state())
    limit_pages(sqlite_store)

    with pytest.raises(BackendError, match=r"state\.db: saving run wf1 failed: the disk or the quota is full"):
        sqlite_store.save("wf1", make.changes({f"t{n}": big_entry() for n in range(50)}), etag)

    assert sqlite_store.load("wf1").state == make.state()
    etag = sqlite_store.save(
        "wf1", make.changes({"t0": {"state": "running"}}), etag
    )  # space again: the same etag goes on
    assert sqlite_store.load("wf1").state["tasks"]["t0"] == {"state": "running"}


def limit_pages(store):
    """SQLite itself says that the disk is full; the limit lasts as long as the one connection that is in the pool."""
    with store._database.connection("testing") as connection:
        connection.execute("PRAGMA max_page_count = 30")


def big_entry():
    return {"state": "failed", "error": random.Random(1).randbytes(2000).hex()}


IN_NAMESPACE = shutil.which("unshare") and os.name == "posix"


def in_mount(tmp_path: Path, mount: str, code: str) -> str:
    """Run Python with `tmp_path/m` mounted by the shell line `mount`, in a mount namespace of its own."""
    place = tmp_path / "m"
    place.mkdir(exist_ok=True)
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(code))
    line = f"{mount.format(place)} && exec {sys.executable} {script} {place}"
    if not IN_NAMESPACE or subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("mounting needs user namespaces (unshare -Urm)")
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_small_file_system_that_fills_up_keeps_every_save_that_was_confirmed(tmp_path):
    said = in_mount(
        tmp_path,
        "mount -t tmpfs -o size=3m tmpfs {}",
        """
        import sys
        from dagkit.errors import BackendError
        from dagkit.model.records import Counts, StateChanges
        from dagkit.stores.sqlite import SQLiteStore

        head = {"v": 1, "workflow_state": "running"}
        store = SQLiteStore(sys.argv[1])
        etag = store.create("w", {"v": 1, "name": "n", "tasks": {}}, {**head, "tasks": {}})
        for number in range(10_000):
            entry = {"error": "x" * 5000, "attempt_no": number}
            change = StateChanges(head, [(number, f"t{number}", entry)], Counts(), dict)
            try:
                etag = store.save("w", change, etag)
            except BackendError as error:
                print(error)
                break
        again = SQLiteStore(sys.argv[1])
        found = sorted(entry["attempt_no"] for entry in again.load("w").state["tasks"].values())
        print(found == list(range(number)), number > 50)
        try:
            store.put_output("w", "big.pkl", b"x" * 5_000_000)
        except BackendError as error:
            print(error)
        print(store.read_log("w", "t", "0.1"), store.load("w").etag == etag)
        print({name: status for name, status, _ in store.check()}["space"])
        """,
    ).splitlines()

    assert "the disk or the quota is full" in said[0]
    assert said[1] == "True True"
    assert "writing an output failed: the disk or the quota is full" in said[2]
    assert said[3:] == ["b'' True", "fail"]


# --- read-only


def test_a_read_only_mount_is_one_clear_error_on_writing(tmp_path, make):
    with_run(tmp_path / "m", make)

    said = in_mount(
        tmp_path,
        "mount --bind {0} {0} && mount -o remount,ro,bind {0}",
        """
        import sys
        from dagkit.errors import BackendError
        from dagkit.stores.sqlite import SQLiteStore

        store = SQLiteStore(sys.argv[1])
        put_output = lambda: store.put_output("w", "t.json", b"1")
        for call in (lambda: store.request_cancel("wf1"), put_output, lambda: store.put_payload(b"1")):
            try:
                call()
            except BackendError as error:
                print(error)
        print({name: status for name, status, _ in store.check()}["writable"])
        """,
    ).splitlines()

    assert len(said) == 4
    assert all("Choose a directory you may write to" in line or "mounted for writing" in line for line in said[:3])
    assert said[3] == "fail"


def with_run(root, make):
    store = SQLiteStore(root)
    store.create("wf1", make.definition(), make.state())
    store.close()


def test_a_database_that_may_only_be_read_says_so(sqlite_store, make):
    etag = sqlite_store.create("wf1", make.definition(), make.state())
    with sqlite_store._database.connection("testing") as connection:
        connection.execute("PRAGMA query_only = 1")

    with pytest.raises(BackendError, match="it is read-only"):
        sqlite_store.save("wf1", make.changes({}), etag)

    assert sqlite_store.load("wf1").etag == etag


def test_a_file_in_place_of_the_directory_is_one_clear_error(tmp_path, make):
    (tmp_path / "store").write_text("not a directory")
    store = SQLiteStore(tmp_path / "store")

    with pytest.raises(BackendError, match="creating the store failed: something else is in the way"):
        store.create("wf1", make.definition(), make.state())
    with pytest.raises(BackendError, match="something else is in the way"):
        store.put_output("wf1", "t.json", b"1")
    assert (tmp_path / "store").read_text() == "not a directory"


def test_a_directory_in_place_of_the_database_is_one_clear_error(tmp_path):
    (tmp_path / "store/state.db").mkdir(parents=True)
    store = SQLiteStore(tmp_path / "store")

    with pytest.raises(BackendError, match="cannot be opened"):
        store.rows()
    assert "fail" in {status for _, status, _ in store.check()}


# --- damage


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_database_gives_clear_errors_or_right_answers(tmp_path, make, seed):
    store = SQLiteStore(tmp_path / "s")
    tasks = {f"t{n}": {"state": "failed", "error": "x" * 200} for n in range(300)}
    store.create("wf1", make.definition(tasks=300), make.state(tasks=tasks))
    store.close()
    overwrite(store.root / "state.db", random.Random(seed))
    store = SQLiteStore(tmp_path / "s")

    loaded = answer_or_error(store.load, "wf1")
    others = [answer_or_error(call, "wf1") for call in (store.row, store.load_definition, store.request_cancel)]
    findings = {name: status for name, status, _ in store.check()}
    store.close()

    if loaded is not None:
        assert loaded.state["tasks"] == tasks
        assert loaded.definition == make.definition(tasks=300)
    if findings["database"] == "pass":
        assert None not in (loaded, *others[:2])


def answer_or_error(call, *arguments):
    """What the call returns, or None if it fails with one of our errors; any other exception fails the test."""
    with contextlib.suppress(DagkitError):
        return call(*arguments)


def overwrite(path, rng):
    """Random bytes over some of the pages, as a failing disk leaves them."""
    data = bytearray(path.read_bytes())
    for _ in range(3):
        start = rng.randrange(1, len(data) // 4096) * 4096
        data[start : start + 4096] = rng.randbytes(4096)
    path.write_bytes(data)


def test_a_database_with_every_page_overwritten_is_named_as_damaged(tmp_path, make):
    with_run(tmp_path, make)
    size = (tmp_path / "state.db").stat().st_size
    (tmp_path / "state.db").write_bytes(random.Random(1).randbytes(size))
    store = SQLiteStore(tmp_path)

    with pytest.raises(CorruptState, match=r"state\.db: loading run wf1 failed: the database is damaged"):
        store.load("wf1")
    assert {name: status for name, status, _ in store.check()}["database"] == "fail"


def test_damaged_pages_are_found_by_the_check(tmp_path, make):
    store = SQLiteStore(tmp_path)
    store.create(
        "wf1", make.definition(tasks=300), make.state(tasks={f"t{n}": {"error": "x" * 200} for n in range(300)})
    )
    store.close()
    data = bytearray((tmp_path / "state.db").read_bytes())
    data[4096 * 3 :] = random.Random(1).randbytes(len(data) - 4096 * 3)
    (tmp_path / "state.db").write_bytes(data)
    store = SQLiteStore(tmp_path)

    finding = next(one for one in store.check() if one[0] == "database")
    store.close()

    assert finding[1] == "fail"
    assert ".recover" in finding[2]


def test_text_that_is_no_json_is_corrupt_state(sqlite_store, make):
    sqlite_store.create("wf1", make.definition(), make.state())
    with sqlite_store._database.writing("testing") as connection:
        connection.execute("UPDATE tasks SET entry = '{\"state\": '")

    with pytest.raises(CorruptState, match="tasks of run wf1 cannot be read"):
        sqlite_store.load("wf1")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE runs SET head = 'x'", CorruptState),
        ("UPDATE runs SET head = '{\"v\": 2}'", NewerFormat),
        ("UPDATE runs SET head = '{}'", CorruptState),
        ("UPDATE definitions SET document = x'1f8b00'", CorruptState),
        ("UPDATE definitions SET document = '{\"v\": 7}'", NewerFormat),
        ("DELETE FROM definitions", CorruptState),
    ],
)
def test_a_document_that_cannot_be_read_names_the_run(tmp_path, make, statement, error):
    with_run(tmp_path, make)
    store = SQLiteStore(tmp_path)
    with store._database.writing("testing") as connection:
        connection.execute(statement)

    with pytest.raises(error, match="of run wf1"):
        store.load("wf1")
    store.close()


# --- versions and strangers


def test_a_store_of_a_later_version_is_refused_and_left_alone(tmp_path, make):
    with_run(tmp_path, make)
    change(tmp_path / "state.db", "PRAGMA user_version = 99")
    store = SQLiteStore(tmp_path)

    with pytest.raises(NewerFormat, match=r"state\.db is of a later version of dagkit \(format 99"):
        store.load("wf1")

    assert {name: status for name, status, _ in store.check()}["database"] == "fail"
    change(tmp_path / "state.db", "PRAGMA user_version = 1")
    again = SQLiteStore(tmp_path)
    assert again.load("wf1").state == make.state()
    again.close()


def change(path, statement):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_a_database_of_something_else_is_not_touched(tmp_path):
    change(tmp_path / "state.db", "CREATE TABLE theirs (x)")
    before = (tmp_path / "state.db").read_bytes()

    with pytest.raises(CorruptState, match="a database of something else"):
        SQLiteStore(tmp_path).rows()

    assert (tmp_path / "state.db").read_bytes() == before


# --- other processes

HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_another_process_holds_is_waited_for_and_then_named(sqlite_store, make):
    etag = sqlite_store.create("wf1", make.definition(), make.state())
    command = [sys.executable, "-c", HOLD_LOCK, str(sqlite_store.root / "state.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"

        begun = time.monotonic()
        with pytest.raises(BackendError, match=r"another process holds its lock for more than 0\.2 s") as caught:
            sqlite_store.save("wf1", make.changes({}), etag)
        waited = time.monotonic() - begun

        assert 0.2 <= waited < 5
        if Path("/proc/locks").exists():
            assert f"(process {other.pid})" in str(caught.value)
        assert sqlite_store.load("wf1").etag == etag  # reading goes on meanwhile
        other.stdin.close()
        other.wait(10)
    assert sqlite_store.save("wf1", make.changes({}), etag) != etag


def test_many_processes_may_create_a_store_at_the_same_time(tmp_path):
    code = (
        "import sys; from dagkit.stores.sqlite import SQLiteStore; s = SQLiteStore(sys.argv[1]); sys.stdin.readline();"
        "s.create(sys.argv[2], {'v': 1, 'tasks': {}}, {'v': 1, 'workflow_state': 'pending', 'tasks': {}})"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    others = [subprocess.Popen([*command, f"w{n}"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for n in range(4)]
    for other in others:
        other.stdin.write(b"\n")
        other.stdin.flush()

    errors = [other.communicate(timeout=30)[1].decode() for other in others]
    store = SQLiteStore(tmp_path / "s")

    assert errors == [""] * 4
    assert sorted(row.workflow_id for row in store.rows()) == ["w0", "w1", "w2", "w3"]
    store.close()


SAVE_FOREVER = """
import sys
from dagkit.model.records import Counts, StateChanges
from dagkit.stores.sqlite import SQLiteStore

store = SQLiteStore(sys.argv[1])
run = store.load("w")
number, etag = run.state["number"], run.etag
while True:
    number += 1
    head = {"v": 1, "workflow_state": "running", "number": number}
    rows = [(n, f"t{n}", {"attempt_no": number, "error": "x" * 300}) for n in range(60)]
    etag = store.save("w", StateChanges(head, rows, Counts(), dict), etag)
    print(number, flush=True)
"""


def test_kill_9_in_the_middle_of_saves_leaves_exactly_the_saves_that_were_made(tmp_path):
    store = SQLiteStore(tmp_path)
    store.create("w", {"v": 1, "tasks": {}}, {"v": 1, "workflow_state": "pending", "number": 0, "tasks": {}})
    store.close()
    rng = random.Random(7)

    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE) as saver:
            for _ in range(rng.randrange(1, 40)):
                confirmed = int(saver.stdout.readline())
            time.sleep(rng.random() / 200)  # anywhere within a save
            saver.kill()
            confirmed = max([confirmed, *map(int, saver.stdout.read().split())])
            saver.wait(10)

        store = SQLiteStore(tmp_path)
        state = store.load("w").state
        findings = {name: status for name, status, _ in store.check()}
        store.close()

        assert state["number"] in (confirmed, confirmed + 1)  # the last may have been saved and not yet confirmed
        assert {entry["attempt_no"] for entry in state["tasks"].values()} == {state["number"]}
        assert findings["database"] == "pass"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_opens_its_own_connection(sqlite_store, make):
    etag = sqlite_store.create("wf1", make.definition(), make.state())
    parents_connections = set(sqlite_store._database._idle)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sqlite_store.request_cancel("wf1")
            code = 0 if parents_connections.isdisjoint(sqlite_store._database._idle) else 2
            sqlite_store.close()
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0
    assert sqlite_store.cancel_requested(["wf1"]) == {"wf1"}
    sqlite_store.save("wf1", make.changes({}), etag)


# --- threads and closing


def test_connections_are_reused_and_all_closed(sqlite_store, make):
    sqlite_store.create("wf1", make.definition(), make.state())
    threads = [threading.Thread(target=lambda: [sqlite_store.row("wf1") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    idle = list(sqlite_store._database._idle)

    sqlite_store.close()

    assert 1 <= len(idle) <= 4
    for connection in idle:
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")


def test_a_closed_store_says_so(sqlite_store, make):
    sqlite_store.create("wf1", make.definition(), make.state())
    sqlite_store.close()

    with pytest.raises(BackendError, match="was closed"):
        sqlite_store.row("wf1")


def test_a_failed_transaction_leaves_the_connection_usable(sqlite_store, make):
    sqlite_store.create("wf1", make.definition(), make.state())

    for _ in range(3):
        with pytest.raises(DagkitError):
            sqlite_store.create("wf1", make.definition(), make.state())

    assert len(sqlite_store._database._idle) == 1
    assert sqlite_store.load("wf1").state == make.state()


def test_a_lease_is_kept_across_processes_and_restarts(tmp_path, clock):
    first = SQLiteStore(tmp_path, clock=clock)
    lease = first.acquire_lease("run/wf1", "a", 60)
    first.close()
    second = SQLiteStore(tmp_path, clock=clock)

    assert second.acquire_lease("run/wf1", "b", 60) is None
    assert second.renew_lease(lease, 60).token == lease.token
    second.close()


# --- doctor


def test_the_check_warns_about_a_network_file_system(sqlite_store):
    sqlite_store.rows()
    findings = check(sqlite_store.root, lambda: sqlite_store._database, mounts="server:/home / nfs4 rw 0 0\n")

    status, message = next((status, message) for name, status, message in findings if name == "file system")
    assert status == "warn"
    assert "nfs4" in message
    assert "one machine" in message


def test_looking_at_a_store_that_is_not_there_does_not_make_it(tmp_path):
    (tmp_path / "file").write_text("")

    assert {status for _, status, _ in SQLiteStore(tmp_path / "a/b").check()} == {"pass"}
    assert SQLiteStore(tmp_path / "file/b").check()[0][:2] == ("writable", "fail")
    assert [place.name for place in tmp_path.iterdir()] == ["file"]


def test_a_good_store_passes_every_check(sqlite_store):
    sqlite_store.rows()

    assert {name: status for name, status, _ in sqlite_store.check()} == {
        "writable": "pass",
        "database": "pass",
        "space": "pass",
        "file system": "pass",
    }


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_a_store_that_was_forgotten_holds_no_files(tmp_path):
    """Handles on runs come and go in a notebook; Python 3.13 warns of every connection that nobody closed."""

    def open_files():
        return [link for link in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(link.resolve())]

    store = SQLiteStore(tmp_path)
    store.rows()
    assert open_files()

    del store
    gc.collect()

    assert not open_files()
