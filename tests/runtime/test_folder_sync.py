"""Folders that are copied elsewhere while a command writes them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import dagkit
from dagkit import shell, workflow
from dagkit.azure.account import find_account
from dagkit.azure.connection import Connection
from dagkit.errors import BackendError, TaskFailed
from dagkit.runtime.folder_sync import BlobPlace, FolderPlace, FolderSync, place_of
from dagkit.runtime.outcome import Failure
from services.processes import wait_until


class Noting(FolderPlace):
    """Notes what is copied; fails as often as it is told to."""

    def __init__(self, folder: Path, failures: int = 0) -> None:
        super().__init__(folder)
        self.put_names: list[str] = []
        self.failures = failures

    def put(self, name: str, file: Path) -> None:
        if self.failures:
            self.failures -= 1
            raise BackendError("the place is away")
        self.put_names.append(name)
        super().put(name, file)


def texts(folder: Path) -> dict[str, str]:
    """What is there, without what is on its way."""
    whole = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {file.relative_to(folder).as_posix(): file.read_text() for file in whole}


def test_files_are_copied_while_they_are_written_and_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with FolderSync(FolderPlace(target), tmp_path, interval_s=0.02) as sync:
        (sync.folder / "sub").mkdir()
        (sync.folder / "sub/a").write_text("1")
        wait_until(lambda: target.exists() and texts(target) == {"sub/a": "1"}, "the first copy")
        (sync.folder / "sub/a").write_text("12")
        wait_until(lambda: texts(target) == {"sub/a": "12"}, "the second")
        sync._interval_s = 1000
        (sync.folder / "b").write_text("at the end")

    assert texts(target) == {"sub/a": "12", "b": "at the end"}
    assert not sync.folder.exists()


def test_what_has_not_changed_is_copied_once_and_what_is_deleted_stays(tmp_path: Path) -> None:
    place = Noting(tmp_path / "target")
    with FolderSync(place, tmp_path, interval_s=1000) as sync:
        (sync.folder / "a").write_text("1")
        sync._pass()
        sync._pass()
        (sync.folder / "a").unlink()
        (sync.folder / "broken").symlink_to("/nowhere")

    assert place.put_names == ["a"]
    assert texts(tmp_path / "target") == {"a": "1"}


def test_trouble_on_the_way_is_said_and_made_up_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = Noting(tmp_path / "target", failures=2)
    said = threading.Event()
    with FolderSync(place, tmp_path, interval_s=0.02) as sync:
        (sync.folder / "a").write_text("1")
        wait_until(lambda: place.put_names, "it is copied all the same")
        said.set()

    assert texts(tmp_path / "target") == {"a": "1"}
    assert capfd.readouterr().err.count("the place is away") == 2


def test_a_last_copy_that_fails_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = Noting(tmp_path / "target", failures=100)

    with FolderSync(place, tmp_path, interval_s=1000) as sync:
        (sync.folder / "a").write_text("1")

    assert sync.problem == f"its folder could not be copied to {tmp_path / 'target'}: the place is away"
    assert "the place is away" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("ends", "said"), [("true", "its folder could not be copied to"), ("exit 3", "the command ended with exit code 3")]
)
def test_a_place_that_takes_nothing_fails_a_task_that_has_not_failed_by_itself(
    tmp_path: Path, ends: str, said: str
) -> None:
    (tmp_path / "target").write_text("a file, and no folder")

    @workflow
    def flow():
        return shell(f"echo 1 > $DAGKIT_SYNC_DIR/out; {ends}", bg_dirsync_to=str(tmp_path / "target"))()

    run = flow().run(store=tmp_path / "store", progress=False)

    (failure,) = run.errors()
    assert failure.error.startswith(said)
    assert f"copying to {tmp_path / 'target'}" in run.logs(failure.task)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("/data/x", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("azure://acct/results/run-1/", "azure://acct/results/run-1"),
    ],
)
def test_places_are_named_by_urls_and_paths(words: str, said: str) -> None:
    assert str(place_of(words)) == said


def test_the_url_of_a_blob_folder_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(place_of("https://acct.blob.core.windows.net/results/a/b")) == "azure://acct/results/a/b"


@pytest.mark.parametrize("words", ["", "azure://acct", "azure:///c", "s3://bucket/x", "azure://a/c/p?sv=1&sig=secret"])
def test_anything_else_is_refused_with_what_to_say(words: str) -> None:
    with pytest.raises(Failure, match="say azure://") as caught:
        place_of(words)

    assert caught.value.kind == "config"


def test_a_task_writes_into_its_folder_and_the_place_has_it_also_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "target"

    @workflow
    def good():
        return shell("echo done > $DAGKIT_SYNC_DIR/out; echo $AMLT_DIRSYNC_DIR", bg_dirsync_to=str(target / "good"))()

    @workflow
    def bad():
        return shell("echo half > $DAGKIT_SYNC_DIR/out; exit 3", bg_dirsync_to=str(target / "bad"))()

    flow = good()
    assert flow.spec.tasks[0].kwargs["bg_dirsync_to"] == str(target / "good")
    run = flow.run(store=tmp_path / "store", progress=False)
    with pytest.raises(TaskFailed, match="exit code 3"):
        bad().run(store=tmp_path / "store", progress=False).result()

    assert str(run.status) == "completed"
    assert texts(target) == {"good/out": "done\n", "bad/out": "half\n"}
    assert not Path(run.logs(run.spec.tasks[0].name).strip()).exists()


def test_a_task_that_is_stopped_leaves_what_it_wrote(tmp_path: Path) -> None:
    target, begun = tmp_path / "target", tmp_path / "begun"

    @workflow
    def long():
        return shell(f"echo half > $DAGKIT_SYNC_DIR/out; touch {begun}; sleep 60", bg_dirsync_to=str(target))()

    thread = threading.Thread(target=lambda: long().run(store=tmp_path / "store", progress=False, id="long"))
    thread.start()
    wait_until(begun.exists, "it runs")
    dagkit.attach("long", tmp_path / "store", drive=False).cancel()
    thread.join(30)

    assert texts(target) == {"out": "half\n"}


def test_a_place_that_cannot_be_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    @workflow
    def wrong():
        return shell("touch never", bg_dirsync_to="s3://bucket/x", cwd=str(tmp_path), retries=2)()

    with pytest.raises(TaskFailed, match="say azure://") as caught:
        wrong().run(store=tmp_path / "store", progress=False).result()

    assert caught.value.kind == "config"
    assert not (tmp_path / "never").exists()


@pytest.mark.xdist_group("azurite")
def test_blobs_are_made_and_replaced(azurite_account, tmp_path: Path) -> None:
    place = BlobPlace(azurite_account.name, "results", "run-1/")
    with FolderSync(place, tmp_path, interval_s=0.05) as sync:
        (sync.folder / "logs").mkdir()
        (sync.folder / "logs/a.txt").write_text("first")
        connection = Connection(find_account(azurite_account.name))
        container = connection.blobs.get_container_client("results")

        def found() -> dict[str, str]:
            if not container.exists():
                return {}
            return {one.name: container.download_blob(one.name).readall().decode() for one in container.list_blobs()}

        wait_until(lambda: found() == {"run-1/logs/a.txt": "first"}, "the first upload")
        (sync.folder / "logs/a.txt").write_text("second one")

    assert found() == {"run-1/logs/a.txt": "second one"}
    connection.close()


def test_an_account_that_is_not_there_fails_the_task_with_one_line(tmp_path: Path) -> None:
    os.environ["DAGKIT_CONNECTION_STRING_NOSUCHACCOUNT"] = (
        "AccountName=nosuchaccount;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:9/nosuchaccount;"
        "QueueEndpoint=http://127.0.0.1:9/nosuchaccount;TableEndpoint=http://127.0.0.1:9/nosuchaccount"
    )
    try:
        with FolderSync(BlobPlace("nosuchaccount", "results", ""), tmp_path, interval_s=1000) as sync:
            (sync.folder / "a").write_text("1")
    finally:
        del os.environ["DAGKIT_CONNECTION_STRING_NOSUCHACCOUNT"]
    assert sync.problem.startswith("its folder could not be copied to azure://nosuchaccount/results: ")
    assert "a2V5" not in sync.problem
