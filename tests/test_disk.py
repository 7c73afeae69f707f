"""Files that are whole or absent."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dagkit.disk import explain_os_error, write_whole
from dagkit.errors import BackendError


def test_directories_are_made_as_they_are_needed(tmp_path):
    write_whole(tmp_path / "a/b/c", b"data", tmp_path / "spare", "writing")

    assert (tmp_path / "a/b/c").read_bytes() == b"data"
    assert list((tmp_path / "spare").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"xy"), memoryview(b"xyz")])
def test_any_bytes_replace_what_was_there(tmp_path, data):
    (tmp_path / "f").write_bytes(b"old and longer")

    write_whole(tmp_path / "f", data, tmp_path / "spare", "writing")

    assert (tmp_path / "f").read_bytes() == bytes(data)


def test_a_process_that_may_not_write_so_much_keeps_the_old_file_and_leaves_no_part(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    code = (
        "import resource, sys; from pathlib import Path; from dagkit.disk import write_whole;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); root = Path(sys.argv[1]);"
        "write_whole(root / 'f', b'x' * 5000, root / 'spare', 'writing an output')"
    )

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)

    assert "BackendError" in done.stderr
    assert "larger than this process may write. Raise the limit (ulimit -f)" in done.stderr
    assert (tmp_path / "f").read_bytes() == b"old"
    assert list((tmp_path / "spare").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("ENOSPC", "full"),
        ("EDQUOT", "full"),
        ("EROFS", "not allowed here"),
        ("EACCES", "not allowed here"),
        ("ENOTDIR", "in the way"),
        ("ENOENT", "it is not there"),
        ("EMFILE", "ulimit -n"),
        ("EIO", "dmesg"),
    ],
)
def test_every_cause_has_its_own_advice(number, words):
    import errno

    error = explain_os_error(OSError(getattr(errno, number), "text"), "/x/y", "writing an output")

    assert isinstance(error, BackendError)
    assert str(error).startswith("/x/y: writing an output failed: ")
    assert words in str(error)


def test_an_error_without_a_number_is_told_in_its_own_words():
    assert "odd" in str(explain_os_error(OSError("odd"), os.curdir, "reading"))
