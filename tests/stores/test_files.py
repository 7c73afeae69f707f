"""Outputs, payloads and logs on disk: where they are, and that they are whole."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from dagkit.errors import BackendError, CorruptState


def test_files_lie_where_people_look_for_them(sqlite_store):
    sqlite_store.put_output("wf1", "train.json", b"1")
    digest = sqlite_store.put_payload(b"code").removeprefix("sha256:")

    assert (sqlite_store.root / "outputs/wf1/train.json").read_bytes() == b"1"
    assert (sqlite_store.root / "payloads" / digest[:2] / digest).read_bytes() == b"code"
    assert sqlite_store.log_path("wf1", "train", "0.1") == sqlite_store.root / "logs/wf1/train.0.1.log"


@pytest.mark.parametrize(
    ("workflow_id", "path"), [("..", "x.json"), ("wf1", "../../x.json"), ("wf1", "/etc/x.json"), ("a/..", "..")]
)
def test_no_name_leads_out_of_the_store(sqlite_store, workflow_id, path):
    sqlite_store.put_output(workflow_id, path, b"1")
    sqlite_store.append_log(workflow_id, path, "../0.1", 0, b"1")

    outside = [
        place for place in sqlite_store.root.parent.rglob("*") if sqlite_store.root not in (place, *place.parents)
    ]
    files = [place for place in sqlite_store.root.rglob("*") if place.is_file()]
    assert outside == []
    assert {place.relative_to(sqlite_store.root).parts[0] for place in files} == {"outputs", "logs"}
    assert all(len(place.relative_to(sqlite_store.root).parts) == 3 for place in files)


def test_outputs_need_no_database(sqlite_store):
    sqlite_store.put_output("wf1", "train.json", b"1")
    sqlite_store.put_payload(b"code")
    sqlite_store.append_log("wf1", "train", "0.1", 0, b"x")

    assert not (sqlite_store.root / "state.db").exists()


def test_the_store_keeps_itself_out_of_git(sqlite_store):
    sqlite_store.rows()

    assert (sqlite_store.root / ".gitignore").read_text() == "*\n"


def test_a_payload_that_was_changed_on_disk_is_refused(sqlite_store):
    digest = sqlite_store.put_payload(b"code")
    path = sqlite_store.root / "payloads" / digest[7:9] / digest[7:]
    path.write_bytes(b"evil")

    with pytest.raises(CorruptState, match=digest):
        sqlite_store.get_payload(digest)


def test_a_payload_that_was_cut_short_is_stored_anew(sqlite_store):
    digest = sqlite_store.put_payload(b"code")
    (sqlite_store.root / "payloads" / digest[7:9] / digest[7:]).write_bytes(b"co")

    sqlite_store.put_payload(b"code")

    assert sqlite_store.get_payload(digest) == b"code"


def test_a_reader_sees_one_whole_output_or_another(sqlite_store):
    sqlite_store.put_output("wf1", "t.json", b"0" * 300_000)
    seen, over = set(), threading.Event()

    def read():
        while not over.is_set():
            data = sqlite_store.get_output("blob:wf1/t.json")
            seen.add((len(data), len(set(data))))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        sqlite_store.put_output("wf1", "t.json", b"%d" % (number % 10) * 300_000)
    over.set()
    reader.join(10)

    assert seen == {(300_000, 1)}
    assert list((sqlite_store.root / "tmp").iterdir()) == []


def test_a_directory_in_place_of_an_output_is_one_clear_error_and_leaves_no_rubbish(sqlite_store):
    (sqlite_store.root / "outputs/wf1/t.json/x").mkdir(parents=True)

    with pytest.raises(BackendError, match=r"t\.json: writing an output failed: .*in the way"):
        sqlite_store.put_output("wf1", "t.json", b"1")

    assert list((sqlite_store.root / "tmp").iterdir()) == []


def test_a_device_without_space_is_one_clear_error(sqlite_store):
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")
    path = sqlite_store.log_path("wf1", "train", "0.1")
    path.symlink_to("/dev/full")

    with pytest.raises(BackendError, match=r"the disk or the quota is full .*Free some space"):
        sqlite_store.append_log("wf1", "train", "0.1", 0, b"x")


def test_what_a_killed_process_left_is_swept_after_a_day(sqlite_store):
    tmp = sqlite_store.root / "tmp"
    (tmp / "deleted-1/x").mkdir(parents=True)
    (tmp / "1-part").write_bytes(b"x")
    (tmp / "2-part").write_bytes(b"x")
    for name in ("deleted-1", "1-part"):
        os.utime(tmp / name, (1, 1))

    sqlite_store.rows()

    assert [place.name for place in tmp.iterdir()] == ["2-part"]


def test_outputs_are_as_private_as_the_umask_says(sqlite_store):
    old = os.umask(0o077)
    try:
        sqlite_store.put_output("wf1", "t.json", b"1")
    finally:
        os.umask(old)

    assert stat.S_IMODE((sqlite_store.root / "outputs/wf1/t.json").stat().st_mode) == 0o600
