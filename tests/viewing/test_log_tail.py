"""Logs that are followed: every byte once, in order, and never more than the limit at a time."""

from __future__ import annotations

from dagkit.viewing import RunViewer
from dagkit.viewing.log_tail import LogTail


def test_a_log_is_read_piece_by_piece(run):
    shown = run(1, {"prepare": {"state": "running", "attempt_no": 1}})
    tail, row = RunViewer(shown).log("prepare"), shown.task("prepare")

    shown.store.append_log("run", "prepare", "0.1", 0, "ä".encode()[:1])
    first = tail.read(row)
    shown.store.append_log("run", "prepare", "0.1", 1, "ä".encode()[1:] + b" more")

    assert first == ("", True)
    assert tail.read(row) == ("ä more", False)
    assert tail.read(row) == ("", False)


def test_another_attempt_begins_anew(run):
    shown = run(1, {"prepare": {"state": "running", "attempt_no": 2}})
    shown.store.append_log("run", "prepare", "0.1", 0, b"first")
    shown.store.append_log("run", "prepare", "0.2", 0, b"second")
    tail, row = LogTail(shown.store, "run", "prepare"), shown.task("prepare")
    tail.key = "0.1"

    assert tail.read(row) == ("second", True)


def test_of_a_long_log_the_end_is_read_and_then_what_follows(run):
    shown = run(1, {"prepare": {"state": "running", "attempt_no": 1}})
    text = "".join(f"line {i}\n" for i in range(1_000))
    shown.store.append_log("run", "prepare", "0.1", 0, text.encode())
    tail, row = LogTail(shown.store, "run", "prepare", limit=100), shown.task("prepare")

    piece, is_new = tail.read(row)
    shown.store.append_log("run", "prepare", "0.1", len(text), b"the end")

    assert (piece, is_new, tail.is_cut) == (text[-100:], True, True)
    assert tail.read(row) == ("the end", False)


def test_a_log_as_long_as_the_limit_is_whole(run):
    shown = run(1, {"prepare": {"state": "running", "attempt_no": 1}})
    shown.store.append_log("run", "prepare", "0.1", 0, b"x" * 100)
    tail = LogTail(shown.store, "run", "prepare", limit=100)

    assert tail.read(shown.task("prepare"))[0] == "x" * 100
    assert not tail.is_cut
