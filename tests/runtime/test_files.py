"""Files in outputs are stored when the task ends, and read through handles that verify what they read."""

from __future__ import annotations

import dataclasses
import json
from collections import namedtuple
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagkit.errors import CorruptState, NotPicklable, UsageError
from dagkit.runtime import files, payload, values
from dagkit.runtime.files import MARKER, File, StoredFile

CASES = {
    case["id"]: case for case in yaml.safe_load((Path(__file__).parents[1] / "cases/outputs.yaml").read_text())["cases"]
}
Row = namedtuple("Row", "name file")


class Store(dict[str, bytes]):
    """The outputs of a run `w`, as a store keeps them."""

    def put(self, path: str, data: bytes) -> str:
        self[f"blob:w/{path}"] = data
        return f"blob:w/{path}"

    def put_payload(self, data: bytes) -> str:
        digest = "sha256:" + sha256(data).hexdigest()
        self[digest] = data
        return digest


def written(tmp_path: Path, name: str, content: bytes) -> File:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return File(path)


def through_the_store(value: Any, store: Store) -> Any:
    encoded = values.dump_output(files.stash_files(value, store.put, task="train"))
    return values.load_output(f"blob:w/train.{encoded.suffix}", lambda ref: store.get(ref, encoded.data))


def test_a_file_is_pending_with_an_absolute_path_and_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    marker = files.from_file("sub/none.pt")

    path = str(tmp_path / "sub/none.pt")
    assert marker == {MARKER: {"v": 1, "state": "pending", "local_path": path, "filename": "none.pt"}}


def test_an_output_file_is_stored_under_its_task_and_read_through_a_handle(tmp_path: Path) -> None:
    store = Store()

    back = through_the_store({"model": written(tmp_path, "model.pt", b"hello"), "mae": 0.1}, store)

    handle = back["model"]
    assert back["mae"] == 0.1
    assert store["blob:w/workflow-files/train/model.pt"] == b"hello"
    assert handle.blob_name == "workflow-files/w/train/model.pt"
    assert (handle.md5, handle.size, handle.name) == (md5(b"hello").hexdigest(), 5, "model.pt")
    assert handle.url == "blob:w/workflow-files/train/model.pt"
    assert handle.read_bytes() == handle.open("rb").read() == handle.open().read() == b"hello"


@dataclasses.dataclass(frozen=True)
class Trained:
    weights: File | StoredFile
    loss: float


def test_files_are_found_in_lists_tuples_and_dataclasses(tmp_path: Path) -> None:
    file = written(tmp_path, "a.txt", b"a")

    back = through_the_store([(file,), Row("x", file), Trained(file, 0.5), {"deep": [file]}], Store())

    found = [back[0][0], back[1].file, back[2].weights, back[3]["deep"][0]]
    assert [handle.read_bytes() for handle in found] == [b"a"] * 4
    assert type(back[1]) is Row
    assert back[2].loss == 0.5


def test_a_value_without_files_is_left_alone() -> None:
    value = {"a": [1, (2, 3)], "b": Trained(None, 1.0)}  # type: ignore[arg-type]

    assert files.stash_files(value, Store().put, task="t") is value
    assert files.attach_files(value, Store().__getitem__) is value


def test_values_that_contain_themselves_or_double_at_every_level_are_walked_once(tmp_path: Path) -> None:
    circular: list[Any] = [written(tmp_path, "a.txt", b"a")]
    circular += [circular, circular]
    doubled: tuple[Any, ...] = (File(tmp_path / "a.txt"),)
    for _ in range(60):
        doubled = (doubled, doubled)

    back = files.stash_files([circular, doubled], Store().put, task="t")

    assert MARKER in back[0][0]
    assert back[1][0] is back[1][1]


def test_two_files_of_one_name_get_different_blobs_and_one_file_is_stored_once(tmp_path: Path) -> None:
    store = Store()
    contents = [b"one", b"two", b"two"]
    many = [written(tmp_path, f"{index}/model.tar.gz", content) for index, content in enumerate(contents)]

    back = through_the_store([*many, many[0]], store)

    assert [handle.read_bytes() for handle in back] == [b"one", b"two", b"two", b"one"]
    assert len({handle.blob_name for handle in back}) == len(store) == 3
    assert back[1].blob_name == f"workflow-files/w/train/model.tar-{md5(b'two').hexdigest()[:8]}.gz"


def test_a_pending_marker_in_json_is_stored_too(tmp_path: Path) -> None:
    store = Store()
    text = json.dumps({"out": written(tmp_path, "a.txt", b"a").marker()})

    assert files.mentions_files(text)
    assert through_the_store(json.loads(text), store)["out"].read_bytes() == b"a"


def test_a_marker_with_a_sibling_key_is_ordinary_data() -> None:
    value = {MARKER: {"v": 1, "state": "pending"}, "other": 1}

    assert through_the_store(value, Store()) == value


def test_a_file_that_is_missing_fails_the_task_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.pt.*No such file"):
        files.stash_files([File(tmp_path / "none.pt")], Store().put, task="train")


def test_a_stored_file_can_be_passed_on_as_an_output(tmp_path: Path) -> None:
    store = Store()
    first = through_the_store(written(tmp_path, "a.txt", b"a"), store)

    assert through_the_store([first], store) == [first]


# --- arguments


def encode(value: Any, store: Store) -> Any:
    tree = values.encode(value, ref_of=lambda obj: None, put=store.put_payload, where="train: argument 'x'")
    return json.loads(json.dumps(tree))


def decode(tree: Any, store: Store) -> Any:
    return values.decode(tree, resolve=lambda task: None, get=store.__getitem__)


def test_a_file_of_the_caller_travels_as_a_payload(tmp_path: Path) -> None:
    store = Store()
    file = written(tmp_path, "data.csv", b"1,2")

    tree = encode([file, Trained(file, 0.5)], store)
    (tmp_path / "data.csv").unlink()
    plain, held = decode(tree, store)

    assert (plain.name, plain.read_bytes()) == ("data.csv", b"1,2")
    assert held.weights.read_bytes() == b"1,2"


def test_a_stored_file_can_be_an_argument(tmp_path: Path) -> None:
    store = Store()
    handle = through_the_store(written(tmp_path, "a.txt", b"a"), store)

    back = decode(encode({"x": handle}, store), store)["x"]

    assert back == handle
    assert back.read_bytes() == b"a"


def test_a_captured_file_is_refused_rather_than_lost(tmp_path: Path) -> None:
    file = written(tmp_path, "a.txt", b"a")

    with pytest.raises(NotPicklable, match=r"closure variable 'file'.*argument"):
        payload.dump_function(lambda: file, "train")


# --- reading, by the shared cases


@pytest.mark.parametrize("case", [case for case in CASES.values() if "marker" in case], ids=lambda case: case["id"])
def test_how_a_marker_reads_downstream(case: dict[str, Any]) -> None:
    text, reads = json.dumps({"f": case["marker"]}), case["reads"]

    if reads == "data":
        assert values.load_output(text, lambda ref: b"")["f"] == case["marker"]
    elif "error" in reads:
        with pytest.raises(CorruptState) as raised:
            values.load_output(text, lambda ref: b"")
        assert all(word in str(raised.value) for word in reads["error"])
    else:
        handle = values.load_output(text, lambda ref: b"a")["f"]
        assert {name: getattr(handle, name) for name in reads["file"]} == reads["file"]
        assert handle.read_bytes() == b"a"


@pytest.mark.parametrize("case", [case for case in CASES.values() if "file" in case], ids=lambda case: case["id"])
def test_what_a_handle_does(case: dict[str, Any], tmp_path: Path) -> None:
    content = case["file"]["content"].encode()
    stored = b"damaged" if case["file"].get("damaged") else content
    handle = StoredFile("workflow-files/w/t/f", md5(content).hexdigest(), len(content), lambda ref: stored)
    target = tmp_path / "sub/dir/f.bin"
    arguments = [target] if case["call"] == "download_to" else []

    if case["expect"].get("raises"):
        with pytest.raises(CorruptState, match="not what the task wrote"):
            getattr(handle, case["call"])(*arguments)
    else:
        assert getattr(handle, case["call"])(*arguments) == case["expect"]["returns"].encode()
    assert not list(tmp_path.rglob("*f.bin*"))


MARKERS = [
    ({"v": 2, "state": "ready"}, "version 2"),
    ({"v": True, "state": "ready"}, "version True"),
    ({"v": 1, "state": "lost"}, "unknown state 'lost'"),
    ({"v": 1}, "unknown state None"),
    ({"v": 1, "state": "ready", "blob_name": "b", "md5": "m"}, "'size'"),
    ({"v": 1, "state": "ready", "blob_name": "b", "size": 1}, "'md5'"),
    ({"v": 1, "state": "ready", "blob_name": 3, "md5": "m", "size": 1}, "'blob_name'"),
    ({"v": 1, "state": "ready", "blob_name": "b", "md5": "m", "size": True}, "'size'"),
]


@pytest.mark.parametrize(("marker", "message"), MARKERS)
def test_a_bad_marker_says_which(marker: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptState, match=message):
        values.load_output(json.dumps([{MARKER: marker}]), lambda ref: b"")


def test_conditions_see_markers_as_they_are(tmp_path: Path) -> None:
    text = json.dumps(File(tmp_path / "a").marker())

    assert values.load_output(text, lambda ref: b"", files=False) == json.loads(text)


def test_download_makes_folders_replaces_whole_and_returns_the_path(tmp_path: Path) -> None:
    handle = through_the_store(written(tmp_path, "a.txt", b"new"), Store())
    target = tmp_path / "x/y/a.txt"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"older and longer")

    assert handle.download_to(str(target)) == target
    assert target.read_bytes() == b"new"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_a_stored_file_opens_for_reading_only(tmp_path: Path) -> None:
    handle = through_the_store(written(tmp_path, "a.txt", b"a"), Store())

    for mode in ("wb", "r", "ab", "r+b"):
        with pytest.raises(ValueError, match=r"mode 'rb'"):
            handle.open(mode)


def test_a_handle_without_a_store_says_so() -> None:
    with pytest.raises(UsageError, match="belongs to no store"):
        StoredFile("b", "m", 1).read_bytes()
